//! The limits of a user.

/// The limits of one user, over all of its programs and kept tenants.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains at a time.
    pub domains: usize,
    /// Regions at a time.
    pub regions: usize,
    /// Completion queues at a time.
    pub queues: usize,
    /// Completion channels at a time.
    pub channels: usize,
    /// Queue pairs at a time.
    pub pairs: usize,
    /// Kernels; the NIC has 32 for all users.
    pub kernels: usize,
    /// Bytes of regions and queues.
    pub bytes: u64,
    /// Connections being set up.
    pub negotiations: usize,
    /// Command portals of 1RMA.
    pub rma_portals: usize,
    /// Command slots of 1RMA: users share the NIC in proportion to them.
    pub rma_slots: usize,
    /// Command slots of portals that may issue commands of the latency class.
    pub rma_latency_slots: usize,
    /// Regions of 1RMA.
    pub rma_regions: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            domains: 256,
            regions: 1024,
            queues: 256,
            channels: 256,
            pairs: 1024,
            kernels: 8,
            bytes: 4 << 30,
            negotiations: 64,
            rma_portals: 16,
            rma_slots: 256,
            rma_latency_slots: 256,
            rma_regions: 1024,
        }
    }
}
