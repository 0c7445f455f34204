//! The responder over IRN: takes request packets in any order and lets the NIC place them at once; ends
//! messages, executes READs and atomics and reports errors only in order; sends responses with a sender of
//! its own.
//!
//! `receive` returns a [`Step`]; the NIC executes it and calls `conclude` with the outcome. Then `due`
//! returns further steps, until there is none left.

mod check;
mod prism;
mod strom;

use super::judge::{Request, Write, judge, plain_write};
use super::owed::OwedAcks;
use super::reads::{Read, Reads, Wanted};
use super::receiver::{Ends, Place, Receiver};
use super::{Recovery, Rto, Sender, Settings, Timeout};
use crate::rc::ending::count_refusal;
use crate::rc::prism::{OperationInProgress, is_scratch};
use crate::rc::responder::{ReplyKind, count, read_response};
use crate::rc::strom::Part;
use crate::rc::{Allowed, Parameters, Seq, extend, packets, psn, start};
use crate::{Action, Counters, Instant, Notice, Outcome};
use remora_wire::aeth::Kind as Syndromes;
use remora_wire::irn::{Additions, sack};
use remora_wire::{NakCode, Opcode, Psn, Syndrome, WireError, aeth, packet};
use strom::Kept;

/// What the NIC is to do with a packet that has arrived, or for one whose turn has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing (more).
    Nothing,
    /// Something that does not concern the receive queue.
    Execute(Action),
    /// SEND: payload into receive work request `wqe`, counted from the connection's first, at `offset`. With
    /// a notice it is the message's last packet; the notice is kept until the work request's turn comes.
    Deliver {
        /// Which receive work request; those before it are bound too.
        wqe: u64,
        /// Position in the message.
        offset: u32,
        /// It is not ahead of a gap: what is wrong is wrong now.
        in_order: bool,
        /// What the message brings, if it ends here.
        notice: Option<Notice>,
    },
    /// Last packet of a WRITE with immediate data: bind the receive work request, place the payload, keep the
    /// notice.
    PlaceAndNotify {
        /// Which receive work request; those before it are bound too.
        wqe: u64,
        /// Remote key.
        key: u32,
        /// First byte.
        va: u64,
        /// Bytes to check.
        extent: u32,
        /// It is not ahead of a gap.
        in_order: bool,
        /// What the message brings.
        notice: Notice,
    },
    /// A packet for a kernel that came before its turn: keep it and its payload, under this number below the
    /// reach of the bitmaps.
    Keep {
        /// Which.
        slot: u32,
        /// What it is.
        part: Part,
    },
    /// The turn of the packet kept under this number has come: hand it to its kernel.
    Kept {
        /// Which.
        slot: u32,
    },
    /// The oldest receive work request that is bound has its message: write its completion.
    Complete,
}

/// A packet of the responder's that would leave now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Op-code.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// AETH: syndrome and message sequence number; absent on the middle packets of a READ.
    pub aeth: Option<(Syndrome, u32)>,
    /// IRN's additions.
    pub additions: Additions,
    /// What it carries.
    pub kind: ReplyKind,
    cause: ReplyCause,
}

/// Which of its debts a reply pays.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ReplyCause {
    NotReady,
    /// Packets were dropped that came before their turn.
    Dropped,
    Owed(super::owed::OwedAck),
    /// A response, sent again or not.
    Response {
        seq: Seq,
        again: bool,
    },
    Fatal,
}

/// What the NIC is doing for us.
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
    /// A packet for a kernel that was kept until its turn.
    Kept,
    /// A packet of PRISM, which reserves so many responses; `in_progress` is what it leaves under way.
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
    owed: OwedAcks,
    reads: Reads,
    /// Sends the responses.
    sender: Sender,
    rto: Rto,
    /// One past the last response that there is.
    responses: Seq,
    pending: Option<Pending>,
    /// Low end of the receive work requests: those that messages took and ended.
    completed: u64,
    not_ready: bool,
    fatal: Option<(Seq, NakCode)>,
    /// Nothing more is executed.
    ended: bool,
    mtu: u32,
    rnr_timer: u8,
    allowed: Allowed,
    patience_ns: u64,
    /// The timeout has passed: responses wait until a packet of the requester arrives.
    quiet: bool,
    keeps: bool,
    /// PRISM is agreed with the peer.
    prism: bool,
    /// The operation of PRISM whose packets are arriving.
    in_progress: Option<OperationInProgress>,
    /// A packet was dropped because it may be executed only in its turn.
    dropped: bool,
    /// Numbers of responses that were reserved and will not come.
    skipped: Seq,
    /// Responses further ahead than this the peer cannot remember.
    reach: Seq,
    /// With a peer that agreed on StRoM: which of the packets ahead are kept for a kernel.
    kept: Option<Box<Kept>>,
}

impl Responder {
    /// A responder that expects `first`; `peer` packets ahead is what the peer remembers.
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
            owed: OwedAcks::new(settings.bitmap),
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
            keeps: settings.recovery != Recovery::GoBackN,
            prism: false,
            in_progress: None,
            dropped: false,
            skipped: 0,
            reach: Seq::from(peer.max(1)),
            kept: None,
        }
    }

    /// Changes what a running queue pair allows, its RNR timer and its patience.
    pub fn retune(&mut self, allowed: Allowed, parameters: &Parameters) {
        self.allowed = allowed;
        self.rnr_timer = parameters.min_rnr_timer;
        self.patience_ns = parameters.patience_ns();
    }

    /// The receiving half, for tools.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The sending half, for tools.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The usual case by itself: a packet of a plain WRITE, the next in order, with nothing there behind it.
    /// If the NIC can place it, `passed` ends it without a look at the bitmaps; in every other case `receive`
    /// judges the packet.
    #[inline]
    pub fn next_write<'a>(&self, packet: &packet::View<'a>) -> Option<Write<'a>> {
        let usual = packet.bth.psn == psn(self.receiver.expected())
            && !self.receiver.has_ahead()
            && self.allowed.write
            && !self.ended
            && packet.bth.resv7 == 0
            && self.in_progress.is_none();
        if usual { plain_write(packet, self.mtu) } else { None }
    }

    /// The packet of `next_write` is placed.
    #[inline]
    pub fn passed(&mut self, write: &Write<'_>, counters: &mut Counters) {
        counters.rx_write_requests += u64::from(write.ends);
        let at = self.receiver.expected();
        self.receiver.pass(write.ends);
        self.stepped(at);
    }

    /// Judges a request packet: what to do, and with which bytes.
    pub fn receive<'a>(
        &mut self,
        now: Instant,
        packet: &packet::View<'a>,
        counters: &mut Counters,
    ) -> (Step, &'a [u8]) {
        if self.ended {
            return (Step::Nothing, &[]);
        }
        let seq = extend(self.receiver.expected(), packet.bth.psn);
        let place = self.receiver.place(seq);
        match place {
            Place::Next if self.is_kept(seq) => {
                counters.duplicate_request += 1;
                self.owed.acknowledge();
                return (Step::Nothing, &[]);
            }
            Place::Next => {}
            Place::Ahead if self.keeps => counters.out_of_sequence += 1,
            Place::Ahead | Place::Again => {
                counters.out_of_sequence += 1;
                self.owed.report(seq);
                return (Step::Nothing, &[]);
            }
            Place::Behind => {
                counters.duplicate_request += 1;
                self.owed.acknowledge();
                self.resume();
                return (Step::Nothing, &[]);
            }
            Place::Beyond => {
                counters.irn_beyond_pkts += 1;
                return (Step::Nothing, &[]);
            }
        }
        let in_order = place == Place::Next;
        if self.prism && (packet.bth.resv7 != 0 || in_order && self.in_progress.is_some()) {
            return self.receive_prism(now, packet, seq, in_order, counters);
        }
        match self.step(now, packet, seq, in_order) {
            Ok((step, payload)) => {
                let (opcode, ends) = (packet.bth.opcode, Ends::of(packet.bth.opcode));
                self.pending.get_or_insert(Pending::Arrival { seq, ends, opcode });
                (step, payload)
            }
            Err(code) => {
                // An error ahead of the order is none yet: the packet counts as lost, comes again, and is
                // judged then.
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
                (self.read_scratch(now, packet.bth.opcode, seq, number, key, va, len)?, &[])
            }
            Request::Fetch { number, wanted } => {
                let kept = self.reads.keep(seq, number, wanted, self.sender.high());
                if let Some(upto) = kept.map_err(|_| NakCode::INVALID_REQUEST)? {
                    self.answered(now, upto, None);
                }
                // Executed in its turn.
                (Step::Execute(Action::Nothing), &[])
            }
        })
    }

    /// The NIC has done the last step.
    pub fn conclude(&mut self, outcome: Outcome, counters: &mut Counters) {
        let Some(pending) = self.pending.take() else { return };
        match (pending, outcome) {
            (Pending::Arrival { seq, ends, opcode }, Outcome::Done) => {
                // What is kept for a kernel counts when the kernel has it.
                if ends != Ends::Nothing && !self.is_kept(seq) {
                    count(opcode, counters);
                }
                self.receiver.mark(seq, ends);
                if seq > self.receiver.expected() {
                    counters.irn_ahead_pkts += 1;
                    self.owed.report(seq);
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
            (Pending::Arrival { seq, .. }, Outcome::Nak(_) | Outcome::NotReady)
                if seq > self.receiver.expected() => {}
            (_, Outcome::Nak(code)) => self.refuse(self.receiver.expected(), code, counters),
            (Pending::Kept, Outcome::Done) => self.handed_over(counters),
            (Pending::Kept, Outcome::NotReady) => self.stall(),
            (_, Outcome::NotReady) => {
                counters.out_of_buffer += 1;
                self.not_ready = true;
            }
            // An old value for a request that is no atomic: no NIC answers so.
            (Pending::Arrival { .. } | Pending::Completion | Pending::Kept, Outcome::Value(_)) => {}
            // By `conclude_prism`.
            (Pending::Prism { .. }, _) => {}
        }
    }

    fn executed(&mut self, request: Seq, value: Option<Wanted>) {
        let Some(read) = self.reads.due(request) else { return };
        // A new request shows that the requester is alive.
        self.quiet = false;
        let count = if let Wanted::Memory { len, .. } = read.wanted { packets(len, self.mtu) } else { 1 };
        let first = self.responses;
        self.responses += u64::from(count);
        self.take_step();
        self.reads.executed(value, first, self.responses, self.receiver.msn(), self.skipped as u32);
    }

    /// The packet expected next has been dealt with.
    #[inline]
    fn take_step(&mut self) {
        let at = self.receiver.expected();
        self.receiver.step();
        self.stepped(at);
    }

    /// The order has gone on from packet `at` to the next.
    #[inline]
    fn stepped(&mut self, at: Seq) {
        debug_assert_eq!(self.receiver.expected(), at + 1, "the window advances by one packet");
        // What it asked to be sent again is here.
        self.not_ready = false;
        self.owed.passed(at, at + 1);
        self.owed.acknowledge();
    }

    /// What is due now that something was concluded.
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
                    let request = self.receiver.expected();
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
        self.fatal = Some((seq, code));
        self.ended = true;
    }

    /// A READ Acknowledge has arrived: about our responses.
    pub fn acknowledged(&mut self, now: Instant, packet: &packet::View<'_>) {
        let (Some(aeth), Ok((additions, _))) = (packet.aeth(), Additions::split(packet)) else { return };
        let una = self.sent_as(self.sender.una());
        let seq = extend(una, packet.bth.psn);
        let (upto, sack) = match (aeth.syndrome.kind(), additions.sack) {
            (Syndromes::Ack { .. }, _) => (seq + 1, None),
            (Syndromes::Nak(NakCode::PSN_SEQUENCE_ERROR), Some(sack)) => (seq, Some(extend(una, sack.psn))),
            _ => return,
        };
        self.answered(now, self.heard_as(upto), sack.map(|sack| self.heard_as(sack)));
    }

    /// Responses before `upto` have arrived, and `sack`.
    fn answered(&mut self, now: Instant, upto: Seq, sack: Option<Seq>) {
        self.resume();
        let advanced = self.sender.acknowledge(upto, sack);
        self.sender.check_advance(upto, sack);
        if advanced {
            self.reads.acknowledged(self.sender.una());
            let outstanding = self.sender.una() < self.sender.high();
            self.rto.advanced(now, self.sender.una(), outstanding, self.sender.in_flight());
        }
        self.rto.follow(now, self.sender.head_waits(), self.sender.in_flight());
    }

    /// Is there anything to send?
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.not_ready
            || self.dropped
            || self.owed.is_owed()
            || self.fatal.is_some()
            || !self.quiet && (self.sender.next() < self.responses || !self.sender.in_turn())
    }

    /// The packet that would leave now: acknowledgements, then responses; a NAK that ends the queue pair only
    /// when every response has been acknowledged, since nothing leaves after it.
    pub fn plan(&mut self) -> Option<Reply> {
        let expected = self.receiver.expected();
        if self.not_ready {
            return Some(self.answer(expected, Syndrome::rnr(self.rnr_timer), ReplyCause::NotReady));
        }
        if let Some(owed_ack) = self.owed.next(expected) {
            let syndrome = match owed_ack.sack {
                None => return Some(self.answer(expected - 1, ACK, ReplyCause::Owed(owed_ack))),
                Some(_) => Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
            };
            return Some(self.answer(expected, syndrome, ReplyCause::Owed(owed_ack)));
        }
        if self.dropped {
            return Some(self.answer(
                expected,
                Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
                ReplyCause::Dropped,
            ));
        }
        if let Some(reply) = self.response() {
            return Some(reply);
        }
        let (seq, code) = self.fatal.filter(|_| self.quiet || self.sender.una() >= self.responses)?;
        Some(self.answer(seq, Syndrome::nak(code), ReplyCause::Fatal))
    }

    fn answer(&self, seq: Seq, syndrome: Syndrome, cause: ReplyCause) -> Reply {
        let sack = match cause {
            ReplyCause::Owed(owed_ack) => owed_ack.sack,
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
        let cause = ReplyCause::Response { seq, again: seq < self.sender.high() };
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
            // Never executed without an old value.
            Wanted::Atomic { .. } => return blank,
            Wanted::Memory { key, va, len } => (key, va, len),
            Wanted::Number { .. } | Wanted::Wide { .. } | Wanted::Snapshot { .. } => {
                return self.result(read, blank);
            }
        };
        let offset = (seq - read.first) as u32 * self.mtu;
        let (first, last) = (seq == read.first, seq + 1 == read.end);
        let opcode = read_response(first, last);
        let va = va.wrapping_add(u64::from(offset));
        let kind = ReplyKind::Memory { key, va, len: (len - offset).min(self.mtu) };
        Reply { opcode, aeth: aeth.filter(|_| first || last), kind, ..blank }
    }

    /// The planned packet has left. True: it was a fatal NAK, and the queue pair is to enter the error state.
    pub fn sent(&mut self, now: Instant, reply: &Reply, counters: &mut Counters) -> bool {
        match reply.cause {
            ReplyCause::NotReady => {
                counters.send_rnr_err += 1;
                self.not_ready = false;
            }
            ReplyCause::Dropped => self.dropped = false,
            ReplyCause::Owed(owed_ack) => self.owed.sent(&owed_ack),
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

    /// The memory of the planned response may not be read any more. At the first transmission that ends the
    /// queue pair, as it does without IRN. At a retransmission the peer may have all of it, and its
    /// acknowledgement may be lost: it gets a NAK, and its queue pair ends only if it still needs the bytes.
    /// Returns what leaves in place of the response.
    pub fn deny(&mut self, reply: &Reply, code: NakCode, counters: &mut Counters) -> Option<Reply> {
        let ReplyCause::Response { seq, again } = reply.cause else { return None };
        let request = self.reads.of(seq)?.request;
        if again {
            let nak = self.answer(request, Syndrome::nak(code), reply.cause);
            return Some(nak);
        }
        // What was promised before it goes its way; nothing of it or after it.
        self.responses = seq;
        self.refuse(request, code, counters);
        None
    }

    /// When `expire` is due.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.rto.deadline()
    }

    /// Runs the timers that are due at `now`. Packets that arrived until `rx_drained_at` have been received.
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

    /// The requester has no buffer for the response that would leave now.
    #[cold]
    pub fn blocked(&mut self, now: Instant) {
        self.rto.blocked(now, self.sender.in_flight());
    }

    /// Is a response on the way that may have to be sent again?
    pub fn repeats(&self) -> bool {
        self.rto.is_resting() || self.rto.deadline() < Instant::NEVER
    }

    /// The requester is alive after all.
    fn resume(&mut self) {
        self.quiet = false;
    }

    /// Bytes of bitmaps: the receiver's two, the sender's, and that of what is owed.
    pub fn bitmap_bytes(&self) -> [usize; 3] {
        [self.receiver.bitmap_bytes(), self.sender.bitmap_bytes(), self.owed.bitmap_bytes()]
    }

    /// Bytes that it takes, those it has allocated too.
    pub fn state_bytes(&self) -> usize {
        size_of::<Self>() + self.reads.heap_bytes() + self.bitmap_bytes().iter().sum::<usize>()
    }
}

/// Receive work requests are counted from 0; the extension to 64 bits needs numbers below that.
const BASE: u64 = 1 << 24;

const ACK: Syndrome = Syndrome::ack(aeth::NO_CREDITS);

/// Numbers on the wire have 24 bits.
const NUMBERS: Seq = 0x00ff_ffff;
