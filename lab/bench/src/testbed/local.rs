//! Two NICs of this process, with a connection between them.

use anyhow::Result;
use remora_verbs::{
    Access, CompletionQueue, Context, Device, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ready,
};

/// A NIC of the two in this process, with its memory.
pub(crate) struct LocalNic {
    domain: ProtectionDomain,
    /// Completion queue of all queue pairs.
    pub cq: CompletionQueue,
    /// Memory from which this NIC writes to the other one.
    pub local: MemoryRegion,
    /// Memory that the other NIC writes.
    pub target: MemoryRegion,
    _context: Context,
}

impl LocalNic {
    /// Opens a NIC with a completion queue of the given length and two memory regions of `len` bytes each.
    ///
    /// # Errors
    /// Fails if the NIC cannot be opened.
    pub(crate) fn open(device: Device, completions: u32, len: usize) -> Result<LocalNic> {
        let context = device.open()?;
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(completions)?;
        let local = domain.allocate(len, Access::LOCAL_WRITE)?;
        let target = domain.allocate(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        crate::touch(&local)?;
        crate::touch(&target)?;
        Ok(LocalNic { domain, cq, local, target, _context: context })
    }

    /// Connects two NICs and returns the queue pair of each.
    ///
    /// # Errors
    /// Fails if a NIC reports an error.
    pub(crate) fn connect(nics: [&LocalNic; 2], options: &QpOptions) -> Result<[QueuePair<Ready>; 2]> {
        let [one, other] = nics.map(|nic| nic.domain.create_qp(&nic.cq, &nic.cq, options));
        let (one, other) = QueuePair::connect_pair(one?, other?)?;
        Ok([one, other])
    }
}
