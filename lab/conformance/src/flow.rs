//! One direction of a queue pair: its random work, the model of the memory that it changes, and the checks.

use remora_memory::{Access, Key};
use remora_nic::{
    CompletionKind, Flags, Operation, Payload, PostError, ReceiveRequest, Remote, Sge, Status,
    WorkCompletion, WorkRequest,
};
use std::collections::VecDeque;

use super::report::Report;
use super::trouble::Trouble;
use super::{Arm, Buffer, Options};
use crate::operation::{Op, Verb, bytes_of, random_len, word};
use remora_fabric::program::{ALL, REMOTE, Settings};
use remora_fault::Random;

/// Bit that is set in the ids of receive work requests.
pub(super) const RECEIVE: u64 = 1 << 40;

/// Length of an ordinary target in bytes; small, so that much of the work overlaps.
const TARGET: usize = 16 << 10;

/// A direction of a queue pair.
pub(super) struct Flow {
    pub side: usize,
    pair: usize,
    random: Random,
    settings: Settings,
    longest: usize,
    /// Memory of the peer that one-sided verbs access, with its expected bytes at the start of the epoch
    /// (`base`) and after all posted work (`model`).
    target: Buffer,
    base: Vec<u8>,
    model: Vec<u8>,
    /// Local memory of work requests, used as a ring.
    arena: Buffer,
    arena_head: u64,
    arena_tail: u64,
    /// Memory of the peer's receives, with one slot for each.
    sink: Buffer,
    slot_len: usize,
    /// A region of the peer without remote access rights (`forbidden`), and a local region that the NIC may
    /// not write.
    forbidden: Buffer,
    unwritable: Buffer,
    /// Work requests of this epoch, their planned number, and the number of ended ones.
    ops: Vec<Op>,
    pub quota: usize,
    done: usize,
    /// Number of work requests that succeeded.
    succeeded: usize,
    waiting: Option<Op>,
    /// Pending messages, as indices into `ops`.
    messages: VecDeque<usize>,
    receives_posted: u64,
    received: u64,
    pub trouble: Option<(Trouble, usize)>,
    failed: Option<Status>,
    receive_failed: bool,
    /// Probability of posting receives in a turn. With `just_in_time`, receives are posted only for pending
    /// messages.
    pub readiness: f64,
    pub just_in_time: bool,
    /// True if the link is cut in this epoch, by the pair that first reaches its planned error.
    pub may_be_cut: bool,
    spent_keys: Vec<Buffer>,
    /// True if receives come from a shared receive queue, so that unused ones are not flushed.
    shared_receives: bool,
}

impl Flow {
    pub(crate) fn new(
        arm: &mut impl Arm,
        side: usize,
        pair: usize,
        random: Random,
        settings: &Settings,
        options: &Options,
        big: bool,
    ) -> Flow {
        let peer = 1 - side;
        let longest = if big { options.longest } else { TARGET / 2 };
        let slot_len = if big { 64 << 10 } else { 16 << 10 };
        let target = arm.register(peer, TARGET + longest, ALL);
        Flow {
            side,
            pair,
            random,
            settings: *settings,
            longest,
            base: vec![0; target.len],
            model: vec![0; target.len],
            target,
            arena: arm.register(side, 4 * longest + (64 << 10), ALL),
            arena_head: 0,
            arena_tail: 0,
            sink: arm.register(peer, slot_len * settings.receives as usize, Access::LOCAL_WRITE),
            slot_len,
            forbidden: arm.register(peer, 4096, Access::LOCAL_WRITE),
            unwritable: arm.register(side, 4096, Access::NONE),
            ops: Vec::new(),
            quota: 0,
            done: 0,
            succeeded: 0,
            waiting: None,
            messages: VecDeque::new(),
            receives_posted: 0,
            received: 0,
            trouble: None,
            failed: None,
            receive_failed: false,
            readiness: 1.0,
            just_in_time: false,
            may_be_cut: false,
            spent_keys: Vec::new(),
            shared_receives: arm.shares_receives(),
        }
    }

    /// Resets the flow after its queue pair was reconnected.
    pub(crate) fn reset(&mut self, settings: &Settings) {
        self.settings = *settings;
        (self.receives_posted, self.received) = (0, 0);
        self.messages.clear();
        self.waiting = None;
        (self.failed, self.receive_failed) = (None, false);
    }

    /// Starts a new epoch, after all earlier work has ended.
    pub(crate) fn begin(&mut self, quota: usize, trouble: Option<(Trouble, usize)>) {
        self.base.copy_from_slice(&self.model);
        self.ops.clear();
        (self.done, self.succeeded, self.quota) = (0, 0, quota);
        self.trouble = trouble;
    }

    /// Returns true if all work of the epoch was posted and has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.done == self.quota && self.messages.is_empty()
    }

    /// Returns true if everything posted has ended.
    pub(crate) fn is_flushed(&self) -> bool {
        self.done == self.ops.len() && (self.shared_receives || self.received == self.receives_posted)
    }

    /// Posts a last request to a queue pair in ERR. Unsignaled requests at the end of the queue may have
    /// succeeded without a completion; the flushed completion of the last request reports that they have
    /// ended. Returns true if the request was posted.
    pub(crate) fn post_last(&mut self, arm: &mut impl Arm, report: &mut Report) -> bool {
        if self.is_idle() {
            return false;
        }
        let op = Op {
            verb: Verb::Nop,
            seed: 0,
            len: 0,
            offset: 0,
            local: 0,
            arena_end: self.arena_head,
            signaled: true,
            fence: false,
            solicited: false,
            inline: false,
            expected: Vec::new(),
            compare: 0,
            operand: 0,
            imm: 0,
            key: Key::new(1),
            is_trouble: false,
        };
        let posted = self.post(arm, &op);
        assert!(matches!(posted, Ok(()) | Err(PostError::QueueFull)), "in ERR: {posted:?}");
        if posted.is_ok() {
            self.posted(op, report);
        }
        posted.is_ok()
    }

    /// Returns true if no send work request is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.done == self.ops.len()
    }

    /// Returns true if one of the queues failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some() || self.receive_failed
    }

    /// Returns true if the queue pair failed or has reached its planned error.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.has_failed() || self.reached().is_some()
    }

    /// Returns the planned error if it has been reached.
    pub(crate) fn reached(&self) -> Option<Trouble> {
        self.trouble.filter(|(_, turn)| self.ops.len() > *turn).map(|(trouble, _)| trouble)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "side {} pair {}: {} of {} posted of {} ended, {} messages under way, {} of {} receives taken, trouble {:?}, failed {:?}, next {:?}",
            self.side,
            self.pair,
            self.done,
            self.ops.len(),
            self.quota,
            self.messages.len(),
            self.received,
            self.receives_posted,
            self.trouble,
            self.failed,
            self.ops.get(self.done).map(|op| (op.verb, op.len, op.signaled))
        )
    }

    /// Posts some work requests. Returns true if at least one was posted.
    pub(crate) fn post_some(&mut self, arm: &mut impl Arm, report: &mut Report) -> bool {
        let count = self.ops.len();
        for _ in 0..self.random.below(4) {
            if self.ops.len() == self.quota {
                break;
            }
            let Some(op) = self.waiting.take().or_else(|| self.next_op(arm)) else { break };
            // The receive may already exist, if the send queue was full when the message was to be posted.
            let covered = self.receives_posted - self.received > self.messages.len() as u64;
            let never_ready = op.is_trouble || self.reached().is_some();
            let needed = self.just_in_time && op.verb.takes_receive() && !covered && !never_ready;
            if needed && !self.post_receive(arm, None) {
                self.waiting = Some(op);
                break;
            }
            match self.post(arm, &op) {
                Ok(()) => self.posted(op, report),
                Err(PostError::QueueFull) => {
                    self.waiting = Some(op);
                    break;
                }
                Err(error) => panic!("{op:?} is refused: {error}"),
            }
        }
        self.ops.len() > count
    }

    fn posted(&mut self, op: Op, report: &mut Report) {
        report.verb(op.verb);
        report.bytes += op.len as u64;
        report.inline += u64::from(op.inline);
        report.long_lists += u64::from(!op.inline && self.list(&op).len() > 16);
        report.fenced += u64::from(op.fence);
        if op.verb.takes_receive() {
            self.messages.push_back(self.ops.len());
        }
        if !op.is_trouble {
            op.apply(&mut self.model);
        }
        self.ops.push(op);
    }

    /// Returns a random verb, or one that can cause the planned error of this work request.
    fn verb(&mut self, trouble: Option<Trouble>) -> Verb {
        use Verb::{CompareSwap, FetchAdd, LocalInv, Read, Send, SendImm, SendInv, Write, WriteImm};
        let random = &mut self.random;
        match trouble {
            None => Verb::random(random),
            Some(Trouble::DeadKey | Trouble::OutOfBounds | Trouble::NoRight) => {
                random.pick(&[Write, Read, CompareSwap, FetchAdd])
            }
            Some(Trouble::Misaligned) => random.pick(&[CompareSwap, FetchAdd]),
            Some(Trouble::TooLong | Trouble::BadReceive) => random.pick(&[Send, SendImm]),
            Some(Trouble::BadInvalidation) => SendInv,
            Some(Trouble::BadLocalKey) => random.pick(&[Write, Send]),
            Some(Trouble::UnwritableSink) => random.pick(&[Read, FetchAdd]),
            Some(Trouble::BadLocalInvalidation) => LocalInv,
            Some(Trouble::NeverReady) => random.pick(&[Send, SendImm, WriteImm]),
            Some(Trouble::Cut | Trouble::Fail) => Write,
        }
    }

    /// Returns the next work request, or `None` if there is no local memory for it now.
    fn next_op(&mut self, arm: &mut impl Arm) -> Option<Op> {
        let index = self.ops.len();
        let trouble = self.trouble.filter(|(_, turn)| *turn == index).map(|(trouble, _)| trouble);
        let verb = self.verb(trouble);
        let len = self.len_of(verb, trouble);
        let local = self.take_arena(len)?;
        let random = &mut self.random;
        let offset = random.below((self.model.len() - len + 1) as u64) as usize;
        let offset = if verb.is_atomic() { offset.min(TARGET - 8) & !7 } else { offset };
        let mut op = Op {
            verb,
            seed: random.bits(),
            len,
            offset,
            local,
            arena_end: self.arena_head,
            // Some requests must be signaled, because slots of unsignaled requests are freed only by a later
            // completion.
            signaled: random.chance(0.5) || index % 8 == 7 || index + 1 == self.quota,
            fence: random.chance(0.05),
            solicited: random.chance(0.2),
            inline: false,
            expected: Vec::new(),
            compare: random.bits() >> random.below(64),
            operand: random.bits() >> random.below(64),
            imm: random.bits() as u32,
            key: Key::new(1),
            is_trouble: trouble
                .is_some_and(|trouble| trouble.is_of_a_request() || trouble == Trouble::NeverReady),
        };
        let sends_bytes = verb.is_send() || matches!(verb, Verb::Write | Verb::WriteImm);
        op.inline = sends_bytes
            && len <= self.settings.max_inline as usize
            && trouble != Some(Trouble::BadLocalKey)
            && self.random.chance(0.3);
        self.model_of(&mut op);
        op.key = self.key_to_invalidate(arm, verb, trouble);
        if sends_bytes && !op.inline {
            arm.store(&self.arena, op.local, &bytes_of(op.seed, op.len));
        }
        Some(op)
    }

    fn len_of(&mut self, verb: Verb, trouble: Option<Trouble>) -> usize {
        let mtu = self.settings.mtu as usize;
        let len = match verb {
            Verb::CompareSwap | Verb::FetchAdd => return 8,
            Verb::LocalInv | Verb::Nop => return 0,
            Verb::Send | Verb::SendImm | Verb::SendInv => random_len(&mut self.random, mtu, self.slot_len),
            _ if self.longest > TARGET && self.random.chance(0.004) => {
                self.random.below(self.longest as u64 + 1) as usize
            }
            _ => random_len(&mut self.random, mtu, self.longest),
        };
        // An empty message cannot fail.
        if trouble.is_some() { len.max(2) } else { len }
    }

    /// Sets the expected result, and a fence if the request changes memory that a pending READ still reads.
    fn model_of(&mut self, op: &mut Op) {
        match op.verb {
            Verb::Read => op.expected = self.model[op.range()].to_vec(),
            Verb::CompareSwap | Verb::FetchAdd => {
                op.expected = self.model[op.range()].to_vec();
                if self.random.chance(0.7) {
                    op.compare = word(&self.model, op.offset);
                }
            }
            _ => {}
        }
        let range = op.range();
        // Over IRN a WRITE is executed on arrival, possibly before earlier ones.
        let early = self.settings.irn.is_some() && !op.verb.is_atomic();
        let overlaps = |other: &Op| {
            let other_range = other.range();
            (other.verb == Verb::Read || early)
                && other_range.start < range.end
                && range.start < other_range.end
        };
        if op.verb.changes_target() && self.ops[self.done..].iter().any(overlaps) {
            op.fence = true;
        }
    }

    fn key_to_invalidate(&mut self, arm: &mut impl Arm, verb: Verb, trouble: Option<Trouble>) -> Key {
        let side = match verb {
            _ if trouble.is_some() => return Key::new(self.random.bits() as u32 | 1),
            Verb::SendInv => 1 - self.side,
            Verb::LocalInv => self.side,
            _ => return Key::new(1),
        };
        let buffer = arm.register(side, 64, ALL | Access::INVALIDATE);
        self.spent_keys.push(buffer);
        buffer.key
    }

    fn take_arena(&mut self, len: usize) -> Option<usize> {
        let size = self.arena.len as u64;
        let len = len.next_multiple_of(8) as u64;
        let mut start = self.arena_head;
        if start % size + len > size {
            start = start.next_multiple_of(size);
        }
        if start + len - self.arena_tail > size {
            return None;
        }
        self.arena_head = start + len;
        Some((start % size) as usize)
    }

    fn remote(&self, op: &Op) -> Remote {
        let right = Remote { addr: self.target.address + op.offset as u64, rkey: self.target.key };
        match self.trouble.filter(|_| op.is_trouble).map(|(trouble, _)| trouble) {
            Some(Trouble::DeadKey) => Remote { rkey: Key::new(op.imm | 1), ..right },
            Some(Trouble::OutOfBounds) => {
                let end = self.target.address + self.target.len as u64;
                let beyond = if op.verb.is_atomic() { end } else { end - op.len as u64 + 1 };
                Remote { addr: beyond, ..right }
            }
            Some(Trouble::NoRight) => Remote { addr: self.forbidden.address, rkey: self.forbidden.key },
            Some(Trouble::Misaligned) => Remote { addr: right.addr + 1 + (op.imm % 7) as u64, ..right },
            _ => right,
        }
    }

    fn operation(&self, op: &Op) -> Operation {
        let remote = self.remote(op);
        match op.verb {
            Verb::Send => Operation::Send,
            Verb::SendImm => Operation::SendImm(op.imm),
            Verb::SendInv => Operation::SendInv(op.key),
            Verb::Write => Operation::Write(remote),
            Verb::WriteImm => Operation::WriteImm(remote, op.imm),
            Verb::Read => Operation::Read(remote),
            Verb::CompareSwap => Operation::CompareSwap { remote, compare: op.compare, swap: op.operand },
            Verb::FetchAdd => Operation::FetchAdd { remote, add: op.operand },
            Verb::LocalInv => Operation::LocalInv(op.key),
            Verb::Nop => Operation::Nop,
        }
    }

    /// Returns the local list of a work request, with its memory split at random positions.
    fn list(&self, op: &Op) -> Vec<Sge> {
        let mut whole =
            Sge { addr: self.arena.address + op.local as u64, len: op.len as u32, lkey: self.arena.key };
        match self.trouble.filter(|_| op.is_trouble).map(|(trouble, _)| trouble) {
            Some(Trouble::BadLocalKey) => whole.lkey = Key::new(op.imm | 1),
            Some(Trouble::UnwritableSink) => {
                whole = Sge { addr: self.unwritable.address, lkey: self.unwritable.key, ..whole };
            }
            _ => {}
        }
        let mut random = Random::new(op.seed ^ 1);
        let most = u64::from(self.settings.max_sge);
        match op.verb {
            Verb::LocalInv | Verb::Nop => Vec::new(),
            _ if op.len == 0 && random.chance(0.5) => Vec::new(),
            Verb::CompareSwap | Verb::FetchAdd => vec![whole],
            _ if random.chance(0.5) => vec![whole],
            _ => {
                let pieces = random.between(1, most);
                cut(&mut random, whole, pieces)
            }
        }
    }

    fn post(&self, arm: &mut impl Arm, op: &Op) -> Result<(), PostError> {
        let list = self.list(op);
        let bytes = if op.inline { bytes_of(op.seed, op.len) } else { Vec::new() };
        let flags = Flags { signaled: op.signaled, fence: op.fence, solicited: op.solicited };
        let request = WorkRequest {
            id: self.ops.len() as u64,
            operation: self.operation(op),
            payload: if op.inline { Payload::Inline(&bytes) } else { Payload::Sges(&list) },
            flags,
        };
        arm.post(self.side, self.pair, &request)
    }

    /// Posts receives at the peer, depending on `readiness`. Returns true if at least one was posted.
    pub(crate) fn post_receives(&mut self, arm: &mut impl Arm) -> bool {
        if self.just_in_time || self.receive_failed || !self.random.chance(self.readiness) {
            return false;
        }
        let posted = self.receives_posted;
        loop {
            let ahead = (self.receives_posted - self.received) as usize;
            let coming = self.messages.get(ahead).map(|index| &self.ops[*index]);
            let trouble = self.trouble.map(|(trouble, _)| trouble);
            // A receive that must fail must be used by the intended message.
            let careful = matches!(trouble, Some(Trouble::TooLong | Trouble::BadReceive));
            let wrong = coming.filter(|op| op.is_trouble).and(trouble);
            let first_with = self.messages.len() > ahead;
            if careful && !first_with {
                break;
            }
            if !self.post_receive(arm, wrong) || self.readiness < 1.0 {
                break;
            }
        }
        self.receives_posted > posted
    }

    /// Posts a receive at the peer. Returns false if the receive queue is full.
    fn post_receive(&mut self, arm: &mut impl Arm, wrong: Option<Trouble>) -> bool {
        let index = self.receives_posted;
        if index - self.received >= u64::from(self.settings.receives) {
            return false;
        }
        let slot = index as usize % self.settings.receives as usize * self.slot_len;
        let mut whole =
            Sge { addr: self.sink.address + slot as u64, len: self.slot_len as u32, lkey: self.sink.key };
        match wrong {
            Some(Trouble::TooLong) => {
                let message = self.messages[(index - self.received) as usize];
                whole.len = self.random.below(self.ops[message].len as u64) as u32;
            }
            Some(Trouble::BadReceive) => whole.lkey = Key::new(self.random.bits() as u32 | 1),
            _ => {}
        }
        let pieces = self.random.between(1, u64::from(self.settings.receive_max_sge));
        let list = cut(&mut self.random, whole, pieces);
        let request = ReceiveRequest { id: RECEIVE | index, sges: &list };
        match arm.post_receive(1 - self.side, self.pair, &request) {
            Ok(()) => self.receives_posted += 1,
            Err(PostError::QueueFull) => return false,
            Err(error) => panic!("receive {index} is refused: {error}"),
        }
        true
    }

    /// Checks a completion of a send work request. `disturbed` is true if the queue pair may have entered
    /// ERR for another reason.
    pub(crate) fn completed(
        &mut self,
        arm: &mut impl Arm,
        wc: &WorkCompletion,
        disturbed: bool,
        report: &mut Report,
    ) {
        let index = wc.id as usize;
        let here = || format!("side {} pair {}: completion {wc:?}", self.side, self.pair);
        assert!(index < self.ops.len() && index >= self.done, "{}: expected {} or later", here(), self.done);
        report.status(wc.status, false);
        if self.failed.is_some() {
            assert_eq!((wc.status, index), (Status::WrFlushed, self.done), "{}", here());
        } else {
            let silent = self.ops[self.done..index].iter().any(|op| op.signaled || op.is_trouble);
            assert!(!silent, "{}: one from {} on has no completion", here(), self.done);
            self.ended(arm, index, wc, disturbed, report);
        }
        self.done = index + 1;
        self.arena_tail = self.ops[index].arena_end;
    }

    /// Checks a successful completion, or the first one in error.
    fn ended(
        &mut self,
        arm: &mut impl Arm,
        index: usize,
        wc: &WorkCompletion,
        disturbed: bool,
        report: &mut Report,
    ) {
        let op = &self.ops[index];
        for earlier in &self.ops[self.done..index] {
            self.check_result(arm, earlier);
        }
        if wc.status == Status::Success {
            assert!(op.signaled && !op.is_trouble, "{op:?} brought {wc:?}");
            assert_eq!(wc.kind, op.verb.completion(), "{op:?} brought {wc:?}");
            self.check_result(arm, op);
            let fetched = if op.expected.is_empty() { 0 } else { op.len };
            assert_eq!(wc.byte_len as usize, fetched, "{op:?} brought {wc:?}");
            self.succeeded = index + 1;
            return;
        }
        let planned = self.trouble.filter(|_| op.is_trouble).map(|(trouble, _)| trouble.status());
        let right = match wc.status {
            Status::RetryExceeded => true,
            Status::WrFlushed => disturbed,
            status => Some(status) == planned,
        };
        assert!(right, "side {} pair {}: {wc:?}, planned {planned:?}, of {op:?}", self.side, self.pair);
        report.bad_luck += u64::from(wc.status == Status::RetryExceeded && !self.may_be_cut && !disturbed);
        self.succeeded = index;
        self.failed = Some(wc.status);
    }

    /// Checks that a finished READ or atomic returned the bytes that the model expects.
    fn check_result(&self, arm: &mut impl Arm, op: &Op) {
        if op.expected.is_empty() {
            return;
        }
        let mut content = vec![0; op.len];
        arm.load(&self.arena, op.local, &mut content);
        if content != op.expected {
            let index = content.iter().zip(&op.expected).position(|(a, b)| a != b);
            panic!(
                "side {} pair {}: {:?} of {} bytes at {} brought other bytes than the model has, from {index:?} on",
                self.side, self.pair, op.verb, op.len, op.offset
            );
        }
    }

    /// Checks a completion of a receive work request at the peer.
    pub(crate) fn received(
        &mut self,
        arm: &mut impl Arm,
        wc: &WorkCompletion,
        disturbed: bool,
        report: &mut Report,
    ) {
        let here = format!("side {} pair {}: {wc:?}", self.side, self.pair);
        assert_eq!(wc.id, RECEIVE | self.received, "{here}: receives end in order");
        report.status(wc.status, true);
        let slot = self.received as usize % self.settings.receives as usize * self.slot_len;
        self.received += 1;
        if wc.status == Status::Success {
            assert!(!self.receive_failed, "{here} after an error");
            let index =
                self.messages.pop_front().unwrap_or_else(|| panic!("{here}: no message is on the way"));
            return self.check_message(arm, &self.ops[index], slot, wc);
        }
        let front = self.messages.front().map(|index| &self.ops[*index]);
        let planned = self.trouble.filter(|_| front.is_some_and(|op| op.is_trouble));
        let planned = planned.and_then(|(trouble, _)| trouble.receive_status());
        let right = match wc.status {
            Status::WrFlushed => disturbed || self.receive_failed,
            status => Some(status) == planned && !self.receive_failed,
        };
        assert!(right, "{here}: planned {planned:?}");
        self.receive_failed = true;
    }

    fn check_message(&self, arm: &mut impl Arm, op: &Op, slot: usize, wc: &WorkCompletion) {
        assert!(!op.is_trouble, "{op:?} was received: {wc:?} {:?}", self.trouble);
        let kind =
            if op.verb == Verb::WriteImm { CompletionKind::ReceiveWriteImm } else { CompletionKind::Receive };
        assert_eq!((wc.kind, wc.byte_len as usize), (kind, op.len), "{op:?}");
        let imm = matches!(op.verb, Verb::SendImm | Verb::WriteImm).then_some(op.imm);
        assert_eq!(wc.imm, imm, "{op:?}");
        assert_eq!(wc.invalidated, (op.verb == Verb::SendInv).then_some(op.key), "{op:?}");
        if op.verb.is_send() {
            let mut content = vec![0; op.len];
            arm.load(&self.sink, slot, &mut content);
            assert!(content == bytes_of(op.seed, op.len), "{op:?} arrived with other bytes");
        }
    }

    /// Checks at the end of an epoch that the target matches the model.
    pub(crate) fn check_target(&mut self, arm: &mut impl Arm) {
        let mut content = vec![0; self.target.len];
        arm.load(&self.target, 0, &mut content);
        let disturbed = self.failed.is_some() || self.receive_failed || self.done < self.quota;
        if !disturbed {
            assert!(
                content == self.model,
                "side {} pair {}: the peer's memory differs from the model at {:?}",
                self.side,
                self.pair,
                content.iter().zip(&self.model).position(|(a, b)| a != b)
            );
        } else {
            self.check_prefix(&content);
            self.model = content;
        }
        self.arena_tail = self.arena_head;
        for buffer in self.spent_keys.drain(..) {
            arm.deregister(&buffer);
        }
    }

    /// Checks memory after an error: some number of work requests, at least the successful ones, must have
    /// been executed in order, and possibly a part of the next one.
    fn check_prefix(&self, content: &[u8]) {
        let mut state = self.base.clone();
        if self.settings.irn.is_some() {
            return self.check_any_order(content, state);
        }
        for executed in 0..=self.ops.len() {
            let next = self.ops.get(executed);
            if executed >= self.succeeded && fits(content, &state, next) {
                return;
            }
            let Some(op) = next else { break };
            let trouble = self.trouble.filter(|_| op.is_trouble).map(|(trouble, _)| trouble);
            // The peer refused this request or it was never sent, so no later one was executed.
            if trouble.is_some_and(|trouble| trouble != Trouble::UnwritableSink) {
                break;
            }
            op.apply(&mut state);
        }
        panic!(
            "side {} pair {}: no number of work requests from {} to {} executed gives the memory found (trouble {:?})",
            self.side,
            self.pair,
            self.succeeded,
            self.ops.len(),
            self.trouble
        );
    }

    /// Checks memory after an error over IRN: successful work has been executed, and any part of later work
    /// may have been. Overlapping work was fenced, so each byte must have one of the values that it takes
    /// during an execution in order.
    fn check_any_order(&self, content: &[u8], mut state: Vec<u8>) {
        self.ops[..self.succeeded].iter().for_each(|op| op.apply(&mut state));
        let mut explained: Vec<bool> =
            content.iter().zip(&state).map(|(content, state)| content == state).collect();
        // Failed work does not change the target, with two exceptions: an atomic whose old value cannot be
        // stored locally, and the first packets of a WRITE whose last packet finds no receive.
        let changes = |trouble| matches!(trouble, Trouble::UnwritableSink | Trouble::NeverReady);
        let changes = self.trouble.is_some_and(|(trouble, _)| changes(trouble));
        for op in self.ops[self.succeeded..].iter().filter(|op| !op.is_trouble || changes) {
            op.apply(&mut state);
            for offset in op.range() {
                explained[offset] |= content[offset] == state[offset];
            }
        }
        assert!(
            explained.iter().all(|explained| *explained),
            "side {} pair {}: nothing posted explains byte {:?} (trouble {:?})",
            self.side,
            self.pair,
            explained.iter().position(|explained| !explained),
            self.trouble
        );
    }
}

/// Returns true if `content` equals the state, except for bytes that `next` may have changed already.
fn fits(content: &[u8], state: &[u8], next: Option<&Op>) -> bool {
    let hole = next.filter(|op| op.verb.changes_target()).map_or(0..0, Op::range);
    if content[..hole.start] != state[..hole.start] || content[hole.end..] != state[hole.end..] {
        return false;
    }
    let Some(op) = next.filter(|_| !hole.is_empty()) else { return true };
    let mut after = state.to_vec();
    op.apply(&mut after);
    hole.into_iter().all(|index| content[index] == state[index] || content[index] == after[index])
}

/// Splits an element into `pieces` elements, which may be empty.
fn cut(random: &mut Random, whole: Sge, pieces: u64) -> Vec<Sge> {
    let mut borders: Vec<u32> = (1..pieces).map(|_| random.below(u64::from(whole.len) + 1) as u32).collect();
    borders.extend([0, whole.len]);
    borders.sort_unstable();
    let piece = |pair: &[u32]| Sge {
        addr: whole.addr + u64::from(pair[0]),
        len: pair[1] - pair[0],
        lkey: whole.lkey,
    };
    borders.windows(2).map(piece).collect()
}

/// Returns random settings of a connection with the same queue sizes.
pub(super) fn reconnect_settings(
    random: &mut Random,
    settings: &Settings,
    patient: bool,
    path_mtu: u32,
) -> Settings {
    let near_the_wrap = |random: &mut Random| 0x00ff_ffff - random.below(60) as u32;
    let anywhere = |random: &mut Random| random.below(1 << 24) as u32;
    let psn = |random: &mut Random| if random.chance(0.7) { near_the_wrap(random) } else { anywhere(random) };
    let max_rd_atomic = random.pick(&[1, 2, 4, 16]);
    Settings {
        access: REMOTE,
        mtu: random.pick(&[256, 512, 1024, 2048, 4096]).min(path_mtu),
        psn: [psn(random), psn(random)],
        rnr_retry: if patient { 7 } else { random.below(4) as u8 },
        max_rd_atomic,
        max_dest_rd_atomic: max_rd_atomic + random.below(3) as u8,
        min_rnr_timer: random.between(1, 5) as u8,
        ..*settings
    }
}
