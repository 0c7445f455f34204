//! The responder of a reliable connection. It validates each request packet, tells the NIC what to execute,
//! and responds in order.
//!
//! `receive` returns an [`Action`]; the NIC executes it and calls `conclude` with the outcome. `plan`
//! returns the next response as a [`Reply`] without changing state, and `sent` confirms its transmission.

mod check;
mod operation_list;

use super::ending::count_refusal;
use super::go_back_n::{Arrival, Receiver};
use super::replay::{Entry, Replay, Source};
use super::{Allowed, Parameters, Seq, extend, packets, prism, psn, start, strom};
use crate::{Action, Atomic, Counters, Notice, Outcome};
use remora_wire::{NakCode, Opcode, Operation, Psn, Syndrome, aeth, packet};

pub use operation_list::OperationListOutcome;

/// The next response packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Op-code of the packet.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// AETH: syndrome and message sequence number; `None` on the middle packets of a READ.
    pub aeth: Option<(Syndrome, u32)>,
    /// Payload of the packet.
    pub kind: ReplyKind,
}

/// The payload of a response packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// No payload: an ACK or a NAK.
    Acknowledge {
        /// True for a NAK that ends the queue pair.
        fatal: bool,
    },
    /// Old value of the target of an atomic.
    Value(u64),
    /// Old value of a PRISM operation with this many bytes, more than 8; `Responder::kept` returns them.
    Wide(u8),
    /// This many bytes of a short READ; `Responder::kept` returns them.
    Snapshot(u8),
    /// The answers to an operation list; `Responder::kept` returns them.
    OperationList {
        /// Length of the answers in bytes.
        len: u8,
        /// Number of PSNs that the answers cover.
        count: u8,
    },
    /// A range of the memory that a READ requested.
    Memory {
        /// Remote key; the NIC checks it anew for each response.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Length in bytes.
        len: u32,
    },
}

impl ReplyKind {
    /// Returns true if `Responder::kept` returns the payload.
    #[inline]
    pub fn is_kept(&self) -> bool {
        matches!(self, ReplyKind::Wide(_) | ReplyKind::Snapshot(_) | ReplyKind::OperationList { .. })
    }

    /// Returns true if the payload answers a READ.
    #[inline]
    pub fn has_data(&self) -> bool {
        matches!(self, ReplyKind::Memory { .. } | ReplyKind::Snapshot(_))
    }
}

/// The message whose packets are arriving.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum MessageInProgress {
    Nothing,
    Send { offset: u32 },
    Write { key: u32, va: u64, left: u32, total: u32 },
    Prism(prism::OperationInProgress),
    Rpc(strom::Part),
}

/// The effects of the packet that the NIC is executing.
#[derive(Copy, Clone, Debug)]
struct Pending {
    /// The kind of message that is counted at its end; an atomic stands for all that carry operands.
    operation: Operation,
    ack_req: bool,
    in_progress: MessageInProgress,
    ends: bool,
    /// Number of PSNs that the packet uses.
    count: u32,
    source: Option<Source>,
    key: u32,
    va: u64,
}

impl Pending {
    /// Returns the effects of a packet that uses one PSN.
    #[inline(always)]
    fn new(packet: &packet::View<'_>, operation: Operation) -> Pending {
        let opcode = packet.bth.opcode();
        Pending {
            operation,
            ack_req: packet.bth.ack_req(),
            in_progress: MessageInProgress::Nothing,
            ends: opcode.is_last() || opcode.is_only(),
            count: 1,
            source: None,
            key: 0,
            va: 0,
        }
    }
}

/// The ACK or NAK to send after all earlier answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum PendingAck {
    Nothing,
    /// Acknowledges everything before `rcv_nxt`.
    Ack,
    /// RNR NAK: no receive work request is posted.
    NotReady,
    Nak(NakCode),
}

/// Execution of an action while its packet is validated. A trait instead of a closure, because a closure
/// cannot be inlined always.
pub trait Execute {
    /// False if the peer certainly did not agree on PRISM, so that no packet is tested for it.
    const PRISM: bool = true;

    /// Executes an action and returns its outcome. `None` if nothing was done and the action is left to the
    /// caller of [`Responder::receive_with`].
    fn execute(self, action: Action) -> Option<Outcome>;
}

/// Leaves each action to the caller.
struct Later;

impl Execute for Later {
    #[inline(always)]
    fn execute(self, _: Action) -> Option<Outcome> {
        None
    }
}

/// The responder of one queue pair.
pub struct Responder {
    receiver: Receiver,
    in_progress: MessageInProgress,
    pending: Option<Pending>,
    replay: Replay,
    pending_ack: PendingAck,
    msn: u32,
    mtu: u32,
    rnr_timer: u8,
    allowed: Allowed,
    /// True once a fatal NAK is pending or sent: nothing more is executed.
    ended: bool,
    notice: Notice,
    /// True if the peer agreed on PRISM.
    prism: bool,
    strom: bool,
}

const NO_NOTICE: Notice = Notice { len: 0, imm: None, invalidate: None, solicited: false, write: false };

impl Responder {
    /// Returns a responder whose first packet is `first`.
    pub fn new(first: Psn, parameters: &Parameters, allowed: Allowed) -> Self {
        Responder {
            receiver: Receiver::new(start(first)),
            in_progress: MessageInProgress::Nothing,
            pending: None,
            replay: Replay::new(parameters.max_dest_rd_atomic),
            pending_ack: PendingAck::Nothing,
            msn: 0,
            mtu: parameters.mtu,
            rnr_timer: parameters.min_rnr_timer,
            allowed,
            ended: false,
            notice: NO_NOTICE,
            prism: false,
            strom: false,
        }
    }

    /// Enables PRISM, because the peer agreed on it.
    pub fn enable_prism(&mut self) {
        self.prism = true;
        self.replay.widen();
    }

    /// Enables StRoM, because the peer agreed on it.
    pub fn enable_strom(&mut self) {
        self.strom = true;
    }

    /// Returns the MSN: the number of messages executed, modulo 2^24.
    pub fn msn(&self) -> u32 {
        self.msn
    }

    /// Returns the number of READs, atomics and PRISM operations executed, and how many of these, from the
    /// first on, can no longer be repeated.
    pub fn fetches(&self) -> (u64, u64) {
        (self.replay.upcoming(), self.replay.kept_from())
    }

    /// Drops all kept answers, because the peer will repeat no request. Returns false and keeps all if an
    /// answer remains to be sent.
    pub fn forget(&mut self) -> bool {
        self.replay.forget()
    }

    /// Returns the bytes that the planned reply refers to; results of operations are in network byte order.
    pub fn kept(&self) -> &[u8] {
        self.replay.front_kept()
    }

    /// Changes access rights and RNR timer of a running queue pair.
    pub fn retune(&mut self, allowed: Allowed, rnr_timer: u8) {
        self.allowed = allowed;
        self.rnr_timer = rnr_timer;
    }

    /// Returns the information for the completion of the message that the last action ends.
    pub fn notice(&self) -> Notice {
        self.notice
    }

    /// Validates a request packet and returns the action to execute.
    #[inline]
    pub fn receive(&mut self, packet: &packet::View<'_>, counters: &mut Counters) -> Action {
        self.receive_with(packet, counters, Later)
    }

    /// Validates a request packet and has `execute` execute its action. If `execute` returns `None`, it has
    /// done nothing, and the action is returned like that of [`receive`](Responder::receive). Always
    /// inlined, so that the action and its effects need no memory.
    #[inline(always)]
    pub fn receive_with<E: Execute>(
        &mut self,
        packet: &packet::View<'_>,
        counters: &mut Counters,
        execute: E,
    ) -> Action {
        if self.ended {
            return Action::Nothing;
        }
        let seq = extend(self.receiver.rcv_nxt, packet.bth.psn());
        match self.receiver.arrive(seq) {
            Arrival::InOrder if E::PRISM && self.prism && prism::is_asked(packet) => {
                self.receive_prism(packet, counters)
            }
            Arrival::InOrder => match self.judge(packet, counters, execute) {
                Ok(action) => action,
                Err(code) => {
                    self.refuse(code, counters);
                    Action::Nothing
                }
            },
            Arrival::Duplicate => {
                counters.duplicate_request += 1;
                self.repeat(seq, packet);
                Action::Nothing
            }
            Arrival::Gap { report } => {
                self.missed(report, counters);
                Action::Nothing
            }
        }
    }

    /// Has `execute` execute the action of a packet with the effects `pending`. Returns the action if
    /// `execute` leaves it to the caller.
    #[inline(always)]
    fn act(
        &mut self,
        action: Action,
        pending: Pending,
        counters: &mut Counters,
        execute: impl Execute,
    ) -> Action {
        match execute.execute(action) {
            Some(outcome) => {
                self.settle(pending, outcome, counters);
                Action::Nothing
            }
            None => {
                self.pending = Some(pending);
                action
            }
        }
    }

    /// Handles a packet after a gap. Sends a NAK if `report` is true, that is for the first such packet.
    fn missed(&mut self, report: bool, counters: &mut Counters) {
        counters.out_of_sequence += 1;
        if report {
            self.pending_ack = PendingAck::Nak(NakCode::PSN_SEQUENCE_ERROR);
        }
    }

    /// Checks op-code order and lengths (IBTA C9-70 and following), then the operation.
    #[inline(always)]
    fn judge(
        &mut self,
        packet: &packet::View<'_>,
        counters: &mut Counters,
        execute: impl Execute,
    ) -> Result<Action, NakCode> {
        let opcode = packet.bth.opcode();
        let len = packet.payload.len() as u32;
        let full = len == self.mtu;
        let fits = match (opcode.is_first() || opcode.is_middle(), opcode.is_last()) {
            (true, _) => full,
            (_, true) => (1..=self.mtu).contains(&len),
            _ => len <= self.mtu,
        };
        if !fits {
            return Err(NakCode::INVALID_REQUEST);
        }
        match opcode.operation() {
            Some(Operation::Write) => self.judge_write(packet, len, counters, execute),
            Some(Operation::Send) => self.judge_send(packet, len),
            Some(Operation::Rpc | Operation::RpcWrite) if self.strom => self.judge_rpc(packet, len),
            _ => self.judge_fetch(packet, counters, execute),
        }
    }

    #[inline]
    fn judge_send(&mut self, packet: &packet::View<'_>, len: u32) -> Result<Action, NakCode> {
        let mut pending = Pending::new(packet, Operation::Send);
        let opcode = packet.bth.opcode();
        let starts = opcode.is_first() || opcode.is_only();
        let offset = match (self.in_progress, starts) {
            (MessageInProgress::Nothing, true) => 0,
            (MessageInProgress::Send { offset }, false) => offset,
            _ => return Err(NakCode::INVALID_REQUEST),
        };
        // Maximum length of a message (IBTA vol. 1 §9.7.7).
        let total =
            offset.checked_add(len).filter(|total| *total <= 1 << 31).ok_or(NakCode::INVALID_REQUEST)?;
        if pending.ends {
            self.notice = notice(packet, total, false);
        } else {
            pending.in_progress = MessageInProgress::Send { offset: total };
        }
        let last = pending.ends;
        self.pending = Some(pending);
        Ok(Action::Receive { offset, first: starts, last })
    }

    #[inline(always)]
    fn judge_write(
        &mut self,
        packet: &packet::View<'_>,
        len: u32,
        counters: &mut Counters,
        execute: impl Execute,
    ) -> Result<Action, NakCode> {
        let mut pending = Pending::new(packet, Operation::Write);
        // The first packet checks the whole message. Later packets check their own bytes once more, because
        // the key may have been invalidated.
        let (key, va, left, total, extent) = match (self.in_progress, packet.reth()) {
            (MessageInProgress::Nothing, Some(reth)) if reth.dma_len <= 1 << 31 => {
                (reth.rkey, reth.va, reth.dma_len, reth.dma_len, reth.dma_len)
            }
            (MessageInProgress::Write { key, va, left, total }, None) => (key, va, left, total, len),
            _ => return Err(NakCode::INVALID_REQUEST),
        };
        let exact = if pending.ends { len == left } else { len < left };
        if !exact || !self.allowed.write {
            return Err(NakCode::INVALID_REQUEST);
        }
        if !pending.ends {
            pending.in_progress = MessageInProgress::Write {
                key,
                va: va.wrapping_add(u64::from(len)),
                left: left - len,
                total,
            };
        }
        if packet.imm().is_some() {
            self.notice = notice(packet, total, true);
            self.pending = Some(pending);
            return Ok(Action::PlaceAndNotify { key, va, extent });
        }
        Ok(self.act(Action::Place { key, va, extent }, pending, counters, execute))
    }

    #[inline(always)]
    fn judge_fetch(
        &mut self,
        packet: &packet::View<'_>,
        counters: &mut Counters,
        execute: impl Execute,
    ) -> Result<Action, NakCode> {
        if self.in_progress != MessageInProgress::Nothing || self.replay.is_full() {
            return Err(NakCode::INVALID_REQUEST);
        }
        let mut pending = Pending { ends: true, ..Pending::new(packet, Operation::FetchAdd) };
        match (packet.reth(), packet.atomic()) {
            (Some(reth), None)
                if self.allowed.read && reth.dma_len <= 1 << 31 && packet.payload.is_empty() =>
            {
                pending.count = packets(reth.dma_len, self.mtu);
                pending.source = Some(Source::Memory { key: reth.rkey, va: reth.va, len: reth.dma_len });
                pending.operation = Operation::ReadRequest;
                let action = Action::Fetch { key: reth.rkey, va: reth.va, len: reth.dma_len };
                Ok(self.act(action, pending, counters, execute))
            }
            (None, Some(eth)) if self.allowed.atomic && packet.payload.is_empty() => {
                let atomic = atomic(packet.bth.opcode(), eth.swap_add, eth.compare);
                pending.source = Some(Source::Value(0));
                (pending.key, pending.va) = (eth.rkey, eth.va);
                self.pending = Some(pending);
                Ok(Action::Atomic { key: eth.rkey, va: eth.va, atomic })
            }
            _ => Err(NakCode::INVALID_REQUEST),
        }
    }

    #[inline(never)]
    fn judge_rpc(&mut self, packet: &packet::View<'_>, len: u32) -> Result<Action, NakCode> {
        let in_progress = match self.in_progress {
            MessageInProgress::Nothing => None,
            MessageInProgress::Rpc(part) => Some(part),
            _ => return Err(NakCode::INVALID_REQUEST),
        };
        let mut pending = Pending::new(packet, Operation::Rpc);
        let part = strom::judge(packet, packet.reth(), in_progress.as_ref(), len)?;
        if !pending.ends {
            pending.in_progress = MessageInProgress::Rpc(part.after(len));
        }
        self.pending = Some(pending);
        Ok(Action::Rpc(part))
    }

    /// Processes a PRISM packet that is in order.
    #[cold]
    #[inline(never)]
    fn receive_prism(&mut self, packet: &packet::View<'_>, counters: &mut Counters) -> Action {
        match self.judge_prism(packet) {
            Ok(request) => Action::Prism(request.into()),
            Err(code) => {
                self.refuse(code, counters);
                Action::Nothing
            }
        }
    }

    /// Validates a PRISM packet. Writes `pending` in place, because a copy would stall on its partial
    /// stores.
    #[inline(always)]
    fn judge_prism(&mut self, packet: &packet::View<'_>) -> Result<prism::Request, NakCode> {
        let in_progress = match self.in_progress {
            MessageInProgress::Nothing => None,
            MessageInProgress::Prism(in_progress) => Some(in_progress),
            _ => return Err(NakCode::INVALID_REQUEST),
        };
        let request = prism::judge(packet, in_progress, self.mtu, self.allowed)?;
        if request.last && self.replay.is_full() {
            return Err(NakCode::INVALID_REQUEST);
        }
        let offset = request.offset + self.mtu;
        let more = prism::OperationInProgress { flags: request.flags, offset, total: request.len };
        self.pending = Some(Pending {
            operation: packet.bth.opcode().operation().unwrap_or(Operation::FetchAdd),
            ack_req: packet.bth.ack_req(),
            in_progress: if request.last {
                MessageInProgress::Nothing
            } else {
                MessageInProgress::Prism(more)
            },
            ends: request.last,
            count: request.packets(self.mtu),
            source: None,
            key: 0,
            va: 0,
        });
        Ok(request)
    }

    /// Completes a PRISM action. `result` is the answer at the last packet of an operation, or a NAK code.
    pub fn conclude_prism(
        &mut self,
        result: Result<Option<prism::Answer>, NakCode>,
        counters: &mut Counters,
    ) {
        let Some(pending) = self.pending.take() else { return };
        let answer = match result {
            Ok(Some(answer)) => answer,
            Ok(None) => return self.done(pending, Outcome::Done, counters),
            Err(code) => return self.refuse(code, counters),
        };
        let first = self.receiver.rcv_nxt;
        self.receiver.advance(pending.count);
        self.in_progress = MessageInProgress::Nothing;
        self.msn = (self.msn + 1) & 0x00ff_ffff;
        count_operation(pending.operation, counters);
        let (source, bytes) = match answer.output {
            prism::Output::Number(number) => (Source::Value(number), [0; 32]),
            prism::Output::Wide { bytes, size } => (Source::Wide { size }, bytes),
            prism::Output::Snapshot { bytes, len } => (Source::Snapshot { len }, bytes),
            prism::Output::Memory { key, va, len } => (Source::Memory { key, va, len }, [0; 32]),
        };
        let entry = Entry {
            first,
            end: self.receiver.rcv_nxt,
            source,
            msn: self.msn,
            credits: answer.verdict.credits(),
            answer_first: first,
            answer_end: answer_end(first, &source, self.mtu),
            next: first,
        };
        self.replay.push_wide(entry, bytes);
    }

    /// Completes the action of the last `receive` with its outcome.
    #[inline]
    pub fn conclude(&mut self, outcome: Outcome, counters: &mut Counters) {
        let Some(pending) = self.pending.take() else { return };
        self.settle(pending, outcome, counters);
    }

    /// Applies the effects of a packet whose action had this outcome.
    #[inline(always)]
    fn settle(&mut self, pending: Pending, outcome: Outcome, counters: &mut Counters) {
        match outcome {
            Outcome::Done | Outcome::Value(_) => self.done(pending, outcome, counters),
            Outcome::Nak(code) => self.refuse(code, counters),
            Outcome::End => {
                self.pending_ack = PendingAck::Ack;
                self.ended = true;
            }
            Outcome::NotReady => {
                counters.out_of_buffer += 1;
                self.receiver.refuse();
                self.pending_ack = PendingAck::NotReady;
            }
        }
    }

    #[inline(always)]
    fn done(&mut self, pending: Pending, outcome: Outcome, counters: &mut Counters) {
        let first = self.receiver.rcv_nxt;
        self.receiver.advance(pending.count);
        debug_assert_eq!(self.receiver.rcv_nxt, first + u64::from(pending.count), "rcv_nxt advances");
        self.in_progress = pending.in_progress;
        if pending.ends {
            self.msn = (self.msn + 1) & 0x00ff_ffff;
            count_operation(pending.operation, counters);
        }
        if let Some(source) = pending.source {
            let source = if let Outcome::Value(old) = outcome { Source::Value(old) } else { source };
            let end = self.receiver.rcv_nxt;
            self.replay.push(Entry {
                first,
                end,
                source,
                msn: self.msn,
                credits: aeth::NO_CREDITS,
                answer_first: first,
                answer_end: end,
                next: first,
            });
        } else if pending.ack_req || !matches!(self.pending_ack, PendingAck::Nothing | PendingAck::Ack) {
            // A NAK that was not sent is obsolete, because the packet that it requested has arrived. The NAK
            // may have replaced a requested ACK, so an ACK is sent in any case.
            self.pending_ack = PendingAck::Ack;
        }
    }

    fn refuse(&mut self, code: NakCode, counters: &mut Counters) {
        count_refusal(code, counters);
        self.pending_ack = PendingAck::Nak(code);
        self.ended = true;
    }

    /// Handles a duplicate request (IBTA vol. 1 §9.7.5.1.2): answers READs and atomics anew, and
    /// acknowledges everything else.
    fn repeat(&mut self, seq: Seq, packet: &packet::View<'_>) {
        let mtu = u64::from(self.mtu);
        if packet.bth.resv7() != 0
            && self.prism
            && (packet.bth.opcode().is_last() || packet.bth.opcode().is_only())
        {
            self.replay.again_from(seq, |entry| answer_end(entry.first, &entry.source, self.mtu));
        } else if let Some(reth) =
            packet.reth().filter(|_| packet.bth.opcode() == Opcode::RC_RDMA_READ_REQUEST)
        {
            let end = seq + u64::from(packets(reth.dma_len, self.mtu));
            self.replay.again(seq, end, |entry| match entry.source {
                Source::Memory { key, va, len } => {
                    let skipped = (seq - entry.first) * mtu;
                    key == reth.rkey
                        && va.wrapping_add(skipped) == reth.va
                        && skipped + u64::from(reth.dma_len) <= u64::from(len)
                }
                Source::Snapshot { len } => prism::is_scratch(reth.va) && reth.dma_len == u32::from(len),
                Source::Value(_) | Source::Wide { .. } | Source::OperationList { .. } => false,
            });
        } else if packet.atomic().is_some() {
            self.replay.again(seq, seq + 1, |entry| matches!(entry.source, Source::Value(_)));
        } else if self.pending_ack == PendingAck::Nothing {
            self.pending_ack = PendingAck::Ack;
        }
    }

    /// Calls `each` with the next answers and their kept bytes, until `each` returns false. Only single
    /// packets with short values are included; with `mixed` also READ responses from memory.
    #[inline(always)]
    pub fn answers(&self, mixed: bool, mut each: impl FnMut(&Reply, &[u8]) -> bool) {
        for (entry, kept) in self.replay.waiting() {
            let reply = self.data(entry);
            let suits = match reply.opcode {
                Opcode::RC_ATOMIC_ACKNOWLEDGE | Opcode::OPERATION_LIST_ANSWER => true,
                Opcode::RC_RDMA_READ_RESPONSE_ONLY => mixed || matches!(reply.kind, ReplyKind::Snapshot(_)),
                _ => false,
            };
            if !suits || !each(&reply, kept) {
                return;
            }
        }
    }

    /// Returns true if several answers are pending and a short PRISM answer is among them.
    #[inline]
    pub fn has_values(&self) -> bool {
        self.replay.has_value()
    }

    /// Schedules an ACK of everything received, even if none was requested.
    pub fn acknowledge(&mut self) {
        if self.pending_ack == PendingAck::Nothing && !self.ended {
            self.pending_ack = PendingAck::Ack;
        }
    }

    /// Returns true if a response remains to be sent.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.pending_ack != PendingAck::Nothing || self.replay.is_pending()
    }

    /// Returns the next response packet: data in order, then the ACK or NAK. Always inlined, so that plain
    /// RC pays nothing for the other callers.
    #[inline(always)]
    pub fn plan(&self) -> Option<Reply> {
        if let Some(entry) = self.replay.front() {
            return Some(self.data(entry));
        }
        let syndrome = match self.pending_ack {
            PendingAck::Nothing => return None,
            PendingAck::Ack => Syndrome::ack(aeth::NO_CREDITS),
            PendingAck::NotReady => Syndrome::rnr(self.rnr_timer),
            PendingAck::Nak(code) => Syndrome::nak(code),
        };
        let seq = if self.pending_ack == PendingAck::Ack {
            self.receiver.rcv_nxt - 1
        } else {
            self.receiver.rcv_nxt
        };
        Some(Reply {
            opcode: Opcode::RC_ACKNOWLEDGE,
            psn: psn(seq),
            aeth: Some((syndrome, self.msn)),
            kind: ReplyKind::Acknowledge { fatal: self.ended },
        })
    }

    #[inline]
    fn data(&self, entry: &Entry) -> Reply {
        let ack = Some((Syndrome::ack(entry.credits), entry.msn));
        let value = |kind| {
            let opcode = Opcode::RC_ATOMIC_ACKNOWLEDGE;
            Reply { opcode, psn: psn(entry.next), aeth: ack, kind }
        };
        let (key, va, len) = match entry.source {
            Source::Memory { key, va, len } => (key, va, len),
            Source::Value(old) => return value(ReplyKind::Value(old)),
            Source::Wide { size } => return value(ReplyKind::Wide(size)),
            Source::Snapshot { len } => {
                let kind = ReplyKind::Snapshot(len);
                return Reply { opcode: Opcode::RC_RDMA_READ_RESPONSE_ONLY, ..value(kind) };
            }
            Source::OperationList { len } => return operation_list_reply(entry, len),
        };
        let offset = (entry.next - entry.first) as u32 * self.mtu;
        let first = entry.next == entry.answer_first;
        let last = entry.next + 1 == entry.answer_end;
        let opcode = read_response(first, last);
        Reply {
            opcode,
            psn: psn(entry.next),
            aeth: ack.filter(|_| first || last),
            kind: ReplyKind::Memory {
                key,
                va: va.wrapping_add(u64::from(offset)),
                len: (len - offset).min(self.mtu),
            },
        }
    }

    /// Records that one planned data response was sent.
    pub fn answered_one(&mut self) {
        self.replay.sent();
    }

    /// Records that the planned response was sent. Returns true if it was a fatal NAK, so that the queue
    /// pair must enter the error state.
    #[inline]
    pub fn sent(&mut self, reply: &Reply, counters: &mut Counters) -> bool {
        let ReplyKind::Acknowledge { fatal } = reply.kind else {
            self.replay.sent();
            return false;
        };
        counters.send_rnr_err += u64::from(self.pending_ack == PendingAck::NotReady);
        self.pending_ack = PendingAck::Nothing;
        fatal
    }

    /// Replaces the next response by a NAK, because the memory of its READ is no longer readable.
    pub fn deny(&mut self, code: NakCode, counters: &mut Counters) {
        if let Some(entry) = self.replay.front() {
            self.receiver.rcv_nxt = entry.next;
        }
        self.replay.clear();
        self.refuse(code, counters);
    }
}

/// Returns one past the PSN of the last packet of an answer that starts at `first`.
fn answer_end(first: Seq, source: &Source, mtu: u32) -> Seq {
    let count = if let Source::Memory { len, .. } = source { packets(*len, mtu) } else { 1 };
    first + u64::from(count)
}

/// Returns the op-code of a READ response by its position.
#[inline]
pub(super) fn read_response(first: bool, last: bool) -> Opcode {
    match (first, last) {
        (true, true) => Opcode::RC_RDMA_READ_RESPONSE_ONLY,
        (true, false) => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        (false, true) => Opcode::RC_RDMA_READ_RESPONSE_LAST,
        (false, false) => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
    }
}

pub(super) fn atomic(opcode: Opcode, swap_add: u64, compare: u64) -> Atomic {
    if opcode == Opcode::RC_COMPARE_SWAP {
        Atomic::CompareSwap { compare, swap: swap_add }
    } else {
        Atomic::FetchAdd { add: swap_add }
    }
}

pub(super) fn notice(packet: &packet::View<'_>, len: u32, write: bool) -> Notice {
    Notice {
        len,
        imm: packet.imm().map(|imm| imm.value),
        invalidate: packet.ieth().map(|ieth| ieth.rkey),
        solicited: packet.bth.solicited(),
        write,
    }
}

/// Counts an executed request with this op-code.
pub fn count(opcode: Opcode, counters: &mut Counters) {
    count_operation(opcode.operation().unwrap_or(Operation::FetchAdd), counters);
}

/// Counts an executed request of this operation.
#[inline(always)]
fn count_operation(operation: Operation, counters: &mut Counters) {
    match operation {
        Operation::Send => counters.rx_send_requests += 1,
        Operation::Write => counters.rx_write_requests += 1,
        Operation::ReadRequest => counters.rx_read_requests += 1,
        Operation::Rpc | Operation::RpcWrite => counters.rx_rpc_requests += 1,
        _ => counters.rx_atomic_requests += 1,
    }
}

/// Returns the response packet with the answers to an operation list.
#[inline(always)]
fn operation_list_reply(entry: &Entry, len: u8) -> Reply {
    let kind = ReplyKind::OperationList { len, count: (entry.end - entry.first) as u8 };
    Reply { opcode: Opcode::OPERATION_LIST_ANSWER, psn: psn(entry.end - 1), aeth: None, kind }
}
