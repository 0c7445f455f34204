//! A link: the two rings between two NICs, and the descriptors that come with them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::ends::{Receiver, Sender};
use super::map::{Half, Map};
use super::ring::{Broken, Geometry};

/// One end of a link between two NICs, ready to be given to a port (`ShmPort::add_link`).
#[derive(Debug)]
pub struct Link {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// None on a link from a NIC to itself.
    pub(super) wires: Option<Wires>,
    /// A private copy of a frame before it is parsed, if the peer is another user's process.
    private: Option<Box<[u8]>>,
}

/// The descriptors of a link between processes.
#[derive(Debug)]
pub(super) struct Wires {
    /// Open as long as the peer holds the link; nothing is sent over it after the set-up.
    pub(super) socket: OwnedFd,
    /// Readable when the peer's process has ended, though a child of it may still hold the socket.
    pub(super) process: Option<OwnedFd>,
    /// Written to wake the peer.
    pub(super) wake_peer: OwnedFd,
    /// Readable when the peer woke us.
    pub(super) wake_self: OwnedFd,
}

/// The end of a link's memory that this process has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The maker's end: it sends on ring 0.
    Maker,
    /// The taker's end: it sends on ring 1.
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

    /// A link from a NIC to itself: it receives its own frames.
    pub fn loopback(geometry: Geometry) -> Result<Link, Errno> {
        let (sender, receiver) = super::ends::ring(geometry)?;
        Ok(Link { sender, receiver, wires: None, private: None })
    }

    /// The shape of both rings.
    pub fn geometry(&self) -> Geometry {
        self.sender.geometry()
    }

    /// The bare rings, to send and to receive, without a port around them: the floor of benchmarks.
    pub fn rings(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// Hands the oldest frame to `take`; `Ok(None)`: there is none, else its length. Frames of another user's
    /// process are copied first, so that it cannot change them while they are read.
    #[inline]
    pub(super) fn receive(&mut self, take: impl FnOnce(&[u8])) -> Result<Option<usize>, Broken> {
        match &mut self.private {
            None => self.receiver.receive(take),
            Some(private) => self.receiver.receive_copied(private, take),
        }
    }
}
