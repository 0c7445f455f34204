//! Submission: posted work requests become messages of the requester.

use remora_memory::Mem;
use remora_transport::Status;
use remora_transport::rc::Kind;
use remora_transport::state::State;

use super::QueuePair;
use crate::chain::{Start, may_start};
use crate::context::List;
use crate::kernel::submit_strom;
use crate::prism::submit_prism;
use crate::reliable::ReliableRequester;
use crate::send_queue::Fetched;
use crate::shared::Shared;
use crate::wqe::{Wqe, WqeOpcode};

/// Packets that may be submitted ahead of transmission.
const AHEAD: u64 = 16;
/// Maximum length of a message in bytes (IBTA vol. 1 §9.7.7).
const LONGEST: u32 = 1 << 31;

impl QueuePair {
    /// Returns true if a posted WQE may become a message now.
    #[inline(always)]
    pub(crate) fn may_submit<R: ReliableRequester>(&mut self) -> bool {
        self.queues.send.has_work()
            && R::of(&mut self.machine).is_some_and(|requester| requester.may_submit(AHEAD).is_some())
    }

    /// Turns posted WQEs into messages, a little ahead of transmission.
    #[inline(never)]
    pub(crate) fn submit<R: ReliableRequester>(&mut self, mem: Mem<'_>, shared: &mut Shared) {
        if self.state != State::Rts {
            return;
        }
        loop {
            let may_submit = R::of(&mut self.machine).and_then(|requester| requester.may_submit(AHEAD));
            let Some(outstanding) = may_submit else { return };
            if !self.submit_simple::<R>(shared) && !self.submit_next::<R>(mem, outstanding, shared) {
                return;
            }
        }
    }

    /// Submits the next WQE if it is a [simple](SendQueue::simple) one that can be executed. Returns false if
    /// it is not, or if no WQE is posted.
    #[inline(always)]
    fn submit_simple<R: ReliableRequester>(&mut self, shared: &mut Shared) -> bool {
        let Some((wqe, index)) = self.queues.send.simple() else { return false };
        let va = wqe.remote;
        let rkey = wqe.rkey();
        let kind = match wqe.opcode() {
            WqeOpcode::WRITE => Kind::Write { va, rkey },
            WqeOpcode::READ if self.attributes.parameters.max_rd_atomic > 0 => Kind::Read { va, rkey },
            WqeOpcode::SEND => Kind::Send,
            _ => return false,
        };
        let len = if wqe.elements() == 0 { 0 } else { wqe.len as u32 };
        if len > LONGEST {
            return false;
        }
        self.queues.send.take_one();
        shared.counters_mut().wqes_executed += 1;
        let message = self.message(&wqe, kind, len.into(), List::One, index, 1);
        if let Some(requester) = R::of(&mut self.machine) {
            requester.submit(message);
        }
        true
    }

    /// Submits the next WQE, which is fetched and may fail. Returns false if no WQE is posted, or if it must
    /// wait.
    #[inline(always)]
    fn submit_next<R: ReliableRequester>(
        &mut self,
        mem: Mem<'_>,
        outstanding: usize,
        shared: &mut Shared,
    ) -> bool {
        match self.queues.send.next_fetched() {
            Fetched::Empty => return false,
            Fetched::Malformed { wqe, index } => {
                self.queues.send.take(1);
                self.submit_failing::<R>(&wqe, index, 1, Status::LocalQpOperation);
            }
            Fetched::Work { wqe, index, slots } => {
                if wqe.opcode().may_have_to_wait() {
                    match may_start(self, &wqe, outstanding, shared) {
                        Start::Now => {}
                        Start::Later => return false,
                        Start::Never(status) => {
                            self.queues.send.take(slots);
                            self.submit_failing::<R>(&wqe, index, slots, status);
                            return true;
                        }
                    }
                }
                self.queues.send.take(slots);
                shared.counters_mut().wqes_executed += 1;
                self.submit_one::<R>(mem, &wqe, index, slots);
            }
        }
        true
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
        if len > u64::from(LONGEST) {
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
