//! The IRN requester. It numbers requests and expected responses in two sequences, retransmits lost
//! requests, accepts responses in any order, and retires messages in the order of their submission.
//!
//! Read `sender.rs` first. A READ or atomic uses one PSN in the sequence of requests. Its responses have
//! PSNs of their own in the sequence of responses.

mod check;
mod fetches;
mod prism;

use super::delay::RetransmitDelay;
use super::pending_acks::{PendingAck, PendingAcks};
use super::receiver::{Arrival, Tracker};
use super::{Recovery, Rto, Sender, Settings, Timeout};
use crate::rc::ending::refusal_status;
use crate::rc::message::{Kind, Message, Placed};
use crate::rc::messages::{Messages, message_methods};
use crate::rc::requester::headers;
use crate::rc::{Parameters, Progress, Reaction, Retired, Seq, extend, packets, psn, start};
use crate::{Counters, Instant, Status, timers};
use fetches::{Fetch, forget_answered};
use remora_wire::irn::{Additions, fetch, message};
use remora_wire::prism::Verdict;
use remora_wire::{Extensions, NakCode, Opcode, Psn, aeth, packet, reth};
use std::collections::VecDeque;

/// The next request packet without its payload.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Op-code of the packet.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// AckReq bit: requests an immediate acknowledgement.
    pub ack_req: bool,
    /// Solicited-event bit of the BTH.
    pub solicited: bool,
    /// Extension headers of the packet.
    pub ext: Extensions,
    /// IRN's additional headers.
    pub additions: Additions,
    /// Offset of the payload in the message, in bytes.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    number: u64,
    seq: Seq,
    /// True for the last packet of the message.
    last: bool,
}

/// The PSNs in an ACK or NACK of responses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// PSN in the BTH: in an ACK the last PSN received in order, in a NACK the first missing PSN
    /// (`rcv_nxt`).
    pub cumulative: Psn,
    /// PSN of the packet that arrived after a gap; `None` in an ACK.
    pub sack: Option<Psn>,
}

/// The NIC's context, and the message's numbers in IRN's other sequences.
#[derive(Copy, Clone, Debug)]
struct Numbered<D> {
    context: D,
    /// Sequence number of the first response of a READ or atomic. For other messages, one past the last
    /// response of all earlier messages.
    responses: Seq,
    /// Number of the receive work request that the message uses, or number among the READs and atomics.
    number: u32,
    /// Result of a PRISM operation, as the number of its `Verdict`.
    verdict: u8,
}

/// The requester of one queue pair.
pub struct Requester<D> {
    messages: Messages<Numbered<D>>,
    sender: Sender,
    rto: Rto,
    tracker: Tracker,
    pending_acks: PendingAcks,
    /// Sequence number of the first response of the next READ or atomic.
    next_response: Seq,
    next_receive: u32,
    next_fetch: u32,
    /// READs and atomics that were sent and are not fully answered, oldest first.
    fetches: VecDeque<Fetch>,
    /// True if responses that arrive after a gap are kept.
    keeps: bool,
    delay: RetransmitDelay,
}

const NUMBER: u32 = 0x00ff_ffff;

impl<D: Copy> Requester<D> {
    /// Returns a requester whose first packet has PSN `first`. `capacity` is the maximum number of
    /// outstanding messages, and `peer` the number of packets that the peer can record after a gap.
    pub fn new(first: Psn, capacity: u32, parameters: Parameters, settings: &Settings, peer: u32) -> Self {
        let first = start(first);
        Requester {
            sender: Sender::new(first, settings, settings.in_flight(peer).min(parameters.window)),
            rto: Rto::new(settings),
            tracker: Tracker::new(first, settings.bitmap),
            pending_acks: PendingAcks::new(settings.bitmap),
            next_response: first,
            next_receive: 0,
            next_fetch: 0,
            fetches: VecDeque::with_capacity(usize::from(parameters.max_rd_atomic)),
            keeps: settings.ablations().recovery != Recovery::GoBackN,
            delay: RetransmitDelay::new(settings.ablations().retransmit_delay_ns),
            messages: Messages::new(first, capacity, parameters),
        }
    }

    /// Changes `timeout`, `retry_cnt` and `rnr_retry` of a running queue pair.
    pub fn retune(&mut self, parameters: Parameters) {
        self.messages.retune(parameters);
    }

    message_methods!();

    /// Returns the acknowledged and sent sequence numbers.
    pub fn progress(&self) -> Progress {
        let sender = &self.sender;
        Progress { acknowledged: sender.snd_una(), sent: sender.snd_max(), clean: !sender.in_recovery() }
    }

    /// Returns the number of submitted packets that have never been sent.
    #[inline]
    pub fn backlog(&self) -> u64 {
        self.messages.write_seq - self.sender.snd_max()
    }

    /// Returns the sending half, for diagnostic tools.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Returns the retransmission timer, for diagnostic tools.
    pub fn rto(&self) -> &Rto {
        &self.rto
    }

    /// Submits a message. The caller has checked `has_capacity`.
    #[inline(always)]
    pub fn submit(&mut self, message: Message<D>) {
        debug_assert!(self.has_capacity(), "the caller checks the capacity before it submits");
        let mut number = 0;
        let mtu = self.messages.parameters.mtu;
        // A READ or atomic records where its responses begin. Any other message records where those of all
        // earlier messages end, because it waits for them if it is fenced.
        let responses = self.next_response;
        let requests = match message.kind {
            Kind::Local => 0,
            kind if kind.is_fetch() => {
                self.next_response += responses_of(&message, mtu);
                number = self.next_fetch;
                self.next_fetch = (number + 1) & NUMBER;
                if let Kind::Prism(extended) = kind { extended.requests(message.len, mtu) } else { 1 }
            }
            kind => {
                if takes_receive(&kind) {
                    number = self.next_receive;
                    self.next_receive = (number + 1) & NUMBER;
                }
                packets(message.len, mtu)
            }
        };
        let Message { kind, len, fence, solicited, context } = message;
        let context = Numbered { context, responses, number, verdict: 0 };
        let message = Message { kind, len, fence, solicited, context };
        let end = self.messages.write_seq + u64::from(requests);
        self.messages.append(message, end, self.sender.snd_nxt());
    }

    /// Returns true if a request or an acknowledgement of responses remains to be sent, or a message can be
    /// retired.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.sender.snd_nxt() < self.messages.write_seq
            || self.sender.flags()[0]
            || self.sender.must_look()
            || self.pending_acks.is_pending()
            || self.messages.failing.any()
            || self.messages.window.front().is_some_and(|front| {
                is_complete(front, &self.sender, &self.tracker, self.messages.parameters.mtu)
            })
    }

    /// Returns the next request packet, or `None` if nothing can be sent now. Always inlined, like `sent`,
    /// because a plan has 200 bytes.
    #[inline(always)]
    pub fn plan(&mut self, now: Instant) -> Option<Plan> {
        if now < self.messages.rnr_until {
            return None;
        }
        let (placed, number, seq) = if self.sender.in_turn() {
            if !self.sender.has_window() {
                return None;
            }
            let next = self.sender.snd_nxt();
            (self.begins(next)?, self.messages.next_message, next)
        } else {
            let (number, seq) = self.choose(now)?;
            (self.messages.window.get(number)?, number, seq)
        };
        if let Kind::Prism(_) = placed.message.kind {
            // `plan_prism` plans these packets.
            return None;
        }
        Some(self.describe(placed, number, seq))
    }

    /// Returns message and PSN of the next packet when it is not simply the next new one.
    #[cold]
    #[inline(never)]
    fn choose(&mut self, now: Instant) -> Option<(u64, Seq)> {
        let chosen = self.chosen();
        if chosen.is_none() {
            // Nothing waits for a rate limit, a scheduler or a full port, so the timer must run.
            self.rto.blocked(now, self.sender.in_flight());
        }
        chosen.filter(|(_, seq)| *seq >= self.sender.snd_max() || !self.delay.holds(now, *seq))
    }

    fn chosen(&mut self) -> Option<(u64, Seq)> {
        let limit = self.limit();
        let mut chosen = self.sender.choose(limit);
        if chosen.is_none() && self.sender.must_look() {
            self.sender.transmitted(None);
            chosen = self.sender.choose(limit);
        }
        let seq = chosen?;
        let number = if seq == self.sender.next_unsacked() {
            self.messages.next_message
        } else {
            self.messages.window.find(seq, self.messages.next_message)?
        };
        if self.messages.failing.bars(number) {
            return None;
        }
        self.messages.window.get(number).filter(|placed| placed.first <= seq && seq < placed.end)?;
        Some((number, seq))
    }

    /// Returns the PSN before which packets may be sent: `snd_max` after a rewind, otherwise the end of the
    /// next new packet's message if that may be sent.
    #[inline]
    fn limit(&self) -> Seq {
        let upcoming = self.sender.next_unsacked();
        if upcoming < self.sender.snd_max() {
            return self.sender.snd_max();
        }
        if self.begins(upcoming).is_some() { self.messages.write_seq } else { upcoming }
    }

    /// Returns the message of the next new packet if that packet may be sent.
    #[inline(always)]
    fn begins(&self, upcoming: Seq) -> Option<&Placed<Numbered<D>>> {
        let placed = self.messages.window.get(self.messages.next_message)?;
        let message = &placed.message;
        if self.messages.failing.bars(self.messages.next_message) {
            return None;
        }
        if message.kind.is_fetch()
            && self.fetches.len() >= usize::from(self.messages.parameters.max_rd_atomic)
        {
            return None;
        }
        // Packets are processed out of order, so a fence waits for all earlier messages, not only for READs
        // and atomics.
        let fenced = message.fence && upcoming == placed.first;
        let waits = fenced
            && (self.sender.snd_una() != placed.first || self.tracker.rcv_nxt() < message.context.responses);
        (!waits).then_some(placed)
    }

    #[inline(always)]
    fn describe(&self, placed: &Placed<Numbered<D>>, number: u64, seq: Seq) -> Plan {
        let message = &placed.message;
        let mtu = self.messages.parameters.mtu;
        let fetch = message.kind.is_fetch();
        let index = (seq - placed.first) as u32;
        let offset = index * mtu;
        let last = seq + 1 == placed.end;
        let len = if last { message.len - offset } else { mtu };
        let (opcode, ext) = headers(&message.kind, index == 0, last, offset, message.len);
        Plan {
            opcode,
            psn: psn(seq),
            ack_req: true,
            solicited: last && message.solicited,
            ext,
            additions: additions(message, offset, last),
            offset,
            len: if fetch { 0 } else { len },
            number,
            seq,
            last,
        }
    }

    /// Returns the context of the message that the planned packet belongs to. Always inlined, like `plan`.
    #[inline(always)]
    pub fn context(&self, plan: &Plan) -> Option<&D> {
        self.messages.window.get(plan.number).map(|placed| &placed.message.context.context)
    }

    /// Records that the planned packet was sent. Always inlined, so that the plan stays in registers.
    #[inline(always)]
    pub fn sent(&mut self, now: Instant, plan: &Plan, counters: &mut Counters) {
        let new = plan.seq >= self.sender.snd_max();
        if new && plan.additions.fetch.is_some() {
            self.fetching(plan.number);
        }
        if new && self.sender.in_turn() {
            self.sender.transmitted(Some(plan.seq));
            if plan.last {
                self.messages.next_message += 1;
                self.messages.step_over_local(self.sender.next_unsacked());
            }
        } else {
            self.sent_out_of_turn(plan.seq, new, counters);
        }
        self.rto.sent(now, plan.seq, new, self.sender.in_flight());
    }

    #[cold]
    #[inline(never)]
    fn sent_out_of_turn(&mut self, seq: Seq, new: bool, counters: &mut Counters) {
        counters.retransmitted_pkts += u64::from(!new);
        self.delay.sent();
        let recovering = self.sender.in_recovery();
        self.sender.transmitted(Some(seq));
        counters.irn_recoveries += u64::from(!recovering && self.sender.in_recovery());
        self.seek();
    }

    /// Records that READ or atomic `number` was sent.
    #[inline]
    fn fetching(&mut self, number: u64) {
        let Some(placed) = self.messages.window.get(number) else { return };
        let first = placed.message.context.responses;
        let end = first + responses_of(&placed.message, self.messages.parameters.mtu);
        self.fetches.push_back(Fetch { first, end, answer_end: end, message: number });
    }

    /// Sets `next_message` to the message of the packet that is next in sequence.
    fn seek(&mut self) {
        let upcoming = self.sender.next_unsacked();
        let head = self.messages.window.bounds().0;
        while self.messages.next_message > head
            && self
                .messages
                .window
                .get(self.messages.next_message - 1)
                .is_some_and(|placed| placed.end > upcoming)
        {
            self.messages.next_message -= 1;
        }
        self.messages.step_over_local(self.sender.next_unsacked());
    }

    /// Makes the message of a planned packet fail, because the packet could not be built from local memory.
    #[inline(always)]
    pub fn refuse(&mut self, plan: &Plan, status: Status) {
        self.fail(plan.number, status);
    }

    /// Removes and returns the next finished message, in order. After a message in error the queue pair is
    /// in the error state, and the caller must `flush` the rest.
    #[inline(always)]
    pub fn retire(&mut self) -> Option<Retired<D>> {
        let Requester { messages, sender, tracker, .. } = self;
        let mtu = messages.parameters.mtu;
        let (message, status) = messages.retire(|front| is_complete(front, sender, tracker, mtu))?;
        let retired = message.retired(message.context.context, status);
        let Kind::Prism(_) = message.kind else { return Some(retired) };
        let verdict = Verdict::from_number(u32::from(message.context.verdict)).unwrap_or_default();
        Some(Retired { verdict, ..retired })
    }

    /// Removes and returns the oldest message unfinished (flush).
    pub fn flush(&mut self) -> Option<Retired<D>> {
        let message = self.messages.flush()?;
        self.rto.stop();
        self.fetches.clear();
        Some(message.retired(message.context.context, Status::WrFlushed))
    }

    /// Returns the time at which the peer counts as dead if only responses are outstanding. The responder's
    /// timers retransmit these, so this requester runs no retransmission timer.
    #[inline]
    fn silence_ends(&self) -> Instant {
        let nothing_else = self.rto.deadline() == Instant::NEVER && !self.rto.is_resting();
        if nothing_else && !self.fetches.is_empty() {
            self.rto.patience(self.messages.parameters.patience_ns(), 0)
        } else {
            Instant::NEVER
        }
    }

    /// Returns the time of the next timer, or [`Instant::NEVER`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        let deadline = self.rto.deadline().min(self.silence_ends()).min(self.delay.deadline());
        if self.messages.rnr_until > Instant(0) { deadline.min(self.messages.rnr_until) } else { deadline }
    }

    /// Runs the timers that are due at `now`. All packets that arrived until `rx_drained_at` have been
    /// processed.
    pub fn expire(&mut self, now: Instant, rx_drained_at: Instant, counters: &mut Counters) {
        if self.messages.rnr_until > Instant(0) && now >= self.messages.rnr_until {
            self.messages.rnr_until = Instant(0);
            // Usually the next retransmission starts the timer. But if the peer has acknowledged everything
            // after the oldest packet selectively, nothing is retransmitted, so the timer is set here.
            self.follow(now);
        }
        self.delay.expire(now);
        if rx_drained_at >= self.silence_ends() {
            return self.give_up(counters);
        }
        if rx_drained_at < self.rto.deadline() {
            return;
        }
        let short = self.rto.is_short();
        match self.sender.timeout(short) {
            Timeout::Idle => self.rto.stop(),
            Timeout::Extended => self.rto.extend(),
            Timeout::Resend => {
                counters.local_ack_timeout_err += 1;
                counters.irn_short_timeouts += u64::from(short);
                if rx_drained_at
                    >= self
                        .rto
                        .patience(self.messages.parameters.patience_ns(), self.messages.parameters.retry_cnt)
                {
                    return self.give_up(counters);
                }
                self.seek();
                self.rto.expired(now);
            }
        }
    }

    /// Records that the peer has no buffer for the next packet.
    #[cold]
    pub fn blocked(&mut self, now: Instant) {
        if now >= self.messages.rnr_until {
            self.rto.blocked(now, self.sender.in_flight());
        }
    }

    fn give_up(&mut self, counters: &mut Counters) {
        counters.retry_exceeded_err += 1;
        self.rto.stop();
        self.fetches.clear();
        self.fail(self.messages.window.bounds().0, Status::RetryExceeded);
    }

    /// Processes an acknowledgement or a response.
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) -> Reaction<D> {
        match packet.bth.opcode() {
            Opcode::RC_ACKNOWLEDGE => self.acknowledged(now, packet, counters),
            opcode if opcode.is_response() => return self.answered(now, packet, counters),
            _ => {}
        }
        Reaction::Nothing
    }

    #[inline]
    fn acknowledged(&mut self, now: Instant, packet: &packet::View<'_>, counters: &mut Counters) {
        let Some(aeth) = packet.aeth() else { return };
        let seq = extend(self.sender.snd_una(), packet.bth.psn());
        let kind = aeth.syndrome.kind();
        match kind {
            aeth::Kind::Ack { .. } => self.arrived(now, seq + 1, None),
            _ => self.nak_arrived(now, seq, kind, packet, counters),
        }
    }

    /// Processes a NAK, an RNR NAK or a selective acknowledgement.
    #[cold]
    #[inline(never)]
    fn nak_arrived(
        &mut self,
        now: Instant,
        seq: Seq,
        kind: aeth::Kind,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) {
        let Ok((additions, _)) = Additions::split(packet) else { return };
        match (kind, additions.sack) {
            (aeth::Kind::Nak(NakCode::PSN_SEQUENCE_ERROR), Some(sack)) => {
                counters.packet_seq_err += 1;
                self.arrived(now, seq, Some(extend(self.sender.snd_una(), sack.psn)));
            }
            (aeth::Kind::Rnr { timer }, _) => self.not_ready(now, seq, timer, counters),
            (aeth::Kind::Nak(code), _) => self.nak_received(now, seq, code, counters),
            (aeth::Kind::Ack { .. } | aeth::Kind::Reserved, _) => {}
        }
    }

    /// Acknowledges all requests before `upto`, and `sack` selectively.
    #[inline]
    fn arrived(&mut self, now: Instant, upto: Seq, sack: Option<Seq>) {
        let moves = sack.is_some() || !self.sender.is_undisturbed();
        let advanced = self.sender.acknowledge(upto, sack);
        self.sender.check_advance(upto, sack);
        if advanced {
            let outstanding = self.sender.snd_una() < self.sender.snd_max();
            self.rto.advanced(now, self.sender.snd_una(), outstanding, self.sender.in_flight());
            self.messages.rnr_retries = self.messages.parameters.rnr_retry;
        }
        if moves {
            self.seek();
            self.follow(now);
        }
    }

    /// Rests the timer while the oldest packet waits for its retransmission or for the peer to become ready.
    fn follow(&mut self, now: Instant) {
        let waits = self.sender.head_waits().map(|waits| waits || now < self.messages.rnr_until);
        self.rto.follow(now, waits, self.sender.in_flight());
    }

    fn not_ready(&mut self, now: Instant, seq: Seq, timer: u8, counters: &mut Counters) {
        let stale = seq < self.sender.snd_una() || seq >= self.sender.snd_max();
        if stale || (seq == self.sender.snd_una() && now < self.messages.rnr_until) {
            return;
        }
        self.messages.count_rnr_nak(counters);
        self.arrived(now, seq, None);
        if !self.messages.may_wait(counters) {
            return self.fail(
                self.messages.number_of(seq, self.messages.window.bounds().0),
                Status::RnrRetryExceeded,
            );
        }
        // Later messages found no receive work request either, and the peer dropped them without a NAK.
        self.sender.rewind();
        self.seek();
        self.rto.heard(now);
        self.rto.stop();
        self.rto.rest(now, true);
        self.messages.rnr_until = now.after(timers::rnr_timer_ns(timer));
    }

    fn nak_received(&mut self, now: Instant, seq: Seq, code: NakCode, counters: &mut Counters) {
        let front = self.messages.window.front().map_or(self.messages.write_seq, |front| front.first);
        if seq < front || seq >= self.sender.snd_max() {
            // All responses of this READ have arrived. The responder does not know that yet and tried to
            // retransmit from memory that is no longer accessible.
            self.pending_acks.acknowledge();
            return;
        }
        // A sequence error without the SACK header is invalid with IRN and maps to a bad response, like
        // reserved codes.
        let status = refusal_status(code, counters);
        let number = self.messages.number_of(seq, self.messages.window.bounds().0);
        if self.messages.window.get(number).is_some_and(|placed| {
            is_complete(placed, &self.sender, &self.tracker, self.messages.parameters.mtu)
        }) {
            self.pending_acks.acknowledge();
            return;
        }
        self.arrived(now, seq, None);
        self.fail(number, status);
    }

    /// Processes a READ or atomic response, in any order.
    fn answered(&mut self, now: Instant, packet: &packet::View<'_>, counters: &mut Counters) -> Reaction<D> {
        let seq = extend(self.tracker.rcv_nxt(), packet.bth.psn());
        let arrival = self.tracker.arrival(seq);
        match arrival {
            Arrival::InOrder => {}
            Arrival::Gap if self.keeps => {}
            Arrival::Duplicate => {
                self.pending_acks.acknowledge();
                return Reaction::Nothing;
            }
            Arrival::Gap | Arrival::GapDuplicate => {
                self.pending_acks.report(seq);
                return Reaction::Nothing;
            }
            Arrival::OutOfReach => {
                counters.irn_beyond_pkts += 1;
                return Reaction::Nothing;
            }
        }
        let fetch = self.fetches.iter().find(|fetch| seq < fetch.end).copied();
        let Some(fetch) = fetch.filter(|fetch| fetch.first <= seq) else { return Reaction::Nothing };
        let Some(placed) = self.messages.window.get(fetch.message).copied() else { return Reaction::Nothing };
        let message = placed.message;
        let offset = (seq - fetch.first) as u32 * self.messages.parameters.mtu;
        let context = message.context.context;
        let number = fetch.message;
        let reaction = match (message.kind, packet.atomic_ack()) {
            (Kind::Atomic { .. }, Some(ack)) => {
                Some(Reaction::Value { context, number, value: ack.original })
            }
            (Kind::Read { .. }, None) if self.fits(message.len, offset, packet.payload.len()) => {
                Some(Reaction::Scatter { context, number, offset })
            }
            (Kind::Prism(extended), _) => self.answered_prism(&fetch, &extended, seq, packet),
            _ => None,
        };
        let Some(reaction) = reaction else {
            self.fail(number, Status::BadResponse);
            return Reaction::Nothing;
        };
        self.tracker.take(seq);
        forget_answered(&mut self.fetches, &mut self.tracker);
        if arrival == Arrival::Gap {
            counters.irn_ahead_pkts += 1;
            self.pending_acks.report(seq);
        } else {
            self.pending_acks.acknowledge();
            self.pending_acks.passed(seq, self.tracker.rcv_nxt());
        }
        self.rto.heard(now);
        // The request was executed in order, so all earlier requests were executed too.
        self.arrived(now, placed.end, None);
        reaction
    }

    #[inline]
    fn fits(&self, len: u32, offset: u32, payload: usize) -> bool {
        payload as u32 == (len - offset).min(self.messages.parameters.mtu)
    }

    /// Returns true if an ACK or NACK of responses must be sent.
    #[inline]
    pub fn has_pending_ack(&self) -> bool {
        self.pending_acks.is_pending()
    }

    /// Returns the next ACK or NACK of responses, and its PSNs as transmitted.
    pub fn pending_ack(&self) -> Option<(PendingAck, Numbers)> {
        let pending_ack = self.pending_acks.next(self.tracker.rcv_nxt())?;
        let cumulative =
            if pending_ack.sack.is_some() { pending_ack.rcv_nxt } else { pending_ack.rcv_nxt - 1 };
        Some((pending_ack, Numbers { cumulative: psn(cumulative), sack: pending_ack.sack.map(psn) }))
    }

    /// Records that the ACK or NACK was sent.
    pub fn pending_ack_sent(&mut self, pending_ack: &PendingAck) {
        self.pending_acks.sent(pending_ack);
    }

    /// Returns the bytes of the bitmaps of `sender`, `tracker` and `pending_acks`.
    pub fn bitmap_bytes(&self) -> [usize; 3] {
        [self.sender.bitmap_bytes(), self.tracker.bitmap_bytes(), self.pending_acks.bitmap_bytes()]
    }
}

/// Returns the number of response packets of a READ, atomic or PRISM operation.
#[inline]
fn responses_of<N>(message: &Message<N>, mtu: u32) -> u64 {
    u64::from(match message.kind {
        Kind::Prism(extended) => extended.answers(message.len, mtu),
        _ => packets(message.len, mtu),
    })
}

/// Returns true if all packets of a message are acknowledged and all its responses have arrived.
#[inline]
fn is_complete<D>(placed: &Placed<Numbered<D>>, sender: &Sender, tracker: &Tracker, mtu: u32) -> bool {
    let message = &placed.message;
    placed.end <= sender.snd_una()
        && (!message.kind.is_fetch()
            || message.context.responses + responses_of(message, mtu) <= tracker.rcv_nxt())
}

#[inline]
fn takes_receive(kind: &Kind) -> bool {
    matches!(kind, Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) | Kind::WriteImm { .. })
}

/// Returns the headers that IRN adds to the packet at `offset` of a message.
#[inline]
fn additions<D>(message: &Message<Numbered<D>>, offset: u32, last: bool) -> Additions {
    let number = message.context.number;
    let in_message = Some(message::Repr { number, offset });
    let rest = |va: u64, rkey| {
        let dma_len = message.len - offset;
        (offset > 0).then(|| reth::Repr { va: va.wrapping_add(u64::from(offset)), rkey, dma_len })
    };
    let none = Additions::default();
    match message.kind {
        Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) => Additions { message: in_message, ..none },
        Kind::Write { va, rkey } => Additions { reth: rest(va, rkey), ..none },
        Kind::WriteImm { va, rkey, .. } => {
            Additions { reth: rest(va, rkey), message: in_message.filter(|_| last), ..none }
        }
        Kind::RpcWrite { opcode, tag } => {
            // For a kernel, the RETH holds the op-code and the tag instead of address and key.
            let dma_len = message.len - offset;
            Additions { reth: (offset > 0).then_some(reth::Repr { va: opcode, rkey: tag, dma_len }), ..none }
        }
        Kind::Read { .. } | Kind::Atomic { .. } => Additions { fetch: Some(fetch::Repr { number }), ..none },
        Kind::Local | Kind::Prism(_) | Kind::Rpc { .. } => none,
    }
}
