//! The invariants of a NIC between two events: a packet, a doorbell, a timer, a turn to send.
//!
//! Each machine and queue has a `check` of its own, which asserts what holds of its numbers. Debug builds
//! call them here after every event, for the queue pair of the event and for what it shares with others.
//! Release builds call none.

use remora_transport::Instant;
use remora_transport::state::State;

use crate::machine::Machine;
use crate::queue_pair::QueuePair;
use crate::shared::Shared;
use crate::timers::Timers;

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
        self.send.check();
        self.receive.check();
        for cq in [self.send_cq, self.receive_cq] {
            if let Some(Some(queue)) = shared.cqs.get(cq as usize) {
                queue.check();
            }
        }
        if let Some(queue) = self.srq.and_then(|srq| shared.srqs.get(srq.place)) {
            queue.check();
        }
        // A queue pair in error has given up the order of its machines.
        if self.state != State::Err {
            self.check_machine(shared.mtu);
        }
    }

    fn check_machine(&self, mtu: u32) {
        let upcoming = match &self.machine {
            Machine::Unconnected | Machine::Loopback => return,
            Machine::Rc(connection) => {
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

impl Shared {
    /// Asserts the invariants of what belongs to no queue pair, a part of it at a time.
    fn check(&self) {
        let event = self.counters.rcvd_pkts;
        self.free_lists.check(event);
        self.kernels.check(event);
        assert!(self.wakes.len() <= self.cqs.len(), "a completion queue is woken once");
    }
}

impl Timers {
    /// Asserts that the queue pair at `index` is called by `deadline`, in debug builds only.
    #[inline(always)]
    pub(crate) fn checked(&self, index: u32, deadline: impl FnOnce() -> Instant) {
        if cfg!(debug_assertions) {
            self.check(index, deadline());
        }
    }
}
