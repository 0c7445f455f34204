//! The kinds of ports.

use std::fmt;

/// The kind of a NIC's port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PortKind {
    /// Rings in shared memory.
    Shm,
    /// UDP sockets, one for each engine.
    Udp,
    /// A network interface by AF_XDP.
    Xdp,
}

impl PortKind {
    /// Returns whether frames of one port reach the other. All kinds but shared memory send RoCE v2 on the
    /// network.
    pub fn reaches(self, other: PortKind) -> bool {
        (self == PortKind::Shm) == (other == PortKind::Shm)
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Shm => "shm",
            PortKind::Udp => "udp",
            PortKind::Xdp => "xdp",
        })
    }
}
