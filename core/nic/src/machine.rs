//! The transport state machines of a queue pair. The transition to RTR selects them (`queue_pair/modify.rs`).

use remora_transport::rc::{Requester, Responder, Retired};
use remora_transport::{Counters, Instant, Status};

use crate::context::WqeContext;
use crate::irn::Irn;
use crate::path::PeerPath;
use crate::unreliable::Unreliable;

/// The state machines of a reliable connection with go-back-N, RC or XRC.
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
    /// RC with go-back-N on which nothing else was agreed. Its packets and turns ask no question about
    /// congestion control and offloads.
    Plain(Connection),
    /// A reliable connection with go-back-N: XRC, or RC with congestion control or an offload.
    Rc(Connection),
    /// A reliable connection with IRN.
    Irn(Box<Irn>),
    /// An unreliable connection (UC) or datagrams (UD).
    Unreliable(Unreliable),
    /// A loopback queue pair, which sends no packets.
    Loopback,
    /// No state machine before RTR.
    Unconnected,
}

impl Machine {
    /// Returns true for RC on which nothing else was agreed.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Machine::Plain(_))
    }

    /// Makes a connection with go-back-N [plain](Machine::Plain), or the other one.
    pub(crate) fn set_plain(&mut self, plain: bool) {
        if plain == self.is_plain() {
            return;
        }
        *self = match std::mem::replace(self, Machine::Unconnected) {
            Machine::Rc(connection) if plain => Machine::Plain(connection),
            Machine::Plain(connection) if !plain => Machine::Rc(connection),
            other => other,
        };
    }

    /// Returns true for a reliable connection with go-back-N.
    #[inline(always)]
    pub(crate) fn is_rc(&self) -> bool {
        matches!(self, Machine::Plain(_) | Machine::Rc(_))
    }

    /// Returns true for a reliable connection with IRN.
    #[inline(always)]
    pub(crate) fn is_irn(&self) -> bool {
        matches!(self, Machine::Irn(_))
    }

    /// Returns true for UC and UD.
    #[inline(always)]
    pub(crate) fn is_unreliable(&self) -> bool {
        matches!(self, Machine::Unreliable(_))
    }

    /// Returns true for a loopback queue pair.
    #[inline(always)]
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, Machine::Loopback)
    }

    /// Returns the go-back-N connection, if the queue pair has one.
    #[inline(always)]
    pub(crate) fn rc(&self) -> Option<&Connection> {
        if let Machine::Plain(connection) | Machine::Rc(connection) = self { Some(connection) } else { None }
    }

    /// Returns the go-back-N connection for modification.
    #[inline(always)]
    pub(crate) fn rc_mut(&mut self) -> Option<&mut Connection> {
        if let Machine::Plain(connection) | Machine::Rc(connection) = self { Some(connection) } else { None }
    }

    /// Returns the IRN connection, if the queue pair has one.
    #[inline(always)]
    pub(crate) fn irn(&self) -> Option<&Irn> {
        if let Machine::Irn(irn) = self { Some(irn) } else { None }
    }

    /// Returns the IRN connection for modification.
    #[inline(always)]
    pub(crate) fn irn_mut(&mut self) -> Option<&mut Irn> {
        if let Machine::Irn(irn) = self { Some(irn) } else { None }
    }

    /// Returns the state machine of an unreliable service, if the queue pair has one.
    #[inline(always)]
    pub(crate) fn unreliable(&self) -> Option<&Unreliable> {
        if let Machine::Unreliable(unreliable) = self { Some(unreliable) } else { None }
    }

    /// Returns the state machine of an unreliable service for modification.
    #[inline(always)]
    pub(crate) fn unreliable_mut(&mut self) -> Option<&mut Unreliable> {
        if let Machine::Unreliable(unreliable) = self { Some(unreliable) } else { None }
    }

    /// Returns the time at which `expire` is due. Always inlined, because it follows each turn.
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Instant {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.requester.deadline(),
            Machine::Irn(irn) => irn.deadline(),
            Machine::Unconnected | Machine::Unreliable(_) | Machine::Loopback => Instant::NEVER,
        }
    }

    /// Runs the timers that are due at `now`. All packets that arrived before `rx_drained_at` have been
    /// processed.
    pub(crate) fn expire(&mut self, now: Instant, rx_drained_at: Instant, counters: &mut Counters) {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => {
                connection.requester.expire(now, rx_drained_at, counters)
            }
            Machine::Irn(irn) => {
                irn.requester.expire(now, rx_drained_at, counters);
                irn.responder.expire(now, rx_drained_at, counters);
            }
            Machine::Unconnected | Machine::Unreliable(_) | Machine::Loopback => {}
        }
    }

    /// Returns the number of messages of a reliable connection that are submitted and not retired.
    pub(crate) fn outstanding(&self) -> usize {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.requester.outstanding(),
            Machine::Irn(irn) => irn.requester.outstanding(),
            Machine::Unconnected | Machine::Unreliable(_) | Machine::Loopback => 0,
        }
    }

    /// Removes and returns the oldest message of a send queue that is flushed.
    pub(crate) fn flush(&mut self) -> Option<Retired<WqeContext>> {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.requester.flush(),
            Machine::Irn(irn) => irn.requester.flush(),
            Machine::Unreliable(unreliable) => unreliable.end(Status::WrFlushed),
            Machine::Unconnected | Machine::Loopback => None,
        }
    }

    /// Enables PRISM at the responder, because the peer agreed on it. Returns false if the service has none.
    pub(crate) fn enable_prism(&mut self) -> bool {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.responder.enable_prism(),
            Machine::Irn(irn) => irn.responder.enable_prism(),
            Machine::Unconnected | Machine::Unreliable(_) | Machine::Loopback => return false,
        }
        true
    }

    /// Drops the answers that the responder keeps for a silent peer. Returns two flags: whether the answers
    /// are gone, and otherwise whether to try again later.
    pub(crate) fn forget(&mut self) -> (bool, bool) {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => (connection.responder.forget(), true),
            // Where no timer runs nothing is sent again, until the peer sends a packet.
            Machine::Irn(irn) => (irn.responder.forget(), irn.responder.repeats()),
            Machine::Unconnected | Machine::Unreliable(_) | Machine::Loopback => (true, false),
        }
    }

    /// Returns how often the peer had no receive work request for a message (RNR NAK).
    pub(crate) fn rnr_waits(&self) -> u32 {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.requester.rnr_waits(),
            Machine::Irn(irn) => irn.requester.rnr_waits(),
            _ => 0,
        }
    }

    /// Returns the number of packets of submitted requests that have not been sent for the first time.
    pub(crate) fn backlog(&self) -> u64 {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.requester.backlog(),
            Machine::Irn(irn) => irn.requester.backlog(),
            _ => 0,
        }
    }

    /// Returns the path to the peer of a connection.
    #[inline]
    pub(crate) fn path(&self) -> Option<&PeerPath> {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => Some(&connection.path),
            Machine::Irn(irn) => Some(&irn.path),
            Machine::Unreliable(Unreliable::Connected(connected)) => Some(&connected.path),
            _ => None,
        }
    }

    /// Returns the path to the peer for modification.
    #[inline]
    pub(crate) fn path_mut(&mut self) -> Option<&mut PeerPath> {
        match self {
            Machine::Plain(connection) | Machine::Rc(connection) => Some(&mut connection.path),
            Machine::Irn(irn) => Some(&mut irn.path),
            Machine::Unreliable(Unreliable::Connected(connected)) => Some(&mut connected.path),
            _ => None,
        }
    }
}
