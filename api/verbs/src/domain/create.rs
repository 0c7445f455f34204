//! Constructors for the objects of a protection domain.

use remora_memory::{Access, Bytes, Range, WindowType};
use remora_nic::{Command, Device, GSI_QKEY, Service};
use remora_wire::frame::Endpoint;

use crate::kernel::{Kernel, Shipped};
use crate::queue_pair::{Init, QpOptions};
use crate::{
    AddressHandle, AnswerBuffers, CompletionQueue, CreateError, DatagramQueuePair, FreeList, FreeListOptions,
    KernelHandle, KernelModule, KernelOptions, MemoryRegion, MemoryWindow, NullRegion, QueuePair, Srq,
    SrqOptions, XrcDomain, XrcInitiator,
};

use super::ProtectionDomain;

impl ProtectionDomain {
    /// Allocates `len` zeroed bytes and registers them under their own address.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Memory` if memory or the memory table is exhausted, or if `access` lets
    /// peers write and not the owner.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.allocate_named("", len, access)
    }

    /// Like [`allocate`](ProtectionDomain::allocate), under a name, by which a restarted program recognises
    /// the region when a daemon has kept it ([`Context::kept`](crate::Context::kept)).
    ///
    /// # Errors
    /// The errors of [`allocate`](ProtectionDomain::allocate); `Daemon` also if a region of this name exists.
    pub fn allocate_named(
        &self,
        name: &str,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        let region = self.register(&self.device().allocate(len)?, access)?;
        region.set_name(name)?;
        Ok(region)
    }

    /// Registers a whole block under its own address.
    ///
    /// # Errors
    /// The errors of [`allocate`](ProtectionDomain::allocate).
    pub fn register(&self, bytes: &Bytes, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register_ranges(&[Range::whole(bytes)], access)
    }

    /// Registers several ranges under one key. The region's accessors read and write the first range.
    ///
    /// # Errors
    /// The errors of [`allocate`](ProtectionDomain::allocate); `Memory(Invalid)` also if ranges overlap or
    /// exceed their block.
    pub fn register_ranges(&self, ranges: &[Range], access: Access) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        MemoryRegion::new(self, ranges, access)
    }

    /// Allocates and registers `len` bytes of the NIC's own memory, which has 256 KiB in all unless
    /// configured otherwise.
    ///
    /// # Errors
    /// The errors of [`allocate`](ProtectionDomain::allocate); `Memory(Full)` also if the NIC's memory is
    /// exhausted.
    pub fn allocate_on_nic(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        self.register(&self.device().engine()?.table().on_nic(len)?, access)
    }

    /// Registers memory that the caller owns. The region has no accessors for this memory; it serves for its
    /// keys.
    ///
    /// # Errors
    /// The errors of [`allocate`](ProtectionDomain::allocate).
    ///
    /// # Safety
    /// Until the region is dropped, the `len` bytes from `start` stay mapped and readable, and writable if
    /// `access` allows any write. No Rust reference to them is used while a peer or a work request may access
    /// them.
    pub unsafe fn register_raw(
        &self,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        // SAFETY: the caller's promise; the region deregisters when it is dropped.
        unsafe { MemoryRegion::raw(self, start, len, access) }
    }

    /// Creates a queue pair, ready to be connected, whose completions go to these completion queues, which
    /// may be one and the same.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` with the name of an option that is out of bounds;
    /// `DifferentEngines` or `OtherContext` for unsuitable completion queues; `Nic(Full)`.
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        QueuePair::new(self, send_cq, receive_cq, Service::Rc, None, options)
    }

    /// Creates a queue pair that is connected to itself and ready to send. It works on the memory of this
    /// domain with the rights that the regions give to peers, and sends no packets. Only a loopback queue
    /// pair has the calculation operations.
    ///
    /// ```
    /// use remora_verbs::{Access, Calculation, Device, EMPTY, QpOptions, work};
    ///
    /// let context = Device::shm().open()?;
    /// let domain = context.alloc_pd()?;
    /// let mut cq = context.create_cq(16)?;
    /// let memory = domain.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)?;
    /// memory.put(0, &7_u64)?;
    ///
    /// let mut chain = domain.create_loopback(&cq, &cq, &QpOptions::default())?;
    /// chain.post_send(&work::calculate(1, &[memory.sge(8, 8)], memory.remote(0), Calculation::Max, 9))?;
    /// cq.wait(&mut [EMPTY; 1], std::time::Duration::from_secs(1))?;
    /// assert_eq!((memory.get::<u64>(0)?, memory.get::<u64>(8)?), (9, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_loopback(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair, CreateError> {
        QueuePair::loopback(self, send_cq, receive_cq, options)
    }

    /// Like [`create_qp`](ProtectionDomain::create_qp), with receive work requests from a shared receive
    /// queue.
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_qp_on(
        &self,
        srq: &Srq,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        QueuePair::new(self, send_cq, receive_cq, Service::Rc, Some(srq), options)
    }

    /// Creates a queue pair of the unreliable connection service. A message arrives whole or not at all, and
    /// the sender does not learn which. The service has no READs, atomics or retries, and ignores their
    /// options.
    ///
    /// ```
    /// # use remora_verbs::{Access, Device, EMPTY, QpOptions, QueuePair, work};
    /// # let context = Device::shm().open()?;
    /// # let domain = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(64)?;
    /// let pair = || domain.create_unreliable_qp(&cq, &cq, &QpOptions::default());
    /// let (mut one, _two) = QueuePair::connect_pair(pair()?, pair()?)?;
    /// let there = domain.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// one.post_send(&work::write_inline(1, b"it left", there.remote(0)))?;
    /// // That it has completed does not say that it has arrived.
    /// cq.wait(&mut [EMPTY; 1], std::time::Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_unreliable_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        QueuePair::new(self, send_cq, receive_cq, Service::Uc, None, options)
    }

    /// Creates the initiator of an extended reliable connection. It sends to shared receive queues, which
    /// each work request names.
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_xrc_initiator(
        &self,
        cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<XrcInitiator<Init>, CreateError> {
        QueuePair::new(self, cq, cq, Service::XrcInitiator, None, options).map(XrcInitiator::new)
    }

    /// Creates a queue pair for datagrams, ready to send and receive.
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_datagram_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<DatagramQueuePair, CreateError> {
        DatagramQueuePair::new(self, send_cq, receive_cq, None, options, Command::CreateQp)
    }

    /// Creates queue pair 1 of an engine, for the general services interface (GSI), to which the datagrams of
    /// connection managers come. Its Q_Key is always [`GSI_QKEY`]. An engine has at most one.
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp); `Nic(Busy)` if the engine has a queue pair
    /// 1.
    pub fn create_gsi_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<DatagramQueuePair, CreateError> {
        let options = QpOptions { qkey: GSI_QKEY, ..options.clone() };
        DatagramQueuePair::new(self, send_cq, receive_cq, None, &options, Command::CreateGsiQp)
    }

    /// Like [`create_datagram_qp`](ProtectionDomain::create_datagram_qp), with receive work requests from a
    /// shared receive queue.
    ///
    /// # Errors
    /// The errors of [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_datagram_qp_on(
        &self,
        srq: &Srq,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<DatagramQueuePair, CreateError> {
        DatagramQueuePair::new(self, send_cq, receive_cq, Some(srq), options, Command::CreateQp)
    }

    /// Creates an address handle of engine `engine` for the NIC at `endpoint` (address, that is GID, and UDP
    /// port, 4791 for RoCE), or for a multicast group. Over shared memory, where an address does not lead to
    /// a peer, use [`DatagramQueuePair::resolve`] instead.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Unreachable`; `TooMany` if there is no such engine; `Nic(Full)`.
    pub fn create_address_handle(
        &self,
        engine: usize,
        endpoint: Endpoint,
    ) -> Result<AddressHandle, CreateError> {
        self.context().refuse_child()?;
        AddressHandle::to_endpoint(self, engine, endpoint)
    }

    /// Creates a shared receive queue of this domain.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` with the name of an option that is out of bounds; `Nic(Full)`.
    pub fn create_srq(&self, options: &SrqOptions) -> Result<Srq, CreateError> {
        Srq::new(self, options)
    }

    /// Creates a PRISM free list over `count` buffers of `size` bytes in a region, beginning at `offset`. A
    /// buffer is free only after it was [posted](FreeList::post).
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` with the name of an option that is out of bounds;
    /// `Nic(TooSmall)` if the buffers exceed the region; `Nic(Full)`.
    pub fn create_free_list(
        &self,
        region: &MemoryRegion,
        options: &FreeListOptions,
    ) -> Result<FreeList, CreateError> {
        FreeList::new(self, region, options)
    }

    /// Deploys a StRoM kernel on the NIC, with one lane for each entry of `kernels`. A lane serves one queue
    /// pair at a time. The kernel serves requests from now on. A NIC daemon takes only modules
    /// ([`deploy_module`](ProtectionDomain::deploy_module)) and the shipped kernels
    /// ([`deploy_shipped`](ProtectionDomain::deploy_shipped)).
    ///
    /// # Errors
    /// `Forked` in a forked child; `NotByDaemon`; `TooMany` if there is no such engine, or the memory for
    /// answers is out of bounds; `Memory` if that memory cannot be allocated; `Nic(Busy)` if the op-code is
    /// taken in this domain; `Nic(Full)` if there are as many kernels as are allowed; `Nic(TooSmall)` if
    /// `kernels` is empty.
    pub fn deploy_kernel(
        &self,
        kernels: Vec<Box<dyn Kernel>>,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        KernelHandle::new(self, kernels, options)
    }

    /// Deploys a shipped kernel with `lanes` lanes, as [`deploy_kernel`](ProtectionDomain::deploy_kernel)
    /// does. A daemon's NIC takes it too, and runs it after this program has ended if the daemon keeps the
    /// tenant.
    ///
    /// # Errors
    /// The errors of [`deploy_kernel`](ProtectionDomain::deploy_kernel); `Daemon` if the daemon refuses.
    pub fn deploy_shipped(
        &self,
        kernel: Shipped,
        lanes: u32,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        KernelHandle::shipped(self, kernel, lanes, options)
    }

    /// Deploys a kernel of the user's own that is a module, as
    /// [`deploy_kernel`](ProtectionDomain::deploy_kernel) does. A daemon's NIC takes it too, if the daemon
    /// has a loader.
    ///
    /// # Errors
    /// The errors of [`deploy_kernel`](ProtectionDomain::deploy_kernel), except `NotByDaemon`; `Module` if
    /// the module cannot be loaded; `Daemon` if the daemon refuses it; `Limit` if its lanes need more memory
    /// than the user may have.
    pub fn deploy_module(
        &self,
        module: &KernelModule<'_>,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        KernelHandle::of_module(self, module, options)
    }

    /// Allocates `count` buffers, up to 4096, of `size` bytes for the answers of kernels at peers.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany`; `Memory`.
    pub fn create_answers(&self, count: u32, size: u32) -> Result<AnswerBuffers, CreateError> {
        AnswerBuffers::new(self, count, size)
    }

    /// Creates a shared receive queue of an XRC domain. Messages in it complete on `cq`. Peers access memory
    /// of this protection domain through it.
    ///
    /// # Errors
    /// The errors of [`create_srq`](ProtectionDomain::create_srq); `DifferentEngines` if `cq` is on another
    /// engine than the XRC domain.
    pub fn create_xrc_srq(
        &self,
        xrc: &XrcDomain,
        cq: &CompletionQueue,
        options: &SrqOptions,
    ) -> Result<Srq, CreateError> {
        Srq::of_xrc(self, xrc, cq, options)
    }

    /// Allocates a memory window, bound to nothing yet.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Memory(Full)`.
    pub fn allocate_window(&self, kind: WindowType) -> Result<MemoryWindow, CreateError> {
        MemoryWindow::new(self, kind)
    }

    /// Allocates a null region, for gaps in scatter/gather lists.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Memory(Full)`.
    pub fn null_region(&self) -> Result<NullRegion, CreateError> {
        NullRegion::new(self)
    }
}
