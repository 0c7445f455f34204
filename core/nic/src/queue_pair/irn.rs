//! IRN on a queue pair: the machine that it gets when it connects.

mod egress;
mod ingress;

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
        let reach = u64::from(shared.defaults().irn.reach());
        if self.queues.srq.is_some()
            && self.queues.receive.capacity() < reach
            && let Ok(buffers) = ReceiveQueue::buffers(self.queues.receive.stride(), reach)
        {
            // Many messages may be under way at once, each with a work request of the shared queue.
            self.queues.receive = buffers;
        }
        let parameters = self.attributes.parameters;
        let given = &self.attributes.given;
        let capacity = self.queues.send.ring().slots() as u32;
        let receives = self.queues.receive.capacity().min(reach) as u32;
        let sq_psn = given.sq_psn.unwrap_or_default();
        let rq_psn = given.rq_psn.unwrap_or_default();
        self.machine = Machine::Irn(Box::new(Irn {
            path,
            requester: Requester::new(sq_psn, capacity, parameters, &shared.defaults().irn, peer),
            responder: Responder::new(rq_psn, &parameters, given.allowed(), &shared.defaults().irn, peer),
            bound: BoundReceives::new(receives),
            peer,
        }));
    }
}
