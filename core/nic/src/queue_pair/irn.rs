//! IRN on a queue pair: when it connects and starts, and its timers.

use remora_transport::Instant;
use remora_transport::rc::irn::{Requester, Responder};

use super::QueuePair;
use crate::irn::{BoundReceives, Irn};
use crate::machine::Machine;
use crate::path::PeerPath;
use crate::receive_queue::ReceiveQueue;
use crate::shared::Shared;

impl QueuePair {
    /// INIT to RTR over IRN. The peer can record `peer` packets ahead of the order.
    #[inline(never)]
    pub(crate) fn connect_irn(&mut self, path: PeerPath, peer: u32, shared: &Shared) {
        let reach = u64::from(shared.irn.reach());
        if self.srq.is_some()
            && self.receive.capacity() < reach
            && let Ok(buffers) = ReceiveQueue::buffers(self.receive.stride(), reach)
        {
            // Many messages may be under way at once, each with a work request of the shared queue.
            self.receive = buffers;
        }
        let parameters = self.attributes.parameters;
        let given = &self.attributes.given;
        let capacity = self.send.ring().slots() as u32;
        let receives = self.receive.capacity().min(reach) as u32;
        let sq_psn = given.sq_psn.unwrap_or_default();
        let rq_psn = given.rq_psn.unwrap_or_default();
        self.machine = Machine::Irn(Box::new(Irn {
            path,
            requester: Requester::new(sq_psn, capacity, parameters, &shared.irn, peer),
            responder: Responder::new(rq_psn, &parameters, self.allowed, &shared.irn, peer),
            bound: BoundReceives::new(receives),
            peer,
        }));
    }

    /// RTR to RTS over IRN.
    #[inline(never)]
    pub(crate) fn start_irn(&mut self, shared: &Shared) {
        let capacity = self.send.ring().slots() as u32;
        let settings = &self.attributes;
        let allowed = self.allowed;
        let Some(irn) = self.machine.irn_mut() else { return };
        let sq_psn = settings.given.sq_psn.unwrap_or_default();
        irn.requester = Requester::new(sq_psn, capacity, settings.parameters, &shared.irn, irn.peer);
        irn.responder.retune(allowed, &settings.parameters);
    }

    /// Changes timeouts, retries and rights over IRN.
    #[inline(never)]
    pub(crate) fn retune_irn(&mut self) {
        let settings = &self.attributes;
        let allowed = self.allowed;
        let Some(irn) = self.machine.irn_mut() else { return };
        irn.requester.retune(settings.parameters);
        irn.responder.retune(allowed, &settings.parameters);
    }

    /// Returns the time at which `expire_irn` is due.
    #[inline(never)]
    pub(crate) fn deadline_irn(&self) -> Instant {
        self.machine.irn().map_or(Instant::NEVER, |irn| irn.deadline())
    }

    /// Runs the timers over IRN.
    #[inline(never)]
    pub(crate) fn expire_irn(&mut self, now: Instant, rx_drained_at: Instant, shared: &mut Shared) {
        if let Some(irn) = self.machine.irn_mut() {
            irn.requester.expire(now, rx_drained_at, &mut shared.counters);
            irn.responder.expire(now, rx_drained_at, &mut shared.counters);
        }
    }
}
