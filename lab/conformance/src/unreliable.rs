//! The conformance test of the unreliable services, in which a message arrives completely or not at all.
//!
//! Both sides send random messages. Each received message must be one that was sent, with all its bytes. The
//! packets of a WRITE must be in memory from the first one on without a gap, and all of them when its
//! immediate data arrives. Work requests of the sender must end in order, each once, and never because of
//! the network. Mishaps are planned like the [`Trouble`](super::Trouble)s of the reliable test, but most of
//! them cause no completion in error.

use remora_memory::{Access, Key};
use remora_nic::{
    Flags, Operation, Payload, PostError, ReceiveRequest, Remote, Sge, Status, WorkCompletion, WorkRequest,
};
use std::collections::{BTreeMap, VecDeque};

use super::flow::{RECEIVE, reconnect_settings};
use super::{Arm, Buffer, Options};
use crate::operation::{bytes_of, random_len};
use remora_fabric::program::{ALL, Settings};
use remora_fault::Random;

/// A planned error.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// A WRITE with an invalid key; it is dropped silently.
    DeadKey,
    /// A WRITE beyond the end of the region; it is dropped silently.
    OutOfBounds,
    /// A WRITE that the rights of the region do not allow; it is dropped silently.
    NoRight,
    /// A SEND that is longer than its receive; it is dropped silently.
    TooLong,
    /// An invalid local key of the data to send; the send queue enters SQE.
    BadLocalKey,
    /// A verb that the service does not support; the send queue enters SQE.
    NoSuchVerb,
    /// A receive with an invalid key; the receiver's queue pair enters ERR.
    BadReceive,
    /// The program moves its queue pair to ERR.
    Fail,
}

impl Mishap {
    /// Mishaps of unreliable connections.
    pub const ALL: [Mishap; 8] = [
        Mishap::DeadKey,
        Mishap::OutOfBounds,
        Mishap::NoRight,
        Mishap::TooLong,
        Mishap::BadLocalKey,
        Mishap::NoSuchVerb,
        Mishap::BadReceive,
        Mishap::Fail,
    ];

    /// Mishaps of datagrams.
    pub const OF_DATAGRAMS: [Mishap; 5] =
        [Mishap::TooLong, Mishap::BadLocalKey, Mishap::NoSuchVerb, Mishap::BadReceive, Mishap::Fail];

    fn status(self) -> Option<Status> {
        match self {
            Mishap::BadLocalKey => Some(Status::LocalProtection),
            Mishap::NoSuchVerb => Some(Status::LocalQpOperation),
            _ => None,
        }
    }
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreliableReport {
    /// Number of messages sent, by verb.
    pub sent: BTreeMap<&'static str, u64>,
    /// Number of messages that completed a receive, by verb.
    pub arrived: BTreeMap<&'static str, u64>,
    /// Number of WRITEs that arrived completely, in part, and not at all.
    pub writes: [u64; 3],
    /// Number of mishaps, by kind.
    pub mishaps: BTreeMap<Mishap, u64>,
    /// Number of completions of sends and receives, by status.
    pub statuses: BTreeMap<Status, u64>,
    /// Number of received messages with more than one packet.
    pub long: u64,
    /// Number of epochs.
    pub epochs: u64,
}

impl UnreliableReport {
    /// Returns the total number of messages sent.
    pub fn messages(&self) -> u64 {
        self.sent.values().sum()
    }

    /// Returns the number of messages that completed a receive.
    pub fn arrivals(&self) -> u64 {
        self.arrived.values().sum()
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &UnreliableReport) {
        let add = |mine: &mut BTreeMap<&'static str, u64>, theirs: &BTreeMap<&'static str, u64>| {
            theirs.iter().for_each(|(name, count)| *mine.entry(name).or_default() += count);
        };
        add(&mut self.sent, &other.sent);
        add(&mut self.arrived, &other.arrived);
        self.writes.iter_mut().zip(other.writes).for_each(|(mine, theirs)| *mine += theirs);
        other.mishaps.iter().for_each(|(mishap, count)| *self.mishaps.entry(*mishap).or_default() += count);
        other.statuses.iter().for_each(|(status, count)| *self.statuses.entry(*status).or_default() += count);
        self.long += other.long;
        self.epochs += other.epochs;
    }
}

/// A message that was sent.
#[derive(Clone, Debug)]
struct Message {
    verb: &'static str,
    seed: u64,
    len: usize,
    /// Offset of a WRITE in the target; `None` for a SEND.
    offset: Option<usize>,
    imm: Option<u32>,
    signaled: bool,
    inline: bool,
    local: usize,
    mishap: Option<Mishap>,
}

impl Message {
    /// Returns true if the message may arrive. A message too long for one receive may have used another one,
    /// and a message posted before its queue pair failed may have been sent before. Other messages with a
    /// mishap never arrive.
    fn may_arrive(&self) -> bool {
        matches!(self.mishap, None | Some(Mishap::TooLong | Mishap::BadReceive | Mishap::Fail))
    }
}

/// A direction of a queue pair.
struct Flow {
    side: usize,
    pair: usize,
    random: Random,
    settings: Settings,
    arena: Buffer,
    sink: Buffer,
    slot_len: usize,
    forbidden: Buffer,
    /// Target memory of this epoch, in which each WRITE has its own range.
    target: Option<Buffer>,
    target_used: usize,
    messages: Vec<Message>,
    quota: usize,
    ended: usize,
    mishap: Option<(Mishap, usize)>,
    /// True if the send queue is in SQE or the queue pair in ERR.
    failed: bool,
    /// Posted receives, oldest first: length, and true if the key is invalid.
    receives: VecDeque<(u32, bool)>,
    posted: u64,
    taken: u64,
    waiting: Option<Message>,
}

const ARENA: usize = 256 << 10;
const TARGET: usize = 512 << 10;

impl Flow {
    fn new(arm: &mut impl Arm, side: usize, pair: usize, random: Random, settings: &Settings) -> Flow {
        let slot_len = arm.prefix() + (16 << 10);
        Flow {
            side,
            pair,
            random,
            settings: *settings,
            arena: arm.register(side, ARENA, ALL),
            sink: arm.register(1 - side, slot_len * settings.receives as usize, Access::LOCAL_WRITE),
            slot_len,
            forbidden: arm.register(1 - side, 4096, Access::LOCAL_WRITE),
            target: None,
            target_used: 0,
            messages: Vec::new(),
            quota: 0,
            ended: 0,
            mishap: None,
            failed: false,
            receives: VecDeque::new(),
            posted: 0,
            taken: 0,
            waiting: None,
        }
    }

    fn begin(&mut self, arm: &mut impl Arm, mishap: Option<Mishap>) {
        self.target = Some(arm.register(1 - self.side, TARGET, ALL));
        self.target_used = 0;
        self.messages.clear();
        self.ended = 0;
        self.quota = self.random.between(20, 120) as usize;
        let turn = self.random.below(self.quota as u64) as usize;
        self.mishap = mishap.map(|mishap| (mishap, turn));
        self.waiting = None;
    }

    fn reset(&mut self, settings: &Settings) {
        self.settings = *settings;
        self.receives.clear();
        (self.posted, self.taken, self.failed) = (0, 0, false);
    }

    fn is_over(&self) -> bool {
        self.ended == self.messages.len() && (self.messages.len() == self.quota || self.failed)
    }

    fn next(&mut self, arm: &mut impl Arm) -> Option<Message> {
        let datagrams = arm.longest().is_some();
        let index = self.messages.len();
        let mishap = self.mishap.filter(|(_, turn)| *turn == index).map(|(mishap, _)| mishap);
        let mtu = self.settings.mtu as usize;
        let random = &mut self.random;
        let kind = match mishap {
            Some(Mishap::DeadKey | Mishap::OutOfBounds | Mishap::NoRight) => random.between(2, 3),
            Some(Mishap::TooLong | Mishap::BadReceive) => 0,
            _ if datagrams => random.below(2),
            _ => random.below(4),
        };
        let verb = ["Send", "SendImm", "Write", "WriteImm"][kind as usize];
        let longest = arm.longest().unwrap_or(self.slot_len - arm.prefix());
        let mut len = random_len(random, mtu, longest);
        if mishap.is_some() {
            len = len.max(2);
        }
        let writes = kind >= 2;
        if writes && self.target_used + len + 8 > TARGET {
            // The target has no space left in this epoch, so send a SEND instead.
            return self.next_send(mishap, len);
        }
        let offset = writes.then_some(self.target_used);
        self.target_used += if writes { len + 8 } else { 0 };
        let imm = (kind % 2 == 1).then_some(index as u32);
        Some(self.message(verb, len, offset, imm, mishap))
    }

    fn next_send(&mut self, mishap: Option<Mishap>, len: usize) -> Option<Message> {
        let mishap = mishap
            .filter(|mishap| !matches!(mishap, Mishap::DeadKey | Mishap::OutOfBounds | Mishap::NoRight));
        Some(self.message("Send", len, None, None, mishap))
    }

    fn message(
        &mut self,
        verb: &'static str,
        len: usize,
        offset: Option<usize>,
        imm: Option<u32>,
        mishap: Option<Mishap>,
    ) -> Message {
        let random = &mut self.random;
        let slots = ARENA / (16 << 10);
        Message {
            verb,
            seed: random.bits(),
            len,
            offset,
            imm,
            signaled: random.chance(0.6) || self.messages.len() + 1 == self.quota || mishap.is_some(),
            inline: len <= self.settings.max_inline as usize && mishap.is_none() && random.chance(0.3),
            local: self.messages.len() % slots * (16 << 10),
            mishap,
        }
    }

    /// Posts some messages. Returns true if at least one was posted.
    fn post_some(&mut self, arm: &mut impl Arm, report: &mut UnreliableReport) -> bool {
        let before = self.messages.len();
        for _ in 0..self.random.below(4) {
            let slots = ARENA / (16 << 10);
            if self.failed
                || self.messages.len() == self.quota
                || self.messages.len() - self.ended == slots - 1
            {
                break;
            }
            let Some(message) = self.waiting.take().or_else(|| self.next(arm)) else { break };
            match self.post(arm, &message) {
                Ok(()) => {
                    *report.sent.entry(message.verb).or_default() += 1;
                    if let Some(mishap) = message.mishap {
                        *report.mishaps.entry(mishap).or_default() += 1;
                    }
                    self.messages.push(message);
                }
                Err(PostError::QueueFull) => {
                    self.waiting = Some(message);
                    break;
                }
                Err(error) => panic!("{message:?} is refused: {error}"),
            }
        }
        self.messages.len() > before
    }

    fn post(&mut self, arm: &mut impl Arm, message: &Message) -> Result<(), PostError> {
        let bytes = bytes_of(message.seed, message.len);
        if !message.inline {
            arm.store(&self.arena, message.local, &bytes);
        }
        let mut sge = Sge {
            addr: self.arena.address + message.local as u64,
            len: message.len as u32,
            lkey: self.arena.key,
        };
        if message.mishap == Some(Mishap::BadLocalKey) {
            sge.lkey = Key::new(message.seed as u32 | 1);
        }
        let cut = self.random.below(u64::from(sge.len) + 1) as u32;
        let pieces =
            [Sge { len: cut, ..sge }, Sge { addr: sge.addr + u64::from(cut), len: sge.len - cut, ..sge }];
        let list: &[Sge] = if self.settings.max_sge > 1 && message.seed & 1 == 1 { &pieces } else { &[sge] };
        let request = WorkRequest {
            id: self.messages.len() as u64,
            operation: self.operation(message),
            payload: if message.inline { Payload::Inline(&bytes) } else { Payload::Sges(list) },
            flags: Flags { signaled: message.signaled, fence: false, solicited: message.seed & 2 == 2 },
        };
        arm.post(self.side, self.pair, &request)
    }

    fn operation(&self, message: &Message) -> Operation {
        let target = self.target.as_ref().expect("each epoch has a target");
        let mut remote =
            Remote { addr: target.address + message.offset.unwrap_or(0) as u64, rkey: target.key };
        match message.mishap {
            Some(Mishap::DeadKey) => remote.rkey = Key::new(message.seed as u32 | 1),
            Some(Mishap::OutOfBounds) => remote.addr = target.address + (TARGET - message.len + 1) as u64,
            Some(Mishap::NoRight) => {
                remote = Remote { addr: self.forbidden.address, rkey: self.forbidden.key };
            }
            Some(Mishap::NoSuchVerb) => return Operation::SendInv(Key::new(1)),
            _ => {}
        }
        match (message.offset, message.imm) {
            (None, None) => Operation::Send,
            (None, Some(imm)) => Operation::SendImm(imm),
            (Some(_), None) => Operation::Write(remote),
            (Some(_), Some(imm)) => Operation::WriteImm(remote, imm),
        }
    }

    /// Posts receives at the peer. They are short if a message must be too long for all of them.
    fn post_receives(&mut self, arm: &mut impl Arm, generous: bool) -> bool {
        let before = self.posted;
        let planned = self.mishap.filter(|(_, turn)| self.messages.len() > *turn).map(|(mishap, _)| mishap);
        while self.posted - self.taken < u64::from(self.settings.receives)
            && (generous || self.random.chance(0.7))
        {
            let offset = self.posted as usize % self.settings.receives as usize * self.slot_len;
            let mut sge = Sge {
                addr: self.sink.address + offset as u64,
                len: self.slot_len as u32,
                lkey: self.sink.key,
            };
            let narrow = matches!(self.mishap, Some((Mishap::TooLong, _)));
            if narrow && self.random.chance(0.5) {
                sge.len = (arm.prefix() + self.random.below(64) as usize) as u32;
            }
            let bad = planned == Some(Mishap::BadReceive) && self.random.chance(0.2);
            if bad {
                sge.lkey = Key::new(self.random.bits() as u32 | 1);
            }
            let request = ReceiveRequest { id: RECEIVE | self.posted, sges: &[sge] };
            match arm.post_receive(1 - self.side, self.pair, &request) {
                Ok(()) => self.posted += 1,
                Err(PostError::QueueFull) => break,
                Err(error) => panic!("a receive is refused: {error}"),
            }
            self.receives.push_back((sge.len, bad));
        }
        self.posted > before
    }

    /// Checks a completion of a send work request.
    fn completed(&mut self, wc: &WorkCompletion, failing: bool, report: &mut UnreliableReport) {
        *report.statuses.entry(wc.status).or_default() += 1;
        let index = wc.id as usize;
        let here = || format!("side {} pair {}: {wc:?}", self.side, self.pair);
        assert!(index >= self.ended && index < self.messages.len(), "{}: expected {}", here(), self.ended);
        let skipped = &self.messages[self.ended..index];
        assert!(skipped.iter().all(|message| !message.signaled), "{}: one had no completion", here());
        let message = &self.messages[index];
        let planned = message.mishap.and_then(Mishap::status);
        match wc.status {
            Status::Success => assert!((!self.failed || failing) && planned.is_none(), "{}", here()),
            Status::WrFlushed => assert!(self.failed || failing, "{}", here()),
            status => assert_eq!(Some(status), planned, "{}", here()),
        }
        self.failed |= wc.status != Status::Success;
        self.ended = index + 1;
    }

    /// Checks a completion of a receive at the peer. Returns true if it is in error.
    fn received(&mut self, arm: &mut impl Arm, wc: &WorkCompletion, report: &mut UnreliableReport) -> bool {
        *report.statuses.entry(wc.status).or_default() += 1;
        assert_eq!(wc.id, RECEIVE | self.taken, "receives end in order");
        self.taken += 1;
        let (capacity, bad) = self.receives.pop_front().expect("as many as were posted");
        if wc.status != Status::Success {
            assert!(wc.status == Status::WrFlushed || bad && wc.status == Status::LocalProtection, "{wc:?}");
            return true;
        }
        let slot = (wc.id & !RECEIVE) as usize % self.settings.receives as usize * self.slot_len;
        self.check_message(arm, wc, slot, capacity, report);
        false
    }

    fn check_message(
        &mut self,
        arm: &mut impl Arm,
        wc: &WorkCompletion,
        slot: usize,
        capacity: u32,
        report: &mut UnreliableReport,
    ) {
        let write = wc.kind == remora_nic::CompletionKind::ReceiveWriteImm;
        let prefix = if write { 0 } else { arm.prefix() };
        let len = wc.byte_len as usize - prefix;
        assert!(write || wc.byte_len <= capacity, "{wc:?} in {capacity} bytes");
        let mut content = vec![0; len];
        if !write {
            arm.load(&self.sink, slot + prefix, &mut content);
        }
        let fits = |message: &&Message| {
            (message.len, message.imm) == (len, wc.imm)
                && message.offset.is_some() == write
                && message.may_arrive()
                && (write || bytes_of(message.seed, len) == content)
        };
        let sent = self.messages.iter().rev().find(fits);
        let Some(sent) = sent else {
            panic!("side {} pair {}: {wc:?} is no message that was sent", self.side, self.pair)
        };
        *report.arrived.entry(sent.verb).or_default() += 1;
        report.long += u64::from(len > self.settings.mtu as usize);
        if let Some(offset) = sent.offset {
            let target = self.target.as_ref().expect("each epoch has a target");
            let mut there = vec![0; len];
            arm.load(target, offset, &mut there);
            assert!(there == bytes_of(sent.seed, len), "{sent:?} was announced before it was whole");
        }
    }

    /// Checks, when nothing is in flight, that the target matches the WRITEs.
    fn check_target(&mut self, arm: &mut impl Arm, report: &mut UnreliableReport) {
        let Some(target) = self.target.take() else { return };
        let mut content = vec![0; TARGET];
        arm.load(&target, 0, &mut content);
        let mtu = self.settings.mtu as usize;
        let mut checked = 0;
        for message in self.messages.iter().filter(|message| message.may_arrive()) {
            let Some(offset) = message.offset else { continue };
            assert!(
                content[checked..offset].iter().all(|byte| *byte == 0),
                "bytes between the WRITEs changed"
            );
            let bytes = bytes_of(message.seed, message.len);
            let there = &content[offset..offset + message.len];
            let packets = message.len.div_ceil(mtu);
            let prefix = |count: usize| {
                let end = (count * mtu).min(message.len);
                there[..end] == bytes[..end] && there[end..].iter().all(|byte| *byte == 0)
            };
            let arrived = (0..=packets).rev().find(|count| prefix(*count));
            let arrived = arrived.unwrap_or_else(|| panic!("{message:?} arrived with a hole"));
            let outcome = if arrived == packets { 0 } else { 1 + usize::from(arrived == 0) };
            report.writes[outcome] += u64::from(message.len > 0);
            checked = offset + message.len;
        }
        assert!(content[checked..].iter().all(|byte| *byte == 0), "bytes behind the WRITEs changed");
        arm.deregister(&target);
    }
}

/// A queue pair with its two directions.
struct Pair {
    number: usize,
    random: Random,
    settings: Settings,
    flows: [Flow; 2],
    mishap: Option<(Mishap, usize)>,
    /// True after one end has failed, so that both must be moved to ERR.
    failing: bool,
}

impl Pair {
    fn new(arm: &mut impl Arm, random: &mut Random, options: &Options) -> Pair {
        let mut random = random.split();
        let settings = Settings {
            send_slots: random.pick(&[16, 32, 128]),
            receives: random.pick(&[4, 16, 32]),
            max_sge: random.pick(&[1, 4]),
            receive_max_sge: 1,
            max_inline: random.pick(&[0, 64, 300]),
            timeout: options.timeout,
            ..Settings::default()
        };
        let settings = reconnect_settings(&mut random, &settings, true, arm.path_mtu());
        let number = arm.connect(&settings);
        let mut flow = |side| Flow::new(arm, side, number, random.split(), &settings);
        let flows = [flow(0), flow(1)];
        Pair { number, random, settings, flows, mishap: None, failing: false }
    }

    fn begin(&mut self, arm: &mut impl Arm, options: &Options) {
        let kinds = if arm.longest().is_some() { &Mishap::OF_DATAGRAMS[..] } else { &Mishap::ALL };
        let culprit = self.random.below(2) as usize;
        self.mishap = self.random.chance(options.trouble).then(|| (self.random.pick(kinds), culprit));
        for flow in &mut self.flows {
            let side = flow.side;
            flow.begin(arm, self.mishap.filter(|(_, culprit)| *culprit == side).map(|(mishap, _)| mishap));
        }
    }

    /// Posts, polls and checks some work. Returns true if anything happened.
    fn turn(&mut self, arm: &mut impl Arm, report: &mut UnreliableReport) -> bool {
        let mut progress = false;
        for side in 0..2 {
            if !self.failing {
                progress |= self.flows[side].post_receives(arm, false);
                progress |= self.random.chance(0.7) && self.flows[side].post_some(arm, report);
            }
        }
        let reached = |flow: &Flow| {
            flow.mishap.is_some_and(|(mishap, turn)| mishap == Mishap::Fail && flow.messages.len() > turn)
        };
        if !self.failing && self.flows.iter().any(reached) {
            self.fail(arm);
        }
        for side in 0..2 {
            while let Some(wc) = arm.poll(side, self.number) {
                progress = true;
                if wc.id & RECEIVE != 0 {
                    let ended = self.flows[1 - side].received(arm, &wc, report);
                    if ended && !self.failing {
                        self.fail(arm);
                    }
                } else {
                    self.flows[side].completed(&wc, self.failing, report);
                }
            }
        }
        progress
    }

    fn fail(&mut self, arm: &mut impl Arm) {
        self.failing = true;
        self.flows.iter_mut().for_each(|flow| flow.failed = true);
        arm.fail(0, self.number);
        arm.fail(1, self.number);
    }

    fn is_over(&self) -> bool {
        self.flows.iter().all(Flow::is_over)
            || self.failing
                && self.flows.iter().all(|flow| flow.messages[flow.ended..].iter().all(|m| !m.signaled))
    }

    fn end(&mut self, arm: &mut impl Arm, report: &mut UnreliableReport) {
        self.flows.iter_mut().for_each(|flow| flow.check_target(arm, report));
        report.epochs += 1;
        if self.failing || self.random.chance(0.1) {
            self.settings = reconnect_settings(&mut self.random, &self.settings, true, arm.path_mtu());
            arm.reconnect(self.number, &self.settings);
            while (0..2).any(|side| arm.poll(side, self.number).is_some()) {}
            self.flows.iter_mut().for_each(|flow| flow.reset(&self.settings));
            self.failing = false;
            return;
        }
        for flow in self.flows.iter_mut().filter(|flow| flow.failed) {
            flow.failed = false;
            arm.resume(flow.side, self.number);
        }
    }
}

/// Number of turns without an event after which nothing is in flight.
const QUIET: u64 = 3_000;

/// Runs the test for an unreliable service and returns its counts.
///
/// # Panics
/// If any result is wrong; the message describes the difference.
pub fn run_unreliable(arm: &mut impl Arm, seed: u64, options: &Options) -> UnreliableReport {
    let mut random = Random::new(seed ^ 0x0dd5);
    let mut report = UnreliableReport::default();
    let mut pairs: Vec<Pair> = (0..options.pairs).map(|_| Pair::new(arm, &mut random, options)).collect();
    while report.messages() < options.verbs {
        pairs.iter_mut().for_each(|pair| pair.begin(arm, options));
        let mut quiet = 0;
        let mut waited = 0;
        let mut settled = false;
        while quiet < QUIET || !settled {
            if quiet == QUIET {
                // The effects are observed in one more turn.
                arm.settle();
                (quiet, settled) = (QUIET - 1, true);
            }
            let mut progress = false;
            for pair in &mut pairs {
                progress |= pair.turn(arm, &mut report);
            }
            arm.pass();
            quiet = if progress || !pairs.iter().all(Pair::is_over) { 0 } else { quiet + 1 };
            settled &= quiet > 0;
            waited = if progress { 0 } else { waited + 1 };
            assert!(waited < options.patience, "no progress for {waited} turns");
        }
        pairs.iter_mut().for_each(|pair| pair.end(arm, &mut report));
    }
    report
}
