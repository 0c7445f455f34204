//! The limits of one user of a daemon.

/// The greatest numbers of objects that one user may have at a time, summed over its programs and kept
/// tenants.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of protection domains.
    pub domains: usize,
    /// The number of memory regions.
    pub regions: usize,
    /// The number of completion queues.
    pub queues: usize,
    /// The number of completion channels.
    pub channels: usize,
    /// The number of queue pairs.
    pub pairs: usize,
    /// The number of address handles.
    pub handles: usize,
    /// The number of memory windows.
    pub windows: usize,
    /// The number of queue pairs that are attached to multicast groups.
    pub group_members: usize,
    /// StRoM kernels. The NIC has 32 for all users.
    pub kernels: usize,
    /// Free lists of PRISM. The NIC has 256 for all users.
    pub free_lists: usize,
    /// Memory of regions, queues, kernels and free lists, in bytes.
    pub bytes: u64,
    /// Connections that are being set up.
    pub negotiations: usize,
    /// Command portals of 1RMA.
    pub rma_portals: usize,
    /// Command slots of 1RMA. Users share the NIC in proportion to their slots.
    pub rma_slots: usize,
    /// Command slots that may carry commands of the latency class.
    pub rma_latency_slots: usize,
    /// Registered regions of 1RMA.
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
            handles: 1024,
            windows: 4096,
            group_members: 64,
            kernels: 8,
            free_lists: 64,
            bytes: 4 << 30,
            negotiations: 64,
            rma_portals: 16,
            rma_slots: 256,
            rma_latency_slots: 256,
            rma_regions: 1024,
        }
    }
}

impl Limits {
    /// The number of users of the port's peers: each queue pair and address handle is one, and as many may be
    /// set up at a time.
    pub(super) fn peers(&self) -> usize {
        self.pairs.saturating_add(self.handles).saturating_mul(2)
    }
}
