//! Submission: posted work requests become messages of the requester.

use remora_memory::Mem;
use remora_transport::Status;
use remora_transport::rc::Kind;
use remora_transport::state::State;

use super::QueuePair;
use crate::chain::{Start, may_start};
use crate::kernel::submit_strom;
use crate::prism::submit_prism;
use crate::reliable::ReliableRequester;
use crate::send_queue::Fetched;
use crate::shared::Shared;
use crate::wqe::Wqe;

/// Packets that may be submitted ahead of transmission.
const AHEAD: u64 = 16;

impl QueuePair {
    /// Turns posted WQEs into messages, a little ahead of transmission.
    #[inline]
    pub(crate) fn submit<R: ReliableRequester>(&mut self, mem: Mem<'_>, shared: &mut Shared) {
        if self.state != State::Rts {
            return;
        }
        loop {
            let may_submit = R::of(&mut self.machine).and_then(|requester| requester.may_submit(AHEAD));
            let Some(outstanding) = may_submit else { return };
            match self.send.next() {
                Fetched::Empty => return,
                Fetched::Malformed { wqe, index } => {
                    self.send.take(1);
                    self.submit_failing::<R>(&wqe, index, 1, Status::LocalQpOperation);
                }
                Fetched::Work { wqe, index, slots } => {
                    if wqe.opcode().may_have_to_wait() {
                        match may_start(self, &wqe, outstanding, shared) {
                            Start::Now => {}
                            Start::Later => return,
                            Start::Never(status) => {
                                self.send.take(slots);
                                self.submit_failing::<R>(&wqe, index, slots, status);
                                continue;
                            }
                        }
                    }
                    self.send.take(slots);
                    shared.counters.wqes_executed += 1;
                    self.submit_one::<R>(mem, &wqe, index, slots);
                }
            }
        }
    }

    #[inline]
    fn submit_one<R: ReliableRequester>(&mut self, mem: Mem<'_>, wqe: &Wqe, index: u64, slots: u64) {
        let Some((kind, len, list)) = self.decode(wqe, index) else {
            if wqe.opcode().is_prism() {
                return submit_prism::<R>(self, wqe, index, slots);
            }
            if wqe.opcode().is_strom() {
                return submit_strom::<R>(self, wqe, index, slots);
            }
            return self.submit_failing::<R>(wqe, index, slots, Status::LocalQpOperation);
        };
        if len > 1 << 31 {
            return self.submit_failing::<R>(wqe, index, slots, Status::LocalLength);
        }
        if matches!(kind, Kind::Local)
            && let Err(status) = self.execute_locally(mem, wqe)
        {
            return self.submit_failing::<R>(wqe, index, slots, status);
        }
        let message = self.message(wqe, kind, len, list, index, slots);
        if let Some(requester) = R::of(&mut self.machine) {
            requester.submit(message);
        }
    }
}
