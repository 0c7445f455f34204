//! PRISM operations at an IRN responder. Their packets are executed in order only, because an operation may
//! depend on all earlier ones. A packet that arrives after a gap is dropped and requested again. The same
//! applies to access to the connection's scratch memory, through which the operations of a list pass
//! values. All other packets on the queue pair are executed on arrival.
//!
//! The sender of responses transmits the answers. The answer to a READ may be shorter than requested. The
//! unused PSNs are then skipped: no packet carries them and neither side waits for them.

use super::{NUMBERS, Pending, Reply, Responder, Step};
use crate::rc::irn::reads::{Read, Wanted};
use crate::rc::irn::receiver::Ends;
use crate::rc::prism::{Answer, OperationInProgress, Output, Request, Verb, is_scratch, judge};
use crate::rc::responder::{ReplyKind, count};
use crate::rc::{Seq, packets};
use crate::{Action, Counters, Instant};
use remora_wire::prism::Flags;
use remora_wire::{NakCode, Opcode, Syndrome, packet};

/// Maximum number of responses that one READ may reserve. Half of the PSN circle must exceed the PSNs that
/// one READ skips and those of later requests.
const MOST: u32 = 1 << 22;

impl Responder {
    /// Enables PRISM, because the peer agreed on it.
    pub fn enable_prism(&mut self) {
        self.prism = true;
        self.reads.widen();
    }

    /// Returns the MSN: the number of messages executed, modulo 2^24.
    pub fn msn(&self) -> u32 {
        self.receiver.msn()
    }

    /// Returns the number of READs, atomics and PRISM operations executed, and how many of these, from the
    /// first on, are fully acknowledged.
    pub fn fetches(&self) -> (u64, u64) {
        self.reads.bounds()
    }

    /// Drops all answers and returns true, or returns false if the peer may still need one. A peer that was
    /// silent until the timeout expired needs none.
    pub fn forget(&mut self) -> bool {
        if self.sender.snd_una() < self.responses {
            if !self.quiet {
                return false;
            }
            self.sender.abandon(self.responses);
            self.reads.acknowledged(self.responses);
            self.rto.stop();
        }
        true
    }

    /// Returns the bytes that a planned reply refers to; results of operations are in network byte order.
    pub fn kept(&self, reply: &Reply) -> [u8; 32] {
        let super::ReplyCause::Response { seq, .. } = reply.cause else { return [0; 32] };
        self.reads.stored(seq)
    }

    /// Returns true if a packet that accesses `va` must be dropped because it arrived after a gap, and
    /// schedules a NACK.
    #[inline]
    pub(super) fn waits(&mut self, va: u64, in_order: bool) -> bool {
        let waits = !in_order && self.prism && is_scratch(va);
        self.dropped |= waits;
        waits
    }

    /// Processes a PRISM packet, or a packet that arrives where the next packet of an operation is expected.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_prism<'a>(
        &mut self,
        now: Instant,
        packet: &packet::View<'a>,
        seq: Seq,
        in_order: bool,
        counters: &mut Counters,
    ) -> (Step, &'a [u8]) {
        if !in_order {
            self.dropped = true;
            return (Step::Nothing, &[]);
        }
        match judge(packet, self.in_progress, self.mtu, self.allowed) {
            Ok(request) => match self.begin(now, packet.bth.opcode(), seq, &request) {
                Ok(step) => return (step, packet.payload),
                Err(code) => self.refuse(seq, code, counters),
            },
            Err(code) => self.refuse(seq, code, counters),
        }
        (Step::Nothing, &[])
    }

    /// Executes a READ of scratch memory at once, like a PRISM operation, because later operations may
    /// change the memory before the response is sent.
    #[cold]
    #[inline(never)]
    pub(super) fn read_scratch(
        &mut self,
        now: Instant,
        opcode: Opcode,
        seq: Seq,
        number: u32,
        key: u32,
        va: u64,
        len: u32,
    ) -> Result<Step, NakCode> {
        if number != self.upcoming() {
            return Err(NakCode::INVALID_REQUEST);
        }
        let verb = Verb::Read;
        let flags = Flags::NONE;
        let request = Request { verb, flags, first: true, last: true, key, va, len, offset: 0 };
        self.begin(now, opcode, seq, &request)
    }

    /// Returns the 24-bit number of the READ or atomic that is executed next.
    fn upcoming(&self) -> u32 {
        (self.reads.bounds().0 & NUMBERS) as u32
    }

    /// Returns the step for a packet that is next in order.
    fn begin(&mut self, now: Instant, opcode: Opcode, seq: Seq, request: &Request) -> Result<Step, NakCode> {
        let reserved = if request.last { request.packets(self.mtu) } else { 0 };
        if reserved > MOST {
            return Err(NakCode::INVALID_REQUEST);
        }
        if request.last {
            let number = self.upcoming();
            let nothing = Wanted::Value(0);
            let kept = self.reads.keep(seq, number, nothing, self.sender.snd_max());
            if let Some(upto) = kept.map_err(|_| NakCode::INVALID_REQUEST)? {
                self.answered(now, upto, None);
            }
        }
        let flags = request.flags;
        let offset = request.offset + self.mtu;
        let total = request.len;
        let in_progress = (!request.last).then_some(OperationInProgress { flags, offset, total });
        self.pending = Some(Pending::Prism { seq, opcode, reserved, in_progress });
        Ok(Step::Execute(Action::Prism((*request).into())))
    }

    /// Completes a PRISM action. `result` is the answer at the last packet of an operation, or a NAK code.
    pub fn conclude_prism(&mut self, result: Result<Option<Answer>, NakCode>, counters: &mut Counters) {
        let Some(Pending::Prism { seq, opcode, reserved, in_progress }) = self.pending.take() else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(code) => return self.refuse(seq, code, counters),
        };
        self.in_progress = in_progress;
        self.receiver.mark(seq, Ends::of(opcode));
        self.take_step();
        let Some(answer) = answer else { return };
        self.quiet = false;
        count(opcode, counters);
        let credits = answer.verdict.credits();
        let (wanted, sent, bytes) = match answer.output {
            Output::Number(value) => (Wanted::Number { value, credits }, 1, [0; 32]),
            Output::Wide { bytes, size } => (Wanted::Wide { size, credits }, 1, bytes),
            Output::Snapshot { bytes, len } => (Wanted::Snapshot { len, credits }, 1, bytes),
            Output::Memory { key, va, len } => {
                (Wanted::Memory { key, va, len }, packets(len, self.mtu), [0; 32])
            }
        };
        let first = self.responses;
        self.responses += Seq::from(sent);
        self.reads.store(bytes);
        let msn = self.receiver.msn();
        let skipped = self.skipped as u32;
        self.reads.executed(Some(wanted), first, self.responses, msn, skipped);
        self.skipped += Seq::from(reserved.saturating_sub(sent));
    }

    /// Returns the response that carries the result of an operation.
    pub(super) fn result(&self, read: &Read, blank: Reply) -> Reply {
        let (credits, kind) = match read.wanted {
            Wanted::Number { value, credits } => (credits, ReplyKind::Value(value)),
            Wanted::Wide { size, credits } => (credits, ReplyKind::Wide(size)),
            Wanted::Snapshot { len, credits } => (credits, ReplyKind::Snapshot(len)),
            _ => return blank,
        };
        let snapshot = matches!(kind, ReplyKind::Snapshot(_));
        let opcode = if snapshot { Opcode::RC_RDMA_READ_RESPONSE_ONLY } else { blank.opcode };
        Reply { opcode, aeth: Some((Syndrome::ack(credits), read.msn)), kind, ..blank }
    }

    /// Returns the PSN that response `seq` has on the wire, unwrapped.
    #[inline]
    pub(super) fn sent_as(&self, seq: Seq) -> Seq {
        if self.skipped == 0 {
            return seq;
        }
        seq + self.reads.of(seq).map_or(self.skipped, |read| self.skipped_before(read))
    }

    fn skipped_before(&self, read: &Read) -> Seq {
        self.skipped - Seq::from((self.skipped as u32).wrapping_sub(read.skipped))
    }

    /// Returns the first response whose PSN on the wire is at least `number`.
    #[inline]
    pub(super) fn heard_as(&self, number: Seq) -> Seq {
        if self.skipped == 0 { number } else { self.heard_after_skips(number) }
    }

    #[cold]
    fn heard_after_skips(&self, number: Seq) -> Seq {
        let mut heard = self.sender.snd_una();
        for (_, read) in self.reads.executed_ones() {
            let start = read.first + self.skipped_before(read);
            if number < start {
                break;
            }
            heard = heard.max((read.first + (number - start)).min(read.end));
        }
        heard
    }

    /// Returns true if the peer can record response `seq`.
    #[inline]
    pub(super) fn reaches(&self, seq: Seq) -> bool {
        self.skipped == 0 || self.sent_as(seq) - self.sent_as(self.sender.snd_una()) < self.reach
    }
}
