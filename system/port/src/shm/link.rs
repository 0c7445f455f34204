//! A link: the two rings between two NICs, with the descriptors that belong to them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::ends::{Receiver, Sender};
use super::map::{Half, Map};
use super::ring::{Broken, Geometry};

/// An end of a link between two NICs, to be added to a port by `ShmPort::add_link`.
#[derive(Debug)]
pub struct Link {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// The descriptors; `None` on a link from a NIC to itself.
    pub(super) wires: Option<Wires>,
    /// Buffer for a private copy of a frame before it is parsed; present if the peer is a process of
    /// another user.
    private: Option<Box<[u8]>>,
}

/// The descriptors of a link between processes.
#[derive(Debug)]
pub(super) struct Wires {
    /// Open as long as the peer holds the link; nothing is sent over the socket after the set-up.
    pub(super) socket: OwnedFd,
    /// Readable when the process of the peer has ended, even if a child of that process still holds the
    /// socket.
    pub(super) process: Option<OwnedFd>,
    /// Eventfd that is written to wake the peer.
    pub(super) wake_peer: OwnedFd,
    /// Eventfd that is readable after the peer has woken this side.
    pub(super) wake_self: OwnedFd,
}

/// The end of a link that this process has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The end of the link's creator, which sends on ring 0.
    Maker,
    /// The other end, which sends on ring 1.
    Taker,
}

impl Link {
    pub(super) fn new(map: &Arc<Map>, side: Side, wires: Option<Wires>, stranger: bool) -> Link {
        let out = usize::from(side == Side::Taker);
        let sending = Half::new(map, out);
        let largest = sending.geometry().max_frame() as usize;
        Link {
            sender: Sender::new(sending),
            receiver: Receiver::new(Half::new(map, 1 - out)),
            wires,
            private: stranger.then(|| vec![0; largest].into_boxed_slice()),
        }
    }

    /// Creates a link from a NIC to itself: the NIC receives its own frames.
    pub fn loopback(geometry: Geometry) -> Result<Link, Errno> {
        let (sender, receiver) = super::ends::ring(geometry)?;
        Ok(Link { sender, receiver, wires: None, private: None })
    }

    /// Returns the geometry of both rings.
    pub fn geometry(&self) -> Geometry {
        self.sender.geometry()
    }

    /// Returns the bare sending and receiving rings, to measure the lower bound of the port's cost.
    pub fn rings(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// Passes the oldest frame to `take` and returns its length; `Ok(None)` if there is none. Frames of a
    /// process of another user are copied first, so that the process cannot change them while they are
    /// read.
    #[inline]
    pub(super) fn receive(&mut self, take: impl FnOnce(&[u8])) -> Result<Option<usize>, Broken> {
        match &mut self.private {
            None => self.receiver.receive(take),
            Some(private) => self.receiver.receive_copied(private, take),
        }
    }
}
