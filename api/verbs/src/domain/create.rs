//! The objects that a protection domain makes.

use remora_memory::{Access, Bytes, Range, WindowType};
use remora_nic::{GSI_QKEY, Nic, Service};
use remora_wire::frame::Endpoint;

use crate::kernel::{Kernel, Shipped};
use crate::nicd::message::Allocate;
use crate::queue_pair::{Init, QpOptions};
use crate::{
    AddressHandle, AnswerBuffers, CompletionQueue, CreateError, DatagramQueuePair, FreeList, FreeListOptions,
    KernelHandle, KernelOptions, MemoryRegion, MemoryWindow, NullRegion, QueuePair, Srq, SrqOptions,
    XrcDomain, XrcInitiator,
};

use super::ProtectionDomain;

impl ProtectionDomain {
    /// `len` bytes of fresh, zeroed memory, registered under their own address.
    ///
    /// # Errors
    /// `Forked`; `Memory`: no memory, no entry left in the table, or rights that cannot be given (peers may
    /// not write where the owner may not).
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.allocate_named("", len, access)
    }

    /// As [`allocate`](ProtectionDomain::allocate), under a name. By the name the program finds the region
    /// again when a daemon has kept it ([`Context::kept`](crate::Context::kept)).
    ///
    /// # Errors
    /// As [`allocate`](ProtectionDomain::allocate); `Daemon`: also if there is a region of this name.
    pub fn allocate_named(
        &self,
        name: &str,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        let Some(daemon) = self.context().daemon() else { return self.register(&Bytes::heap(len)?, access) };
        let (domain, name) = (self.number()?, name.to_owned());
        let (facts, bytes) =
            daemon.allocate(Allocate { domain, len: len as u64, access: access.bits(), name })?;
        Ok(MemoryRegion::lent(self, &facts, bytes))
    }

    /// Registers a whole block under its own address.
    ///
    /// # Errors
    /// As [`allocate`](ProtectionDomain::allocate).
    pub fn register(&self, bytes: &Bytes, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register_ranges(&[Range::whole(bytes)], access)
    }

    /// Registers several ranges under one key. The region's accessors read and write the first.
    ///
    /// # Errors
    /// As [`allocate`](ProtectionDomain::allocate); `Memory(Invalid)` also if ranges overlap or leave their
    /// block.
    pub fn register_ranges(&self, ranges: &[Range], access: Access) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        MemoryRegion::new(self, ranges, access)
    }

    /// `len` bytes of the NIC's own memory (256 KiB in all, unless configured otherwise), registered.
    ///
    /// # Errors
    /// As [`allocate`](ProtectionDomain::allocate); `Memory(Full)` also when the NIC's memory is used up.
    pub fn allocate_on_nic(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.context().refuse_child()?;
        self.register(&self.context().adapter()?.table().on_nic(len)?, access)
    }

    /// Registers memory that the caller owns. The region has no accessors for it: only its keys are of
    /// use.
    ///
    /// # Errors
    /// As [`allocate`](ProtectionDomain::allocate).
    ///
    /// # Safety
    /// Until the region is dropped, `len` bytes from `start` on stay mapped, readable and, if `access` allows
    /// any write, writable; and no Rust reference to them is used while a peer or a work request may touch
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

    /// A queue pair, ready to be connected, whose completions go to these queues (which may be one).
    ///
    /// # Errors
    /// `Forked`; `TooMany` names a value that is out of bounds; `DifferentEngines`, `OtherContext`: the
    /// completion queues; `Nic(Full)`.
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        QueuePair::new(self, send_cq, receive_cq, Service::Rc, None, options)
    }

    /// A queue pair that is connected to itself, ready to send. It works on the memory of this domain, with
    /// the rights that regions give peers, and without packets. Only a loopback queue pair has the
    /// calculations.
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
    /// As [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_loopback(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair, CreateError> {
        QueuePair::loopback(self, send_cq, receive_cq, options)
    }

    /// As [`create_qp`](ProtectionDomain::create_qp), with receives from a shared receive queue.
    ///
    /// # Errors
    /// As [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_qp_on(
        &self,
        srq: &Srq,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        QueuePair::new(self, send_cq, receive_cq, Service::Rc, Some(srq), options)
    }

    /// A queue pair of the unreliable connection service: a message arrives whole or not at all, and its
    /// sender does not learn which. READs, atomics and retries do not exist there; the options for them mean
    /// nothing.
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
    /// As [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_unreliable_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        QueuePair::new(self, send_cq, receive_cq, Service::Uc, None, options)
    }

    /// The initiator of an extended reliable connection: it sends, to shared receive queues that each request
    /// names.
    ///
    /// # Errors
    /// As [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_xrc_initiator(
        &self,
        cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<XrcInitiator<Init>, CreateError> {
        QueuePair::new(self, cq, cq, Service::XrcInitiator, None, options).map(XrcInitiator::new)
    }

    /// A queue pair for datagrams, ready to send and receive.
    ///
    /// # Errors
    /// As [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_datagram_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<DatagramQueuePair, CreateError> {
        DatagramQueuePair::new(self, send_cq, receive_cq, None, options, Nic::create_qp)
    }

    /// Queue pair 1 of an engine, that of the general services interface (GSI): the datagrams of connection
    /// managers come to it. Its Q_Key is always [`GSI_QKEY`]. An engine has one at most.
    ///
    /// # Errors
    /// As [`create_qp`](ProtectionDomain::create_qp); `Nic(Busy)`: there is one.
    pub fn create_gsi_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<DatagramQueuePair, CreateError> {
        let options = QpOptions { qkey: GSI_QKEY, ..options.clone() };
        DatagramQueuePair::new(self, send_cq, receive_cq, None, &options, Nic::create_gsi_qp)
    }

    /// As [`create_datagram_qp`](ProtectionDomain::create_datagram_qp), with the receives of a shared receive
    /// queue.
    ///
    /// # Errors
    /// As [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_datagram_qp_on(
        &self,
        srq: &Srq,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<DatagramQueuePair, CreateError> {
        DatagramQueuePair::new(self, send_cq, receive_cq, Some(srq), options, Nic::create_qp)
    }

    /// An address handle of engine `engine` for the NIC called `endpoint` (address, that is GID, and UDP
    /// port; RoCE's is 4791), or for a multicast group. Over shared memory, where addresses do not lead
    /// anywhere by themselves, use [`DatagramQueuePair::resolve`].
    ///
    /// # Errors
    /// `Forked`; `Unreachable`; `TooMany`: the engine's number; `Nic(Full)`.
    pub fn create_address_handle(
        &self,
        engine: usize,
        endpoint: Endpoint,
    ) -> Result<AddressHandle, CreateError> {
        self.context().refuse_child()?;
        AddressHandle::to_endpoint(self, engine, endpoint)
    }

    /// A shared receive queue of this domain.
    ///
    /// # Errors
    /// `Forked`; `TooMany` names a value that is out of bounds; `Nic(Full)`.
    pub fn create_srq(&self, options: &SrqOptions) -> Result<Srq, CreateError> {
        Srq::new(self, options)
    }

    /// A free list of PRISM over `count` buffers of `size` bytes in a region, from `offset` on. None is free
    /// before it is [posted](FreeList::post).
    ///
    /// # Errors
    /// `Forked`; `TooMany` names a value that is out of bounds; `Nic(TooSmall)` if the buffers do not lie in
    /// the region; `Nic(Full)`.
    pub fn create_free_list(
        &self,
        region: &MemoryRegion,
        options: &FreeListOptions,
    ) -> Result<FreeList, CreateError> {
        FreeList::new(self, region, options)
    }

    /// Deploys a kernel of StRoM on the NIC, with as many lanes as there are `kernels`: each serves one queue
    /// pair at a time. It serves from now on. A NIC daemon takes only the kernels that ship:
    /// [`deploy_shipped`](ProtectionDomain::deploy_shipped).
    ///
    /// # Errors
    /// `Forked`; `NotByDaemon`; `TooMany`: the engine's number, or memory for answers; `Memory`: there is not
    /// so much; `Nic(Busy)`: the op-code is taken in this domain; `Nic(Full)`: as many kernels as there may
    /// be; `Nic(TooSmall)`: no lanes.
    pub fn deploy_kernel(
        &self,
        kernels: Vec<Box<dyn Kernel>>,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        KernelHandle::new(self, kernels, options)
    }

    /// Deploys a kernel that ships, with so many lanes, as [`deploy_kernel`](ProtectionDomain::deploy_kernel)
    /// does. A daemon's NIC takes it too, and runs it on when this program is gone, if the daemon keeps its
    /// tenant.
    ///
    /// # Errors
    /// As [`deploy_kernel`](ProtectionDomain::deploy_kernel); `Daemon`: its refusal.
    pub fn deploy_shipped(
        &self,
        kernel: Shipped,
        lanes: u32,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        KernelHandle::shipped(self, kernel, lanes, options)
    }

    /// `count` buffers of `size` bytes for the answers of kernels at peers, up to 4096.
    ///
    /// # Errors
    /// `Forked`; `TooMany`; `Memory`.
    pub fn create_answers(&self, count: u32, size: u32) -> Result<AnswerBuffers, CreateError> {
        AnswerBuffers::new(self, count, size)
    }

    /// A shared receive queue of an XRC domain. Messages in it complete on `cq`; peers access memory of this
    /// protection domain through it.
    ///
    /// # Errors
    /// As [`create_srq`](ProtectionDomain::create_srq); `DifferentEngines` if `cq` is not on the domain's.
    pub fn create_xrc_srq(
        &self,
        xrc: &XrcDomain,
        cq: &CompletionQueue,
        options: &SrqOptions,
    ) -> Result<Srq, CreateError> {
        Srq::of_xrc(self, xrc, cq, options)
    }

    /// A memory window, bound to nothing yet.
    ///
    /// # Errors
    /// `Forked`; `Memory(Full)`.
    pub fn allocate_window(&self, kind: WindowType) -> Result<MemoryWindow, CreateError> {
        MemoryWindow::new(self, kind)
    }

    /// The null region, for gaps in lists of local memory.
    ///
    /// # Errors
    /// `Forked`; `Memory(Full)`.
    pub fn null_region(&self) -> Result<NullRegion, CreateError> {
        NullRegion::new(self)
    }
}
