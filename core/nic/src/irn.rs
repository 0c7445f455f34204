//! State of a queue pair that uses IRN: its transport state machines, and the receive work requests that
//! messages have taken.
//!
//! `irn/bound.rs` holds the receive work requests that messages have taken but not completed.
//! `queue_pair/irn/ingress.rs` processes received packets, and `queue_pair/irn/egress.rs` sends packets.

mod bound;
#[cfg(test)]
mod state;

use remora_transport::Instant;
use remora_transport::rc::irn::{Requester, Responder};

use crate::context::WqeContext;
use crate::path::PeerPath;
pub(crate) use bound::{BindError, BoundReceives};

/// State of an IRN queue pair from RTR on.
pub(crate) struct Irn {
    pub path: PeerPath,
    pub requester: Requester<WqeContext>,
    pub responder: Responder,
    pub bound: BoundReceives,
    /// Number of packets beyond the expected PSN that the peer can track.
    pub peer: u32,
}

impl Irn {
    /// Returns true if there may be packets to send.
    pub(crate) fn has_unsent(&self) -> bool {
        self.responder.has_reply() || self.requester.has_unsent()
    }

    #[inline(never)]
    pub(crate) fn deadline(&self) -> Instant {
        self.requester.deadline().min(self.responder.deadline())
    }
}
