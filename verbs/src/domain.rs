//! Protection domains: what belongs together. A key of one domain opens nothing in another.

use memory::{Access, Bytes, Pd, Range};
use std::sync::Arc;

use crate::queue_pair::{Init, QpOptions};
use crate::{CompletionQueue, Context, CreateError, MemoryRegion, QueuePair};

/// A protection domain. Cloning shares it; regions and queue pairs keep it alive.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    pd: Pd,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.context.fork().is_child() {
            let freed = self.context.adapter().table().free_pd(self.pd);
            debug_assert!(freed.is_ok(), "regions and queue pairs hold the domain");
        }
    }
}

impl ProtectionDomain {
    pub(crate) fn new(context: &Context) -> Result<ProtectionDomain, CreateError> {
        context.refuse_child()?;
        let pd = context.adapter().table().alloc_pd()?;
        Ok(ProtectionDomain { inner: Arc::new(Inner { context: context.clone(), pd }) })
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn pd(&self) -> Pd {
        self.inner.pd
    }

    /// `len` bytes of fresh, zeroed memory, registered under their own address.
    ///
    /// # Errors
    /// `Forked`; `Memory`: no memory, no place in the table, or rights that cannot be given (peers may not write where the
    /// owner may not).
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register(&Bytes::heap(len)?, access)
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
    /// As [`allocate`](ProtectionDomain::allocate); `Memory(Invalid)` also if ranges overlap or leave their block.
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
        self.register(&self.context().adapter().table().on_nic(len)?, access)
    }

    /// Registers memory that somebody else owns. The region has no accessors for it: only its keys are of use.
    ///
    /// # Errors
    /// As [`allocate`](ProtectionDomain::allocate).
    ///
    /// # Safety
    /// Until the region is dropped, `len` bytes from `start` on stay mapped, readable and, if `access` allows any write,
    /// writable; and no Rust reference to them is used while a peer or a work request may touch them.
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
    /// `Forked`; `TooMany` names a value that is out of bounds; `DifferentEngines`, `OtherContext`: the completion queues;
    /// `Nic(Full)`.
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        self.context().refuse_child()?;
        QueuePair::new(self, send_cq, receive_cq, options)
    }
}
