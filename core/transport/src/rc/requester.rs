//! The requester of a reliable connection. It splits messages into packets, requests ACKs, retransmits lost
//! packets, and retires acknowledged messages.
//!
//! Read `message.rs` and `go_back_n.rs` first. `plan` returns the next packet as a [`Plan`] without changing
//! state, so a plan may be dropped. `sent` confirms the transmission.

mod ack_timer;
mod check;
mod delayed_ack;
mod operation_list;

use super::ending::refusal_status;
use super::go_back_n::Sender;
use super::message::{Kind, Message, Placed, Retired};
use super::messages::{Messages, message_methods};
use super::prism::{self, ParsedResponse};
use super::{FOR_EVER, Parameters, Progress, Seq, extend, psn, start, strom};
use crate::{Atomic, Counters, Instant, Status, timers};
use remora_wire::prism::{Flags, Verdict};
use remora_wire::{Extensions, NakCode, Opcode, Psn, packet};
use remora_wire::{aeth, atomic_eth, ieth, immdt, reth};
use std::collections::VecDeque;

pub use operation_list::{Followers, Part};

/// The next request packet without its payload.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Op-code of the packet.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// AckReq bit: requests an acknowledgement.
    pub ack_req: bool,
    /// Solicited-event bit of the BTH.
    pub solicited: bool,
    /// Extension headers of the packet.
    pub ext: Extensions,
    /// Offset of the payload in the message, in bytes.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// Number of the message that the packet belongs to.
    number: u64,
    /// Number of PSNs that the packet uses; more than 1 for a READ.
    count: u32,
    /// True for a READ or atomic.
    fetch: bool,
    /// True for the last packet of the message.
    last: bool,
}

/// The action that the NIC must execute for a response packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reaction<D> {
    /// No payload to store; completions may be ready.
    Nothing,
    /// READ response: store the payload in the message's local memory at `offset`.
    Scatter {
        /// Context of the READ.
        context: D,
        /// Number of the READ, an argument of `fail`.
        number: u64,
        /// Offset of the payload in the message, in bytes.
        offset: u32,
    },
    /// Atomic response: store this value in the message's local memory.
    Value {
        /// Context of the atomic.
        context: D,
        /// Number of the atomic, an argument of `fail`.
        number: u64,
        /// Old value of the target.
        value: u64,
    },
    /// Answer to a PRISM operation: store `head`, followed by the payload, as one number in network byte
    /// order.
    Number {
        /// Context of the operation.
        context: D,
        /// Number of the operation, an argument of `fail`.
        number: u64,
        /// Most significant 8 bytes of the number.
        head: u64,
    },
}

/// The requester of one queue pair.
pub struct Requester<D> {
    messages: Messages<D>,
    sender: Sender,
    /// The PSN after the last response, for each READ and atomic that was sent and is not fully
    /// answered, oldest first.
    fetches: VecDeque<Seq>,
    since_ack_req: u32,
    ack_req_every: u32,
    retries: u8,
    /// The PSN after the last packet in flight that requested an ACK. At most `snd_una` if the peer owes no
    /// ACK.
    ack_req_end: Seq,
    /// Expiration of the ACK timer. If the peer owes no ACK, the timer only checks why no packet has
    /// requested one (`ack_timer.rs`).
    ack_deadline: Instant,
    /// Current local ACK timeout, with backoff.
    ack_timeout_ns: u64,
    /// True if the peer has sent only duplicate ACKs or responses since the last timeout.
    repeated: bool,
    /// Value of `snd_nxt` when the peer last had no buffer for a packet; `Seq::MAX` otherwise.
    blocked_at: Seq,
    /// Number of the last submitted message that is conditional (PRISM).
    last_conditional: u64,
    /// Results of the PRISM operations that ended and are not retired.
    verdicts: VecDeque<Verdict>,
    /// End of the packet that must request an ACK, because a later packet that would have requested it could
    /// not be built.
    force_ack_req_at: Seq,
}

impl<D: Copy> Requester<D> {
    /// Returns a requester whose first packet has PSN `first`. `capacity` is the maximum number of
    /// outstanding messages.
    pub fn new(first: Psn, capacity: u32, parameters: Parameters) -> Self {
        let first = start(first);
        Requester {
            sender: Sender::new(first),
            fetches: VecDeque::with_capacity(usize::from(parameters.max_rd_atomic)),
            since_ack_req: 0,
            ack_req_every: parameters.ack_req_every(),
            retries: parameters.retry_cnt,
            ack_req_end: first,
            ack_deadline: Instant::NEVER,
            ack_timeout_ns: parameters.timeout_ns,
            repeated: false,
            blocked_at: Seq::MAX,
            last_conditional: 0,
            verdicts: VecDeque::new(),
            force_ack_req_at: 0,
            messages: Messages::new(first, capacity, parameters),
        }
    }

    /// Changes `timeout`, `retry_cnt` and `rnr_retry` of a running queue pair.
    pub fn retune(&mut self, parameters: Parameters) {
        self.messages.retune(parameters);
        self.ack_timeout_ns = parameters.timeout_ns;
        self.retries = parameters.retry_cnt;
    }

    message_methods!();

    /// Returns true if a READ or atomic is submitted and not retired.
    pub fn fetching(&self) -> bool {
        self.messages.fetch_messages > 0
    }

    /// Returns the acknowledged and sent sequence numbers.
    #[inline]
    pub fn progress(&self) -> Progress {
        let Sender { snd_una, snd_max, .. } = self.sender;
        Progress { acknowledged: snd_una, sent: snd_max, clean: !self.sender.retransmitting() }
    }

    /// Returns the number of packets that were sent since the last go-back and are not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.sender.in_flight()
    }

    /// Returns the number of submitted packets that have never been sent.
    #[inline]
    pub fn backlog(&self) -> u64 {
        self.messages.write_seq - self.sender.snd_max
    }

    /// Submits a message. The caller has checked `has_capacity`.
    #[inline(always)]
    pub fn submit(&mut self, message: Message<D>) {
        debug_assert!(self.has_capacity(), "the caller checks the capacity before it submits");
        let packets = message.kind.packets(message.len, self.messages.parameters.mtu);
        let end = self.messages.write_seq + u64::from(packets);
        self.messages.append(message, end, self.sender.snd_nxt);
        if packets == 0 {
            self.ask_for_ack();
        }
    }

    /// Enables PRISM, because the peer agreed on it: allocates memory for the results of operations.
    pub fn enable_prism(&mut self) {
        self.verdicts = VecDeque::with_capacity(self.messages.window.capacity());
    }

    /// Returns true if a packet remains to be sent or a message can be retired.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.sender.snd_nxt < self.messages.write_seq
            || self.messages.failing.any()
            || self.messages.window.front().is_some_and(|front| front.end <= self.sender.snd_una)
    }

    /// Returns the next request packet, or `None` if nothing can be sent now. Always inlined, so that plain
    /// RC pays nothing for the second caller.
    #[inline(always)]
    pub fn plan(&self, now: Instant) -> Option<Plan> {
        let placed = self.messages.window.get(self.messages.next_message)?;
        if now < self.messages.rnr_until {
            return None;
        }
        if self.messages.failing.bars(self.messages.next_message) {
            return None;
        }
        let index = (self.sender.snd_nxt - placed.first) as u32;
        let count = match placed.message.kind {
            Kind::Read { .. } | Kind::Atomic { .. } => self.piece(placed, index),
            // `plan_prism` plans these packets.
            Kind::Prism(_) => return None,
            _ => 1,
        };
        if self.waits(placed, index, count) {
            return None;
        }
        Some(self.describe(placed, index, count))
    }

    /// Returns true if the packet at `index` of a message must wait for acknowledgements or responses.
    #[inline(always)]
    fn waits(&self, placed: &Placed<D>, index: u32, count: u32) -> bool {
        // If the peer owes no ACK, waiting for one would never end.
        if self.ack_is_owed()
            && self.sender.in_flight() + u64::from(count) > u64::from(self.messages.parameters.window)
        {
            return true;
        }
        if placed.message.kind.is_fetch()
            && self.fetches.len() >= usize::from(self.messages.parameters.max_rd_atomic)
        {
            return true;
        }
        placed.message.fence && index == 0 && !self.fetches.is_empty()
    }

    /// Returns the next packet and its operation if the next message is a PRISM operation.
    #[cold]
    #[inline(never)]
    pub fn plan_prism(&self, now: Instant) -> Option<(Plan, prism::Extended)> {
        let placed = self.messages.window.get(self.messages.next_message)?;
        let Kind::Prism(extended) = placed.message.kind else { return None };
        if now < self.messages.rnr_until || self.messages.failing.bars(self.messages.next_message) {
            return None;
        }
        let index = (self.sender.snd_nxt - placed.first) as u32;
        // One request covers a whole READ, because the responder dereferences its pointer only once.
        let count = if extended.asks() { (placed.end - self.sender.snd_nxt) as u32 } else { 1 };
        (!self.waits(placed, index, count))
            .then(|| (self.describe_prism(placed, &extended, index, count), extended))
    }

    /// Returns the number of PSNs that one request of a READ covers, from packet `index` on. Pieces are
    /// aligned, so that a retransmitted request lies within the original piece.
    #[inline]
    fn piece(&self, placed: &Placed<D>, index: u32) -> u32 {
        let remaining = (placed.end - placed.first) as u32 - index;
        remaining.min(self.messages.parameters.read_piece - index % self.messages.parameters.read_piece)
    }

    #[inline(always)]
    fn describe(&self, placed: &Placed<D>, index: u32, count: u32) -> Plan {
        let message = &placed.message;
        let mtu = self.messages.parameters.mtu;
        let offset = index * mtu;
        let end = self.sender.snd_nxt + u64::from(count);
        let last = end == placed.end;
        let fetch = message.kind.is_fetch();
        let len = if last { message.len - offset } else { count * mtu };
        // The RETH of a READ has the length of this piece, that of a WRITE the length of the whole message.
        let dma_len = if fetch { len } else { message.len };
        let (opcode, ext) = headers(&message.kind, index == 0, last, offset, dma_len);
        Plan {
            opcode,
            psn: psn(self.sender.snd_nxt),
            ack_req: fetch || self.needs_ack_req(end),
            solicited: last && message.solicited,
            ext,
            offset,
            len: if fetch { 0 } else { len },
            number: self.messages.next_message,
            count,
            fetch,
            last,
        }
    }

    /// Returns the next packet of a PRISM operation. A partially answered READ is requested from the missing
    /// response on, with the address of the first request, because only the responder has dereferenced its
    /// pointer.
    fn describe_prism(&self, placed: &Placed<D>, extended: &prism::Extended, index: u32, count: u32) -> Plan {
        let message = &placed.message;
        let mtu = self.messages.parameters.mtu;
        let snd_nxt = self.sender.snd_nxt;
        let end = snd_nxt + u64::from(count);
        let last = end == placed.end;
        let asks = extended.asks();
        let (opcode, ext) = prism::headers(extended, index == 0 || asks, last, message.len);
        let start = index * mtu;
        let (offset, len) = match extended.verb() {
            prism::Verb::Read => (0, 0),
            prism::Verb::Write if extended.flags().has(Flags::DATA_INDIRECT) => (0, 0),
            _ => (start, if last { message.len - start } else { mtu }),
        };
        Plan {
            opcode,
            psn: psn(snd_nxt),
            ack_req: last || self.needs_ack_req(end),
            solicited: false,
            ext,
            offset,
            len,
            number: self.messages.next_message,
            count,
            fetch: last,
            last,
        }
    }

    /// Returns true if the packet that ends at `end` must request an ACK.
    #[inline]
    fn needs_ack_req(&self, end: Seq) -> bool {
        end == self.messages.write_seq
            || end == self.sender.snd_max
            || end == self.force_ack_req_at
            || self.since_ack_req + 1 >= self.ack_req_every
    }

    /// Returns the context of the message that the planned packet belongs to. Returned by reference, because
    /// it was written recently and is in the cache. Always inlined, like `plan`.
    #[inline(always)]
    pub fn context(&self, plan: &Plan) -> Option<&D> {
        self.messages.window.get(plan.number).map(|placed| &placed.message.context)
    }

    /// Records that the planned packet was sent. Always inlined, so that the plan stays in registers.
    #[inline(always)]
    pub fn sent(&mut self, now: Instant, plan: &Plan, counters: &mut Counters) {
        counters.retransmitted_pkts += u64::from(self.sender.retransmitting());
        self.sender.sent(plan.count);
        if plan.fetch {
            self.fetches.push_back(self.sender.snd_nxt);
        }
        if plan.last {
            self.messages.next_message += 1;
            self.messages.step_over_local(self.sender.snd_nxt);
        }
        self.update_ack_timer(now, plan.ack_req);
    }

    /// Makes the message of a planned packet fail, because the packet could not be built from local memory.
    #[inline(always)]
    pub fn refuse(&mut self, plan: &Plan, status: Status) {
        self.refuse_message(plan.number, status);
    }

    #[cold]
    #[inline(never)]
    fn refuse_message(&mut self, number: u64, status: Status) {
        self.fail(number, status);
        // Earlier packets may not have requested an ACK because more packets were to follow. The last of
        // them is retransmitted and requests one, unless it is a READ or atomic, which is answered anyway.
        // Otherwise only the ACK timer would complete the messages before the failed one.
        let Some(first) = self.messages.window.get(number).map(|placed| placed.first) else { return };
        let before =
            self.messages.window.find(first - 1, number).and_then(|number| self.messages.window.get(number));
        if first > self.sender.snd_una && before.is_some_and(|placed| !placed.message.kind.is_fetch()) {
            self.force_ack_req_at = first;
            self.sender.repeat_from(first - 1);
            self.rewind();
        }
    }

    /// Removes and returns the next finished message, in order. After a message in error the queue pair is
    /// in the error state, and the caller must `flush` the rest.
    #[inline]
    pub fn retire(&mut self) -> Option<Retired<D>> {
        let snd_una = self.sender.snd_una;
        let (message, status) = self.messages.retire(|front| front.end <= snd_una)?;
        let retired = message.retired(message.context, status);
        // Operations end in order, so their results are in order too.
        let verdict = if let Kind::Prism(_) = retired.kind { self.verdicts.pop_front() } else { None };
        Some(Retired { verdict: verdict.unwrap_or_default(), ..retired })
    }

    /// Removes and returns the oldest message unfinished (flush).
    pub fn flush(&mut self) -> Option<Retired<D>> {
        let message = self.messages.flush()?;
        self.ack_deadline = Instant::NEVER;
        Some(message.retired(message.context, Status::WrFlushed))
    }

    /// Processes a response packet (ACK, NAK, READ response, atomic response).
    #[inline]
    pub fn receive(
        &mut self,
        now: Instant,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) -> Reaction<D> {
        let seq = extend(self.sender.snd_una, packet.bth.psn());
        if seq >= self.sender.snd_max {
            return Reaction::Nothing;
        }
        match packet.bth.opcode() {
            Opcode::RC_ACKNOWLEDGE => self.acknowledged(now, seq, packet, counters),
            opcode if opcode.is_response() => return self.answered(now, seq, packet, counters),
            _ => {}
        }
        Reaction::Nothing
    }

    #[inline]
    fn acknowledged(&mut self, now: Instant, seq: Seq, packet: &packet::View<'_>, counters: &mut Counters) {
        let Some(aeth) = packet.aeth() else { return };
        match aeth.syndrome.kind() {
            aeth::Kind::Ack { .. } => {
                self.arrived(now, seq + 1, counters);
            }
            aeth::Kind::Rnr { timer } => self.not_ready(now, seq, timer, counters),
            aeth::Kind::Nak(code) => self.nak_received(now, seq, code, counters),
            aeth::Kind::Reserved => {}
        }
    }

    /// Acknowledges every request before `upto`. Goes back if the response of a READ or atomic among these
    /// was lost. Returns true if `snd_una` advanced.
    #[inline]
    fn arrived(&mut self, now: Instant, upto: Seq, counters: &mut Counters) -> bool {
        let unanswered = if self.messages.fetch_messages == 0 { None } else { self.first_fetch() };
        match unanswered {
            Some((_, first)) if first < upto => {
                let advanced = self.advance(now, first);
                counters.implied_nak_seq_err += 1;
                self.go_back(now);
                advanced
            }
            _ => self.advance(now, upto),
        }
    }

    #[inline]
    fn advance(&mut self, now: Instant, upto: Seq) -> bool {
        let snd_nxt = self.sender.snd_nxt;
        let advanced = self.sender.acknowledge(upto);
        debug_assert!(self.sender.snd_una >= upto, "snd_una advances to the acknowledged packet");
        if !advanced {
            self.repeated = true;
            return false;
        }
        self.repeated = false;
        self.ack_timeout_ns = self.messages.parameters.timeout_ns;
        if self.sender.snd_nxt != snd_nxt {
            self.seek();
        }
        while self.fetches.front().is_some_and(|end| *end <= self.sender.snd_una) {
            self.fetches.pop_front();
        }
        self.retries = self.messages.parameters.retry_cnt;
        self.messages.rnr_retries = self.messages.parameters.rnr_retry;
        self.restart_ack_timer(now);
        true
    }

    fn go_back(&mut self, now: Instant) {
        if self.sender.go_back() {
            self.rewind();
            self.restart_ack_timer(now);
        }
    }

    /// Adapts the other state to a `snd_nxt` that moved back: later requests count as not sent.
    fn rewind(&mut self) {
        self.seek();
        while self.fetches.back().is_some_and(|end| *end > self.sender.snd_nxt) {
            self.fetches.pop_back();
        }
        self.since_ack_req = 0;
        self.ack_req_end = self.ack_req_end.min(self.sender.snd_nxt);
        self.blocked_at = Seq::MAX;
    }

    fn seek(&mut self) {
        self.messages.next_message = self
            .messages
            .window
            .find(self.sender.snd_nxt, self.messages.next_message)
            .unwrap_or(self.messages.window.bounds().1);
    }

    /// Returns number and next response PSN of the oldest READ or atomic that is not fully answered.
    fn first_fetch(&self) -> Option<(u64, Seq)> {
        let (head, tail) = self.messages.window.bounds();
        (head..tail).find_map(|number| {
            let placed = self.messages.window.get(number)?;
            (placed.message.kind.is_fetch() && placed.end > self.sender.snd_una)
                .then(|| (number, placed.answered_from().max(self.sender.snd_una)))
        })
    }

    fn not_ready(&mut self, now: Instant, seq: Seq, timer: u8, counters: &mut Counters) {
        if seq < self.sender.snd_una || (seq == self.sender.snd_una && now < self.messages.rnr_until) {
            return;
        }
        self.messages.count_rnr_nak(counters);
        self.arrived(now, seq, counters);
        if !self.messages.may_wait(counters) {
            return self
                .fail(self.messages.number_of(seq, self.messages.next_message), Status::RnrRetryExceeded);
        }
        // The NAK proves that the peer is alive, so the retry count is reset.
        self.retries = self.messages.parameters.retry_cnt;
        self.sender.restart();
        self.rewind();
        self.ack_deadline = Instant::NEVER;
        self.messages.rnr_until = now.after(timers::rnr_timer_ns(timer));
    }

    fn nak_received(&mut self, now: Instant, seq: Seq, code: NakCode, counters: &mut Counters) {
        if seq < self.sender.snd_una {
            return;
        }
        if code == NakCode::PSN_SEQUENCE_ERROR {
            counters.packet_seq_err += 1;
            return self.missed(now, seq, counters);
        }
        let status = refusal_status(code, counters);
        self.arrived(now, seq, counters);
        self.fail(self.messages.number_of(seq, self.messages.next_message), status);
    }

    /// Processes a NAK for the missing packet `seq`.
    fn missed(&mut self, now: Instant, seq: Seq, counters: &mut Counters) {
        let advanced = self.arrived(now, seq, counters);
        // A duplicate NAK, or a NAK for a gap that was already handled, uses no retry.
        if seq != self.sender.snd_una || !self.sender.may_go_back() {
            return;
        }
        if !advanced {
            if self.retries == 0 {
                counters.retry_exceeded_err += 1;
                self.fail(self.messages.window.bounds().0, Status::RetryExceeded);
                return;
            }
            self.use_retry();
        }
        self.go_back(now);
    }

    fn use_retry(&mut self) {
        if self.retries != FOR_EVER {
            self.retries -= 1;
        }
    }

    /// Processes a READ or atomic response, in order only. A response after a gap means that responses were
    /// lost.
    #[inline]
    fn answered(
        &mut self,
        now: Instant,
        seq: Seq,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) -> Reaction<D> {
        if seq < self.sender.snd_una {
            self.repeated = true;
            return Reaction::Nothing;
        }
        let Some((number, expected)) = self.first_fetch() else { return Reaction::Nothing };
        if seq > expected {
            self.arrived(now, seq, counters);
            return Reaction::Nothing;
        }
        let Some(placed) = self.messages.window.get(number).filter(|_| seq == expected) else {
            return Reaction::Nothing;
        };
        if let Kind::Prism(extended) = placed.message.kind {
            return self.answered_prism(now, seq, number, &extended, packet);
        }
        let placed = *placed;
        let offset = (seq - placed.first) as u32 * self.messages.parameters.mtu;
        let reaction = match (placed.message.kind, packet.atomic_ack()) {
            (Kind::Atomic { .. }, Some(ack)) => {
                Reaction::Value { context: placed.message.context, number, value: ack.original }
            }
            (Kind::Read { .. }, None) if self.fits(&placed, seq, offset, packet) => {
                Reaction::Scatter { context: placed.message.context, number, offset }
            }
            _ => {
                self.advance(now, expected);
                self.fail(number, Status::BadResponse);
                return Reaction::Nothing;
            }
        };
        self.advance(now, seq + 1);
        reaction
    }

    /// Processes the next response to a PRISM operation. If the answer to a READ is shorter than requested,
    /// both sides skip the remaining PSNs.
    #[cold]
    #[inline(never)]
    fn answered_prism(
        &mut self,
        now: Instant,
        seq: Seq,
        number: u64,
        extended: &prism::Extended,
        packet: &packet::View<'_>,
    ) -> Reaction<D> {
        let mtu = self.messages.parameters.mtu;
        let Some(placed) = self.messages.window.get_mut(number) else { return Reaction::Nothing };
        let context = placed.message.context;
        let first = placed.first;
        let end = placed.end;
        let parsed = prism::parse_response(extended, first, placed.message.len, seq, mtu, packet);
        let reaction = parsed.map(|parsed| match parsed {
            ParsedResponse::Number { head, verdict } => {
                self.verdicts.push_back(verdict);
                (end, Reaction::Number { context, number, head })
            }
            ParsedResponse::Part { offset } => (seq + 1, Reaction::Scatter { context, number, offset }),
            ParsedResponse::End { offset, len, verdict } => {
                self.verdicts.push_back(verdict);
                placed.message.len = len;
                (end, Reaction::Scatter { context, number, offset })
            }
        });
        let Some((upto, reaction)) = reaction else {
            self.advance(now, seq);
            self.fail(number, Status::BadResponse);
            return Reaction::Nothing;
        };
        self.advance(now, upto);
        reaction
    }

    #[inline]
    fn fits(&self, placed: &Placed<D>, seq: Seq, offset: u32, packet: &packet::View<'_>) -> bool {
        let remaining = placed.message.len - offset;
        let expected = if seq + 1 == placed.end { remaining } else { self.messages.parameters.mtu };
        packet.payload.len() as u32 == expected
    }
}

/// Returns op-code and extension headers of the packet at `offset` of a message.
#[inline]
pub(crate) fn headers(kind: &Kind, first: bool, last: bool, offset: u32, len: u32) -> (Opcode, Extensions) {
    let mut ext = Extensions::default();
    let place = |only, start, end, middle| match (first, last) {
        (true, true) => only,
        (true, false) => start,
        (false, true) => end,
        (false, false) => middle,
    };
    let opcode = match *kind {
        Kind::Send => {
            place(Opcode::RC_SEND_ONLY, Opcode::RC_SEND_FIRST, Opcode::RC_SEND_LAST, Opcode::RC_SEND_MIDDLE)
        }
        Kind::SendImm(imm) => {
            ext.imm = last.then_some(immdt::Repr { value: imm });
            place(
                Opcode::RC_SEND_ONLY_IMM,
                Opcode::RC_SEND_FIRST,
                Opcode::RC_SEND_LAST_IMM,
                Opcode::RC_SEND_MIDDLE,
            )
        }
        Kind::SendInv(rkey) => {
            ext.ieth = last.then_some(ieth::Repr { rkey });
            place(
                Opcode::RC_SEND_ONLY_INV,
                Opcode::RC_SEND_FIRST,
                Opcode::RC_SEND_LAST_INV,
                Opcode::RC_SEND_MIDDLE,
            )
        }
        _ => return one_sided(kind, first, last, offset, len),
    };
    (opcode, ext)
}

#[inline]
fn one_sided(kind: &Kind, first: bool, last: bool, offset: u32, len: u32) -> (Opcode, Extensions) {
    let mut ext = Extensions::default();
    let opcode = match *kind {
        Kind::Read { va, rkey } => {
            ext.reth = Some(reth::Repr { va: va.wrapping_add(u64::from(offset)), rkey, dma_len: len });
            Opcode::RC_RDMA_READ_REQUEST
        }
        Kind::Atomic { va, rkey, atomic } => {
            let (opcode, swap_add, compare) = match atomic {
                Atomic::CompareSwap { compare, swap } => (Opcode::RC_COMPARE_SWAP, swap, compare),
                Atomic::FetchAdd { add } => (Opcode::RC_FETCH_ADD, add, 0),
            };
            ext.atomic = Some(atomic_eth::Repr { va, rkey, swap_add, compare });
            opcode
        }
        Kind::Rpc { opcode, tag } | Kind::RpcWrite { opcode, tag } => {
            ext.reth = first.then_some(reth::Repr { va: opcode, rkey: tag, dma_len: len });
            strom::opcode(matches!(kind, Kind::Rpc { .. }), first, last)
        }
        Kind::Write { va, rkey } | Kind::WriteImm { va, rkey, .. } => {
            let imm = if let Kind::WriteImm { imm, .. } = *kind { Some(imm) } else { None };
            ext.imm = imm.filter(|_| last).map(|value| immdt::Repr { value });
            ext.reth = first.then_some(reth::Repr { va, rkey, dma_len: len });
            match (first, last, imm.is_some()) {
                (true, true, false) => Opcode::RC_RDMA_WRITE_ONLY,
                (true, true, true) => Opcode::RC_RDMA_WRITE_ONLY_IMM,
                (false, true, false) => Opcode::RC_RDMA_WRITE_LAST,
                (false, true, true) => Opcode::RC_RDMA_WRITE_LAST_IMM,
                (true, false, _) => Opcode::RC_RDMA_WRITE_FIRST,
                (false, false, _) => Opcode::RC_RDMA_WRITE_MIDDLE,
            }
        }
        Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) | Kind::Local | Kind::Prism(_) => {
            unreachable!(
                "`headers` handles two-sided kinds; `prism::headers` handles PRISM; local work has no packets"
            )
        }
    };
    (opcode, ext)
}
