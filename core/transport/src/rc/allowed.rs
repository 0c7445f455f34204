//! The one-sided operations that a queue pair grants its peer.

/// One-sided operations that the peer may execute (`qp_access_flags`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// RDMA WRITE to remote memory.
    pub write: bool,
    /// RDMA READ of remote memory.
    pub read: bool,
    /// CAS and fetch-and-add.
    pub atomic: bool,
}
