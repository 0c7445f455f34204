//! The IRN responder. It accepts request packets in any order, and the NIC writes their payload at once.
//! Messages end, READs and atomics are executed, and errors are reported in order only. A sender of its own
//! transmits the responses.
//!
//! `receive` returns a [`Step`]; the NIC executes it and calls `conclude` with the outcome. Then the NIC
//! calls `due` for further steps until `due` returns [`Step::Nothing`].

mod check;
mod kept;
mod prism;
mod strom;

use super::judge::{Request, Write, judge, plain_write};
use super::pending_acks::PendingAcks;
use super::reads::{Read, Reads, Wanted};
use super::receiver::{Arrival, Ends, Receiver};
use super::{Recovery, Rto, Sender, Settings, Timeout};
use crate::rc::ending::count_refusal;
use crate::rc::prism::{OperationInProgress, is_scratch};
use crate::rc::responder::{ReplyKind, count, read_response};
use crate::rc::strom::Part;
use crate::rc::{Allowed, Parameters, Seq, extend, packets, psn, start};
use crate::{Action, Counters, Instant, Notice, Outcome};
use kept::Kept;
use remora_wire::irn::{Additions, sack};
use remora_wire::{NakCode, Opcode, Psn, Syndrome, WireError, aeth, packet};

/// An operation that the NIC must execute for a packet that arrived, or that has become next in order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing (more) to execute.
    Nothing,
    /// An action that does not involve the receive queue.
    Execute(Action),
    /// SEND: copies the payload into receive work request `wqe`, counted from the first of the connection,
    /// at `offset`. A notice marks the last packet of the message; the NIC keeps the notice until
    /// [`Step::Complete`].
    Deliver {
        /// Number of the receive work request. The NIC takes it and all earlier ones from the receive queue.
        wqe: u64,
        /// Offset of the payload in the message, in bytes.
        offset: u32,
        /// True if no gap precedes the packet, so that an error is final.
        in_order: bool,
        /// Information for the completion; `None` unless the message ends with this packet.
        notice: Option<Notice>,
    },
    /// Last packet of a WRITE with immediate data: takes the receive work request, writes the payload and
    /// keeps the notice.
    PlaceAndNotify {
        /// Number of the receive work request. The NIC takes it and all earlier ones from the receive queue.
        wqe: u64,
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Number of bytes to check.
        extent: u32,
        /// True if no gap precedes the packet.
        in_order: bool,
        /// Information for the completion.
        notice: Notice,
    },
    /// A packet for a kernel arrived after a gap: keeps its payload in `slot`, which is less than the size
    /// of the bitmaps.
    Keep {
        /// Index of the slot.
        slot: u32,
        /// Description of the packet.
        part: Part,
    },
    /// The packet kept in `slot` is next in order: passes it to its kernel.
    Kept {
        /// Index of the slot.
        slot: u32,
    },
    /// The oldest receive work request that was taken has its whole message: writes its completion.
    Complete,
}

/// The next packet that the responder sends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Op-code of the packet.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// AETH: syndrome and message sequence number; `None` on the middle packets of a READ.
    pub aeth: Option<(Syndrome, u32)>,
    /// IRN's additional headers.
    pub additions: Additions,
    /// Payload of the packet.
    pub kind: ReplyKind,
    cause: ReplyCause,
}

/// The reason for which a reply is sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ReplyCause {
    NotReady,
    /// A packet was dropped because it may be executed in order only.
    Dropped,
    Pending(super::pending_acks::PendingAck),
    /// A READ or atomic response; `again` marks a retransmission.
    Response {
        seq: Seq,
        again: bool,
    },
    Fatal,
}

/// The operation that the NIC is executing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Pending {
    Arrival {
        seq: Seq,
        ends: Ends,
        opcode: Opcode,
    },
    Fetch {
        request: Seq,
    },
    Completion,
    /// Passing a kept packet to its kernel.
    Kept,
    /// A PRISM packet that reserves `reserved` responses; `in_progress` is the operation that continues
    /// after it.
    Prism {
        seq: Seq,
        opcode: Opcode,
        reserved: u32,
        in_progress: Option<OperationInProgress>,
    },
}

/// The responder of one queue pair.
pub struct Responder {
    receiver: Receiver,
    pending_acks: PendingAcks,
    reads: Reads,
    /// Sender of the responses.
    sender: Sender,
    rto: Rto,
    /// The sequence number after the last response.
    responses: Seq,
    pending: Option<Pending>,
    /// Number of receive work requests that messages have used and completed.
    completed: u64,
    not_ready: bool,
    fatal: Option<(Seq, Syndrome)>,
    /// True after a fatal error: nothing more is executed.
    ended: bool,
    mtu: u32,
    rnr_timer: u8,
    allowed: Allowed,
    patience_ns: u64,
    /// True after the timeout expired: responses wait until a packet of the requester arrives.
    quiet: bool,
    keeps: bool,
    /// True if the peer agreed on PRISM.
    prism: bool,
    /// The PRISM operation whose packets are arriving.
    in_progress: Option<OperationInProgress>,
    /// True if a NACK must be sent for packets that were dropped because they may be executed in order only.
    dropped: bool,
    /// Number of response PSNs that were reserved and will not be sent.
    skipped: Seq,
    /// Number of responses that the peer can record after a gap.
    reach: Seq,
    /// Packets that are kept for a kernel; `None` unless the peer agreed on StRoM.
    kept: Option<Box<Kept>>,
}

impl Responder {
    /// Returns a responder whose first packet is `first`. The peer can record `peer` packets after a gap.
    pub fn new(
        first: Psn,
        parameters: &Parameters,
        allowed: Allowed,
        settings: &Settings,
        peer: u32,
    ) -> Responder {
        let first = start(first);
        Responder {
            receiver: Receiver::new(first, settings.bitmap),
            pending_acks: PendingAcks::new(settings.bitmap),
            reads: Reads::new(parameters.max_dest_rd_atomic),
            sender: Sender::new(first, settings, settings.in_flight(peer).min(parameters.window)),
            rto: Rto::new(settings),
            responses: first,
            pending: None,
            completed: 0,
            not_ready: false,
            fatal: None,
            ended: false,
            mtu: parameters.mtu,
            rnr_timer: parameters.min_rnr_timer,
            allowed,
            patience_ns: parameters.patience_ns(),
            quiet: false,
            keeps: settings.ablations().recovery != Recovery::GoBackN,
            prism: false,
            in_progress: None,
            dropped: false,
            skipped: 0,
            reach: Seq::from(peer.max(1)),
            kept: None,
        }
    }

    /// Changes access rights, RNR timer and timeout of a running queue pair.
    pub fn retune(&mut self, allowed: Allowed, parameters: &Parameters) {
        self.allowed = allowed;
        self.rnr_timer = parameters.min_rnr_timer;
        self.patience_ns = parameters.patience_ns();
    }

    /// Returns the receiving half, for diagnostic tools.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Returns the sending half, for diagnostic tools.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Fast path: returns the packet if it is part of a WRITE without immediate data, is next in order, and
    /// no packet after it is recorded. The NIC writes its payload and calls `passed`, which does not access
    /// the bitmaps. On `None` the NIC must call `receive` instead.
    #[inline]
    pub fn next_write<'a>(&self, packet: &packet::View<'a>) -> Option<Write<'a>> {
        let usual = packet.bth.psn() == psn(self.receiver.rcv_nxt())
            && !self.receiver.has_ahead()
            && self.allowed.write
            && !self.ended
            && packet.bth.resv7() == 0
            && self.in_progress.is_none();
        if usual { plain_write(packet, self.mtu) } else { None }
    }

    /// Records that the packet returned by `next_write` was executed.
    #[inline]
    pub fn passed(&mut self, write: &Write<'_>, counters: &mut Counters) {
        counters.rx_write_requests += u64::from(write.ends);
        let seq = self.receiver.rcv_nxt();
        self.receiver.pass(write.ends);
        self.stepped(seq);
    }

    /// Validates a request packet. Returns the step to execute and its payload.
    pub fn receive<'a>(
        &mut self,
        now: Instant,
        packet: &packet::View<'a>,
        counters: &mut Counters,
    ) -> (Step, &'a [u8]) {
        if self.ended {
            return (Step::Nothing, &[]);
        }
        let seq = extend(self.receiver.rcv_nxt(), packet.bth.psn());
        let arrival = self.receiver.arrival(seq);
        match arrival {
            Arrival::InOrder if self.is_kept(seq) => {
                counters.duplicate_request += 1;
                self.pending_acks.acknowledge();
                return (Step::Nothing, &[]);
            }
            Arrival::InOrder => {}
            Arrival::Gap if self.keeps => counters.out_of_sequence += 1,
            Arrival::Gap | Arrival::GapDuplicate => {
                counters.out_of_sequence += 1;
                self.pending_acks.report(seq);
                return (Step::Nothing, &[]);
            }
            Arrival::Duplicate => {
                counters.duplicate_request += 1;
                self.pending_acks.acknowledge();
                self.resume();
                return (Step::Nothing, &[]);
            }
            Arrival::OutOfReach => {
                counters.irn_beyond_pkts += 1;
                return (Step::Nothing, &[]);
            }
        }
        let in_order = arrival == Arrival::InOrder;
        if self.prism && (packet.bth.resv7() != 0 || in_order && self.in_progress.is_some()) {
            return self.receive_prism(now, packet, seq, in_order, counters);
        }
        match self.step(now, packet, seq, in_order) {
            Ok((step, payload)) => {
                let (opcode, ends) = (packet.bth.opcode(), Ends::of(packet.bth.opcode()));
                self.pending.get_or_insert(Pending::Arrival { seq, ends, opcode });
                (step, payload)
            }
            Err(code) => {
                // An error after a gap is not reported. The packet counts as lost, and its retransmission is
                // validated in order.
                if in_order {
                    self.refuse(seq, code, counters);
                }
                (Step::Nothing, &[])
            }
        }
    }

    fn step<'a>(
        &mut self,
        now: Instant,
        packet: &packet::View<'a>,
        seq: Seq,
        in_order: bool,
    ) -> Result<(Step, &'a [u8]), NakCode> {
        let split = Additions::split(packet);
        let (additions, payload) = split.map_err(|_: WireError| NakCode::INVALID_REQUEST)?;
        let completed = self.completed + BASE;
        let wqe = |number: u32| extend(completed, Psn::new(number)).checked_sub(BASE);
        Ok(match judge(packet, &additions, payload, self.mtu, self.allowed)? {
            Request::Place { va, .. } | Request::PlaceAndNotify { va, .. } if self.waits(va, in_order) => {
                return Err(NakCode::INVALID_REQUEST);
            }
            Request::Place { key, va, extent } => (Step::Execute(Action::Place { key, va, extent }), payload),
            Request::PlaceAndNotify { key, va, extent, number, notice } => {
                let wqe = wqe(number).ok_or(NakCode::INVALID_REQUEST)?;
                (Step::PlaceAndNotify { wqe, key, va, extent, in_order, notice }, payload)
            }
            Request::Rpc(part) => self.rpc(part, seq, in_order, payload)?,
            Request::Deliver { number, offset, notice } => {
                let wqe = wqe(number).ok_or(NakCode::INVALID_REQUEST)?;
                (Step::Deliver { wqe, offset, in_order, notice }, payload)
            }
            Request::Fetch { number, wanted: Wanted::Memory { key, va, len } }
                if self.prism && is_scratch(va) =>
            {
                if self.waits(va, in_order) {
                    return Err(NakCode::INVALID_REQUEST);
                }
                (self.read_scratch(now, packet.bth.opcode(), seq, number, key, va, len)?, &[])
            }
            Request::Fetch { number, wanted } => {
                let kept = self.reads.keep(seq, number, wanted, self.sender.snd_max());
                if let Some(upto) = kept.map_err(|_| NakCode::INVALID_REQUEST)? {
                    self.answered(now, upto, None);
                }
                // Executed when the request is next in order.
                (Step::Execute(Action::Nothing), &[])
            }
        })
    }

    /// Completes the last step with its outcome.
    pub fn conclude(&mut self, outcome: Outcome, counters: &mut Counters) {
        let Some(pending) = self.pending.take() else { return };
        match (pending, outcome) {
            (Pending::Arrival { seq, ends, opcode }, Outcome::Done) => {
                // A packet kept for a kernel is counted when the kernel takes it.
                if ends != Ends::Nothing && !self.is_kept(seq) {
                    count(opcode, counters);
                }
                self.receiver.mark(seq, ends);
                if seq > self.receiver.rcv_nxt() {
                    counters.irn_ahead_pkts += 1;
                    self.pending_acks.report(seq);
                }
            }
            (Pending::Fetch { request }, Outcome::Done | Outcome::Value(_)) => {
                let value = if let Outcome::Value(old) = outcome { Some(Wanted::Value(old)) } else { None };
                self.executed(request, value);
            }
            (Pending::Completion, Outcome::Done) => {
                self.completed += 1;
                self.take_step();
            }
            (Pending::Arrival { seq, .. }, Outcome::Nak(_) | Outcome::End | Outcome::NotReady)
                if seq > self.receiver.rcv_nxt() => {}
            (_, Outcome::Nak(code)) => self.refuse(self.receiver.rcv_nxt(), code, counters),
            (_, Outcome::End) => {
                self.fatal = Some((self.receiver.rcv_nxt() - 1, ACK));
                self.ended = true;
            }
            (Pending::Kept, Outcome::Done) => self.handed_over(counters),
            (Pending::Kept, Outcome::NotReady) => self.stall(),
            (_, Outcome::NotReady) => {
                counters.out_of_buffer += 1;
                self.not_ready = true;
            }
            // A value for a request that is not an atomic; the NIC never returns this.
            (Pending::Arrival { .. } | Pending::Completion | Pending::Kept, Outcome::Value(_)) => {}
            // `conclude_prism` concludes these packets.
            (Pending::Prism { .. }, _) => {}
        }
    }

    fn executed(&mut self, request: Seq, value: Option<Wanted>) {
        let Some(read) = self.reads.due(request) else { return };
        // A new request proves that the requester is alive.
        self.quiet = false;
        let count = if let Wanted::Memory { len, .. } = read.wanted { packets(len, self.mtu) } else { 1 };
        let first = self.responses;
        self.responses += u64::from(count);
        self.take_step();
        self.reads.executed(value, first, self.responses, self.receiver.msn(), self.skipped as u32);
    }

    /// Advances the order over packet `rcv_nxt`, which was processed.
    #[inline]
    fn take_step(&mut self) {
        let seq = self.receiver.rcv_nxt();
        self.receiver.step();
        self.stepped(seq);
    }

    /// Updates the acknowledgements after the order advanced over packet `seq`.
    #[inline]
    fn stepped(&mut self, seq: Seq) {
        debug_assert_eq!(self.receiver.rcv_nxt(), seq + 1, "the window advances by one packet");
        // The packet that the RNR NAK requested has arrived.
        self.not_ready = false;
        self.pending_acks.passed(seq, seq + 1);
        self.pending_acks.acknowledge();
    }

    /// Returns the next step after a step was concluded, or [`Step::Nothing`].
    pub fn due(&mut self) -> Step {
        if self.ended {
            return Step::Nothing;
        }
        loop {
            if let Some(step) = self.kept_due() {
                return step;
            }
            match self.receiver.front() {
                None => return Step::Nothing,
                Some(Ends::Completion) => {
                    self.pending = Some(Pending::Completion);
                    return Step::Complete;
                }
                Some(Ends::Message) => {
                    let request = self.receiver.rcv_nxt();
                    if let Some(read) = self.reads.due(request) {
                        let action = match read.wanted {
                            Wanted::Memory { key, va, len } => Action::Fetch { key, va, len },
                            Wanted::Atomic { key, va, atomic } => Action::Atomic { key, va, atomic },
                            _ => Action::Nothing,
                        };
                        self.pending = Some(Pending::Fetch { request });
                        return Step::Execute(action);
                    }
                    self.take_step();
                }
                Some(Ends::Nothing) => self.take_step(),
            }
        }
    }

    fn refuse(&mut self, seq: Seq, code: NakCode, counters: &mut Counters) {
        count_refusal(code, counters);
        self.fatal = Some((seq, Syndrome::nak(code)));
        self.ended = true;
    }

    /// Processes an acknowledgement of responses (READ ACK or NACK).
    pub fn acknowledged(&mut self, now: Instant, packet: &packet::View<'_>) {
        let (Some(aeth), Ok((additions, _))) = (packet.aeth(), Additions::split(packet)) else { return };
        let una = self.sent_as(self.sender.snd_una());
        let seq = extend(una, packet.bth.psn());
        let (upto, sack) = match (aeth.syndrome.kind(), additions.sack) {
            (aeth::Kind::Ack { .. }, _) => (seq + 1, None),
            (aeth::Kind::Nak(NakCode::PSN_SEQUENCE_ERROR), Some(sack)) => (seq, Some(extend(una, sack.psn))),
            _ => return,
        };
        self.answered(now, self.heard_as(upto), sack.map(|sack| self.heard_as(sack)));
    }

    /// Acknowledges all responses before `upto`, and `sack` selectively.
    fn answered(&mut self, now: Instant, upto: Seq, sack: Option<Seq>) {
        self.resume();
        let advanced = self.sender.acknowledge(upto, sack);
        self.sender.check_advance(upto, sack);
        if advanced {
            self.reads.acknowledged(self.sender.snd_una());
            let outstanding = self.sender.snd_una() < self.sender.snd_max();
            self.rto.advanced(now, self.sender.snd_una(), outstanding, self.sender.in_flight());
        }
        self.rto.follow(now, self.sender.head_waits(), self.sender.in_flight());
    }

    /// Returns true if a packet remains to be sent.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.not_ready
            || self.dropped
            || self.pending_acks.is_pending()
            || self.fatal.is_some()
            || !self.quiet && (self.sender.snd_nxt() < self.responses || !self.sender.in_turn())
    }

    /// Returns the next packet: acknowledgements first, then responses. A fatal NAK is sent after all
    /// responses have been acknowledged, because nothing may follow it.
    pub fn plan(&mut self) -> Option<Reply> {
        let rcv_nxt = self.receiver.rcv_nxt();
        if self.not_ready {
            return Some(self.answer(rcv_nxt, Syndrome::rnr(self.rnr_timer), ReplyCause::NotReady));
        }
        if let Some(pending_ack) = self.pending_acks.next(rcv_nxt) {
            let syndrome = match pending_ack.sack {
                None => return Some(self.answer(rcv_nxt - 1, ACK, ReplyCause::Pending(pending_ack))),
                Some(_) => Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
            };
            return Some(self.answer(rcv_nxt, syndrome, ReplyCause::Pending(pending_ack)));
        }
        if self.dropped {
            return Some(self.answer(
                rcv_nxt,
                Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
                ReplyCause::Dropped,
            ));
        }
        if let Some(reply) = self.response() {
            return Some(reply);
        }
        let (seq, syndrome) = self.fatal.filter(|_| self.quiet || self.sender.snd_una() >= self.responses)?;
        Some(self.answer(seq, syndrome, ReplyCause::Fatal))
    }

    fn answer(&self, seq: Seq, syndrome: Syndrome, cause: ReplyCause) -> Reply {
        let sack = match cause {
            ReplyCause::Pending(pending_ack) => pending_ack.sack,
            ReplyCause::Dropped => Some(seq),
            _ => None,
        };
        let sack = sack.map(|seq| sack::Repr { psn: psn(seq) });
        Reply {
            opcode: Opcode::RC_ACKNOWLEDGE,
            psn: psn(seq),
            aeth: Some((syndrome, self.receiver.msn())),
            additions: Additions { sack, ..Additions::default() },
            kind: ReplyKind::Acknowledge { fatal: cause == ReplyCause::Fatal },
            cause,
        }
    }

    fn response(&mut self) -> Option<Reply> {
        if self.quiet {
            return None;
        }
        let mut chosen = self.sender.choose(self.responses);
        if chosen.is_none() && self.sender.must_look() {
            self.sender.transmitted(None);
            chosen = self.sender.choose(self.responses);
        }
        let seq = chosen.filter(|seq| self.reaches(*seq))?;
        let cause = ReplyCause::Response { seq, again: seq < self.sender.snd_max() };
        Some(self.data(self.reads.of(seq)?, seq, cause))
    }

    fn data(&self, read: &Read, seq: Seq, cause: ReplyCause) -> Reply {
        let aeth = Some((ACK, read.msn));
        let number = seq + (Seq::from(read.skipped) & NUMBERS);
        let blank = Reply {
            opcode: Opcode::RC_ATOMIC_ACKNOWLEDGE,
            psn: psn(number),
            aeth,
            additions: Additions::default(),
            kind: ReplyKind::Value(0),
            cause,
        };
        let (key, va, len) = match read.wanted {
            Wanted::Value(old) => return Reply { kind: ReplyKind::Value(old), ..blank },
            // An atomic that is not executed has no responses.
            Wanted::Atomic { .. } => return blank,
            Wanted::Memory { key, va, len } => (key, va, len),
            Wanted::Number { .. } | Wanted::Wide { .. } | Wanted::Snapshot { .. } => {
                return self.result(read, blank);
            }
        };
        let offset = (seq - read.first) as u32 * self.mtu;
        let first = seq == read.first;
        let last = seq + 1 == read.end;
        let opcode = read_response(first, last);
        let va = va.wrapping_add(u64::from(offset));
        let kind = ReplyKind::Memory { key, va, len: (len - offset).min(self.mtu) };
        Reply { opcode, aeth: aeth.filter(|_| first || last), kind, ..blank }
    }

    /// Records that the planned packet was sent. Returns true if it was a fatal NAK, so that the queue pair
    /// must enter the error state.
    pub fn sent(&mut self, now: Instant, reply: &Reply, counters: &mut Counters) -> bool {
        match reply.cause {
            ReplyCause::NotReady => {
                counters.send_rnr_err += 1;
                self.not_ready = false;
            }
            ReplyCause::Dropped => self.dropped = false,
            ReplyCause::Pending(pending_ack) => self.pending_acks.sent(&pending_ack),
            ReplyCause::Response { seq, again } => {
                counters.irn_responses_repeated += u64::from(again);
                self.sender.transmitted(Some(seq));
                self.rto.sent(now, seq, !again, self.sender.in_flight());
            }
            ReplyCause::Fatal => {
                self.fatal = None;
                return true;
            }
        }
        false
    }

    /// Refuses the planned response, because its memory is no longer readable. On its first transmission
    /// this ends the queue pair, as without IRN. On a retransmission the peer may already have all responses
    /// and only its acknowledgement was lost. The peer then gets a NAK, and its queue pair ends only if it
    /// still needs the data. Returns the packet to send in place of the response.
    pub fn deny(&mut self, reply: &Reply, code: NakCode, counters: &mut Counters) -> Option<Reply> {
        let ReplyCause::Response { seq, again } = reply.cause else { return None };
        let request = self.reads.of(seq)?.request;
        if again {
            let nak = self.answer(request, Syndrome::nak(code), reply.cause);
            return Some(nak);
        }
        // Earlier responses are still sent, but none of this request or later ones.
        self.responses = seq;
        self.refuse(request, code, counters);
        None
    }

    /// Returns the time of the next timer, or [`Instant::NEVER`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.rto.deadline()
    }

    /// Runs the timers that are due at `now`. All packets that arrived until `rx_drained_at` have been
    /// processed.
    pub fn expire(&mut self, now: Instant, rx_drained_at: Instant, counters: &mut Counters) {
        if rx_drained_at < self.rto.deadline() {
            return;
        }
        match self.sender.timeout(self.rto.is_short()) {
            Timeout::Idle => self.rto.stop(),
            Timeout::Extended => self.rto.extend(),
            Timeout::Resend => {
                counters.irn_response_timeouts += 1;
                self.rto.expired(now);
                if rx_drained_at >= self.rto.patience(self.patience_ns, 0) {
                    self.rto.stop();
                    self.quiet = true;
                }
            }
        }
    }

    /// Records that the requester has no buffer for the next response.
    #[cold]
    pub fn blocked(&mut self, now: Instant) {
        self.rto.blocked(now, self.sender.in_flight());
    }

    /// Returns true if a response is outstanding that may have to be retransmitted.
    pub fn repeats(&self) -> bool {
        self.rto.is_resting() || self.rto.deadline() < Instant::NEVER
    }

    /// Resumes sending responses, because a packet proves that the requester is alive.
    fn resume(&mut self) {
        self.quiet = false;
    }

    /// Returns the bytes of the bitmaps of `receiver` (two), `sender` and `pending_acks`.
    pub fn bitmap_bytes(&self) -> [usize; 3] {
        [self.receiver.bitmap_bytes(), self.sender.bitmap_bytes(), self.pending_acks.bitmap_bytes()]
    }
}

/// Added to the numbers of receive work requests, which start at 0, because the extension from 24 bits may
/// go below its base.
const BASE: u64 = 1 << 24;

const ACK: Syndrome = Syndrome::ack(aeth::NO_CREDITS);

/// Mask of the numbers that packets carry, which have 24 bits.
const NUMBERS: Seq = 0x00ff_ffff;
