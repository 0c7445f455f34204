//! PRISM operation lists that arrive as one packet. Each operation uses one PSN, and one packet answers all
//! of them.

use super::super::replay::{Entry, Source};
use super::{Arrival, MessageInProgress, PendingAck, Responder, answer_end};
use crate::Counters;
use crate::rc::prism::Rules;
use crate::rc::{Seq, extend};
use remora_wire::prism::operation_list::MOST;
use remora_wire::{NakCode, packet};

/// The outcome of executing an operation list.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationListOutcome {
    /// Number of operations executed.
    pub done: u32,
    /// Total length of their answers in bytes.
    pub len: usize,
    /// Error of the first operation that was not executed.
    pub fault: Option<NakCode>,
}

impl Responder {
    /// Validates an operation list. Returns the number of its first operations that were executed before; the
    /// NIC must execute the others. Returns `None` if nothing is to be executed.
    pub fn receive_operation_list(
        &mut self,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) -> Option<usize> {
        if self.ended {
            return None;
        }
        let seq = extend(self.receiver.rcv_nxt, packet.bth.psn());
        let count = u64::from(packet.bth.resv7());
        let mut passed = 0;
        match self.receiver.arrive(seq) {
            Arrival::InOrder => {}
            Arrival::Duplicate => {
                counters.duplicate_request += 1;
                self.repeat_operation_list(seq, (seq + count).min(self.receiver.rcv_nxt));
                passed = self.receiver.rcv_nxt - seq;
                if passed >= count {
                    return None;
                }
            }
            Arrival::Gap { report } => {
                self.missed(report, counters);
                return None;
            }
        }
        if self.in_progress != MessageInProgress::Nothing
            || self.replay.is_full()
            || !(1..=MOST as u64).contains(&count)
        {
            self.refuse(NakCode::INVALID_REQUEST, counters);
            return None;
        }
        Some(passed as usize)
    }

    /// Answers operations that were executed before. The peer may have combined them into another operation
    /// list, so each operation is looked up separately.
    #[cold]
    fn repeat_operation_list(&mut self, first: Seq, end: Seq) {
        (first..end).for_each(|seq| {
            self.replay.again_from(seq, |entry| answer_end(entry.first, &entry.source, self.mtu))
        });
        if self.pending_ack == PendingAck::Nothing && !self.replay.is_pending() {
            self.pending_ack = PendingAck::Ack;
        }
    }

    /// Returns the rules against which the NIC checks the operations of a list.
    pub fn rules(&self) -> Rules {
        Rules { allowed: self.allowed, mtu: self.mtu }
    }

    /// Returns the buffer for the answers to the operation list.
    pub fn operation_list_answer_buffer(&mut self) -> &mut [u8] {
        self.replay.kept_buffer()
    }

    /// Completes the execution of an operation list or of its first operations.
    pub fn conclude_operation_list(&mut self, outcome: OperationListOutcome, counters: &mut Counters) {
        let first = self.receiver.rcv_nxt;
        if outcome.done > 0 {
            self.receiver.advance(outcome.done);
            self.msn = (self.msn + outcome.done) & 0x00ff_ffff;
        }
        if outcome.len > 0 {
            self.replay.push_kept(Entry {
                first,
                end: self.receiver.rcv_nxt,
                source: Source::OperationList { len: outcome.len as u8 },
                msn: self.msn,
                credits: 0,
                answer_first: first,
                answer_end: first + 1,
                next: first,
            });
        } else {
            self.pending_ack = PendingAck::Ack;
        }
        if let Some(code) = outcome.fault {
            self.refuse(code, counters);
        }
    }
}
