//! The one-sided operations that a queue pair grants its peer.

/// One-sided operations that the peer may execute (`qp_access_flags`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// RDMA WRITE.
    pub write: bool,
    /// RDMA READ.
    pub read: bool,
    /// Atomics.
    pub atomic: bool,
}
