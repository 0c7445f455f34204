//! The invariants of a NIC between two events: a packet, a doorbell, a timer, a turn to send.
//!
//! Each machine and queue has a `check` of its own, which asserts what holds of its numbers. Debug builds
//! call them here after every event, for the queue pair of the event and for what it shares with others.
//! Release builds call none.

use remora_transport::state::State;

use super::QueuePair;
use crate::machine::Machine;
use crate::shared::Shared;

impl QueuePair {
    /// Asserts the invariants after an event of this queue pair, in debug builds only.
    #[inline(always)]
    pub(crate) fn checked(&self, shared: &Shared) {
        if cfg!(debug_assertions) {
            self.check(shared);
            shared.check();
        }
    }

    /// Asserts the invariants of its queues and of its machines.
    #[cold]
    #[inline(never)]
    fn check(&self, shared: &Shared) {
        self.queues.send.check();
        self.queues.receive.check();
        for cq in [self.queues.send_cq, self.queues.receive_cq] {
            if let Ok(queue) = shared.cqs().get(cq) {
                queue.check();
            }
        }
        if let Some(queue) = self.queues.srq.and_then(|srq| shared.objects().srqs.get(srq.place)) {
            queue.check();
        }
        // A queue pair in error has given up the order of its machines.
        if self.state != State::Err {
            self.check_machine(shared.properties().mtu);
        }
    }

    fn check_machine(&self, mtu: u32) {
        assert!(!self.machine.is_plain() || self.offloads.is_empty(), "a plain queue pair has no offload");
        let upcoming = match &self.machine {
            Machine::Unconnected | Machine::Loopback => return,
            Machine::Plain(connection) | Machine::Rc(connection) => {
                connection.requester.check();
                connection.responder.check();
                connection.responder.fetches().0
            }
            Machine::Irn(irn) => {
                irn.requester.check();
                irn.responder.check();
                if !irn.responder.has_ended() {
                    irn.bound.check(irn.responder.completed());
                }
                irn.responder.fetches().0
            }
            Machine::Unreliable(unreliable) => return unreliable.check(mtu),
        };
        self.offloads.check(upcoming);
    }
}
