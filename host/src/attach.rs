//! What a host needs of a port beyond frames: how peers come and go. Each kind of port has its own ways.

use port::capture::Capture;
use port::fault::Fault;
use port::shm::{Limits, Link, ShmPort};
use port::udp::UdpPort;
use port::{Counters, Endpoint, Peer, Port};
use std::fmt;

/// Which kind of port a NIC has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Rings in shared memory.
    Shm,
    /// UDP sockets.
    Udp,
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Shm => "shm",
            PortKind::Udp => "udp",
        })
    }
}

/// Why a peer could not be made usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The port is of another kind.
    WrongKind(PortKind),
    /// The port's own words.
    Port(String),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::WrongKind(kind) => {
                write!(f, "this NIC's port is {kind}: the peer needs one of the same kind")
            }
            AttachError::Port(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for AttachError {}

/// A port whose peers come and go. Control path only, so it may be a trait object there.
pub trait Attach {
    /// Which kind it is.
    fn kind(&self) -> PortKind;

    /// What happened at it so far.
    fn port_counters(&self) -> Counters;

    /// Makes the peer at the other end of a shared-memory link usable.
    ///
    /// # Errors
    /// The port is no `shm`, or takes no more links.
    fn add_link(&mut self, _link: Link) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// Makes the peer of this name usable.
    ///
    /// # Errors
    /// The port is no `udp`, cannot reach it, or takes no more peers.
    fn add_endpoint(&mut self, _peer: Endpoint) -> Result<Peer, AttachError> {
        Err(AttachError::WrongKind(self.kind()))
    }

    /// No queue pair names `peer` any more, and none will.
    fn remove(&mut self, _peer: Peer) {}

    /// A peer that died and was not reported yet.
    fn take_lost(&mut self) -> Option<Peer> {
        None
    }

    /// Peers that it can have at once.
    fn max_peers(&self) -> usize;

    /// Packets that a queue pair may have in flight without overflowing what this port's receiving side can hold.
    fn window(&self) -> u32;
}

/// Packets in flight per queue pair over shared memory, where the rings themselves push back.
const SHM_WINDOW: u32 = 256;

impl Attach for ShmPort {
    fn kind(&self) -> PortKind {
        PortKind::Shm
    }

    fn port_counters(&self) -> Counters {
        self.counters()
    }

    fn add_link(&mut self, link: Link) -> Result<Peer, AttachError> {
        ShmPort::add_link(self, link).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn remove(&mut self, peer: Peer) {
        self.remove_link(peer);
    }

    fn take_lost(&mut self) -> Option<Peer> {
        ShmPort::take_lost(self)
    }

    fn max_peers(&self) -> usize {
        Limits::default().links as usize
    }

    fn window(&self) -> u32 {
        SHM_WINDOW
    }
}

/// Bytes that the kernel counts for a frame of 4 KiB payload while it waits in a socket: what it holds by its own
/// reckoning, not ours.
const KERNEL_FRAME: usize = 8 << 10;

impl Attach for UdpPort {
    fn kind(&self) -> PortKind {
        PortKind::Udp
    }

    fn port_counters(&self) -> Counters {
        self.counters()
    }

    fn add_endpoint(&mut self, peer: Endpoint) -> Result<Peer, AttachError> {
        self.peer(peer).map_err(|error| AttachError::Port(error.to_string()))
    }

    fn max_peers(&self) -> usize {
        port::udp::Options::default().max_peers as usize
    }

    /// What our own socket can hold stands for the peer's, which is most likely set up alike. What is more is lost, and
    /// sent again.
    fn window(&self) -> u32 {
        (self.socket().receive_buffer() / KERNEL_FRAME).clamp(8, 4096) as u32
    }
}

/// A wrapped port has the peers of the port inside.
macro_rules! attach_inside {
    ($wrapper:ident) => {
        impl<P: Port + Attach> Attach for $wrapper<P> {
            fn kind(&self) -> PortKind {
                self.port().kind()
            }

            fn port_counters(&self) -> Counters {
                self.counters()
            }

            fn add_link(&mut self, link: Link) -> Result<Peer, AttachError> {
                self.port_mut().add_link(link)
            }

            fn add_endpoint(&mut self, peer: Endpoint) -> Result<Peer, AttachError> {
                self.port_mut().add_endpoint(peer)
            }

            fn remove(&mut self, peer: Peer) {
                Attach::remove(self.port_mut(), peer);
            }

            fn take_lost(&mut self) -> Option<Peer> {
                Attach::take_lost(self.port_mut())
            }

            fn max_peers(&self) -> usize {
                self.port().max_peers()
            }

            fn window(&self) -> u32 {
                Attach::window(self.port())
            }
        }
    };
}

attach_inside!(Capture);
attach_inside!(Fault);
