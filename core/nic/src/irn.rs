//! Queue pairs that agreed on IRN: their machines, and what they need of the NIC besides. They have no `connection`; so
//! those of plain RC pay nothing for them.
//!
//! Heads up: a packet comes by `irn/ingress.rs`, one leaves by `irn/egress.rs`; the receive work requests that messages
//! have taken and not yet completed are in `irn/bound.rs`.

mod bound;
mod egress;
mod ingress;
#[cfg(test)]
mod state;

use remora_transport::Instant;
use remora_transport::rc::irn::{Requester, Responder};

use crate::nic::Shared;
use crate::queue_pair::{PeerPath, QueuePair, WqeContext};
use crate::receive_queue::ReceiveQueue;
pub(crate) use bound::Bound;

/// What a queue pair over IRN has once it is ready to receive.
pub(crate) struct Irn {
    pub path: PeerPath,
    pub requester: Requester<WqeContext>,
    pub responder: Responder,
    pub bound: Bound,
    /// Packets ahead of the order that the peer remembers.
    pub peer: u32,
}

impl Irn {
    #[inline]
    fn deadline(&self) -> Instant {
        self.requester.deadline().min(self.responder.deadline())
    }
}

impl QueuePair {
    /// INIT to RTR over IRN, with a peer that remembers `peer` packets ahead.
    #[inline(never)]
    pub fn connect_irn(&mut self, path: PeerPath, peer: u32, shared: &Shared) {
        let reach = u64::from(shared.irn.reach());
        if self.srq.is_some()
            && self.receive.capacity() < reach
            && let Ok(rooms) = ReceiveQueue::rooms(self.receive.stride(), reach)
        {
            // Many messages may be under way at once, each with a work request of the shared queue.
            self.receive = rooms;
        }
        let (parameters, given) = (self.attributes.parameters, &self.attributes.given);
        let capacity = self.send.ring().slots() as u32;
        let receives = self.receive.capacity().min(reach) as u32;
        let (sq_psn, rq_psn) = (given.sq_psn.unwrap_or_default(), given.rq_psn.unwrap_or_default());
        self.irn = Some(Box::new(Irn {
            path,
            requester: Requester::new(sq_psn, capacity, parameters, &shared.irn, peer),
            responder: Responder::new(rq_psn, &parameters, self.allowed, &shared.irn, peer),
            bound: Bound::new(receives),
            peer,
        }));
    }

    /// RTR to RTS over IRN.
    #[inline(never)]
    pub fn start_irn(&mut self, shared: &Shared) {
        let capacity = self.send.ring().slots() as u32;
        let (settings, allowed) = (&self.attributes, self.allowed);
        let Some(irn) = &mut self.irn else { return };
        let sq_psn = settings.given.sq_psn.unwrap_or_default();
        irn.requester = Requester::new(sq_psn, capacity, settings.parameters, &shared.irn, irn.peer);
        irn.responder.retune(allowed, &settings.parameters);
    }

    /// New patience or rights over IRN.
    #[inline(never)]
    pub fn retune_irn(&mut self) {
        let (settings, allowed) = (&self.attributes, self.allowed);
        let Some(irn) = &mut self.irn else { return };
        irn.requester.retune(settings.parameters);
        irn.responder.retune(allowed, &settings.parameters);
    }

    /// When the timers of a queue pair over IRN want to be called.
    #[inline(never)]
    pub fn deadline_irn(&self) -> Instant {
        self.irn.as_ref().map_or(Instant::NEVER, |irn| irn.deadline())
    }

    /// The timers of a queue pair over IRN have come.
    #[inline(never)]
    pub fn expire_irn(&mut self, now: Instant, rx_drained_at: Instant, shared: &mut Shared) {
        if let Some(irn) = &mut self.irn {
            irn.requester.expire(now, rx_drained_at, &mut shared.counters);
            irn.responder.expire(now, rx_drained_at, &mut shared.counters);
        }
    }
}
