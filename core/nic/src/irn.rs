//! The machines of a queue pair that agreed on IRN, and the receive work requests that its messages have
//! taken.
//!
//! Heads up: a packet arrives in `irn/ingress.rs` and leaves by `irn/egress.rs`; `irn/bound.rs` has the
//! receive work requests that messages have taken and not yet completed.

mod bound;
mod egress;
mod ingress;
#[cfg(test)]
mod state;

use remora_transport::Instant;
use remora_transport::rc::irn::{Requester, Responder};

use crate::context::WqeContext;
use crate::path::PeerPath;
pub(crate) use bound::BoundReceives;

/// What a queue pair over IRN has once it is ready to receive.
pub(crate) struct Irn {
    pub path: PeerPath,
    pub requester: Requester<WqeContext>,
    pub responder: Responder,
    pub bound: BoundReceives,
    /// Packets ahead of the order that the peer can record.
    pub peer: u32,
}

impl Irn {
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.requester.deadline().min(self.responder.deadline())
    }
}
