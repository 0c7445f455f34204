//! The rights of the peer.

/// Which one-sided operations the queue pair lets its peer do (`qp_access_flags`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// RDMA WRITE.
    pub write: bool,
    /// RDMA READ.
    pub read: bool,
    /// Atomics.
    pub atomic: bool,
}
