//! The machines of a queue pair. Which of them it has is decided on the way to RTR (`queue_pair/modify.rs`).

use remora_transport::rc::{Requester, Responder};

use crate::context::WqeContext;
use crate::irn::Irn;
use crate::path::PeerPath;
use crate::unreliable::Unreliable;

/// The machines of a reliable connection that recovers by go-back-N, also of XRC.
pub(crate) struct Connection {
    pub path: PeerPath,
    pub requester: Requester<WqeContext>,
    pub responder: Responder,
}

/// The machines of a queue pair.
#[allow(
    clippy::large_enum_variant,
    reason = "a queue pair is boxed; RC, the busiest, is spared a second pointer"
)]
pub(crate) enum Machine {
    /// None yet: the queue pair is not ready to receive.
    Unconnected,
    /// A reliable connection over go-back-N.
    Rc(Connection),
    /// A reliable connection over IRN.
    Irn(Box<Irn>),
    /// An unreliable connection, or datagrams.
    Unreliable(Unreliable),
    /// The queue pair is its own peer, without packets.
    Loopback,
}

impl Machine {
    /// Is it a reliable connection over go-back-N?
    #[inline(always)]
    pub fn is_rc(&self) -> bool {
        matches!(self, Machine::Rc(_))
    }

    /// Is it a reliable connection over IRN?
    #[inline(always)]
    pub fn is_irn(&self) -> bool {
        matches!(self, Machine::Irn(_))
    }

    /// Is it one of an unreliable service?
    #[inline(always)]
    pub fn is_unreliable(&self) -> bool {
        matches!(self, Machine::Unreliable(_))
    }

    /// Is the queue pair its own peer?
    #[inline(always)]
    pub fn is_loopback(&self) -> bool {
        matches!(self, Machine::Loopback)
    }

    /// The reliable connection over go-back-N, if it is one.
    #[inline(always)]
    pub fn rc(&self) -> Option<&Connection> {
        if let Machine::Rc(connection) = self { Some(connection) } else { None }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn rc_mut(&mut self) -> Option<&mut Connection> {
        if let Machine::Rc(connection) = self { Some(connection) } else { None }
    }

    /// The reliable connection over IRN, if it is one.
    #[inline(always)]
    pub fn irn(&self) -> Option<&Irn> {
        if let Machine::Irn(irn) = self { Some(irn) } else { None }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn irn_mut(&mut self) -> Option<&mut Irn> {
        if let Machine::Irn(irn) = self { Some(irn) } else { None }
    }

    /// The machines of an unreliable service, if it is one.
    #[inline(always)]
    pub fn unreliable(&self) -> Option<&Unreliable> {
        if let Machine::Unreliable(unreliable) = self { Some(unreliable) } else { None }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn unreliable_mut(&mut self) -> Option<&mut Unreliable> {
        if let Machine::Unreliable(unreliable) = self { Some(unreliable) } else { None }
    }

    /// How often the peer had no receive for a message (RNR NAK).
    pub fn rnr_waits(&self) -> u32 {
        match self {
            Machine::Rc(connection) => connection.requester.rnr_waits(),
            Machine::Irn(irn) => irn.requester.rnr_waits(),
            _ => 0,
        }
    }

    /// Packets of submitted requests that were not sent even once.
    pub fn backlog(&self) -> u64 {
        match self {
            Machine::Rc(connection) => connection.requester.backlog(),
            Machine::Irn(irn) => irn.requester.backlog(),
            _ => 0,
        }
    }

    /// The path to the peer of a connection.
    #[inline]
    pub fn path(&self) -> Option<&PeerPath> {
        match self {
            Machine::Rc(connection) => Some(&connection.path),
            Machine::Irn(irn) => Some(&irn.path),
            Machine::Unreliable(Unreliable::Connected(connected)) => Some(&connected.path),
            _ => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    pub fn path_mut(&mut self) -> Option<&mut PeerPath> {
        match self {
            Machine::Rc(connection) => Some(&mut connection.path),
            Machine::Irn(irn) => Some(&mut irn.path),
            Machine::Unreliable(Unreliable::Connected(connected)) => Some(&mut connected.path),
            _ => None,
        }
    }
}
