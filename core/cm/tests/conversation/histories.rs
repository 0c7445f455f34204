//! Thousands of random histories over a bad link, which loses, duplicates and reorders messages. A
//! connection must be established on both sides or on neither, both sides must receive the other side's
//! data, and nothing may be left in the end.

use std::collections::BTreeMap;

use remora_cm::{AcceptParam, Cause, CmEvent, ConnectParam, EventKind, Instant, RejectParam};
use remora_wire::mad::RejectReason;
use remora_wire::{Psn, Qpn};

use crate::link::{Seed, World};
use crate::node::{SECOND, param};

/// The outcome of an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Pending,
    Established,
    Failed,
    Ended,
}

/// An id at node 2, made by a received request.
#[derive(Copy, Clone, Debug)]
struct Request {
    attempt: usize,
    fate: Fate,
}

/// The call that a program makes after some delay.
#[derive(Copy, Clone, Debug)]
enum Call {
    Accept,
    Reject,
    Ready,
    Disconnect,
}

/// A history: programs at node 1 try to connect to one at node 2.
struct History {
    world: World,
    /// The outcomes of the ids at node 1; the index is the handle.
    attempts: Vec<Fate>,
    /// The ids at node 2. A repetition that arrives after its attempt has failed counts as a new request.
    requests: BTreeMap<u64, Request>,
    /// Calls that programs will make: time, node, handle, call.
    calls: Vec<(Instant, usize, u64, Call)>,
    refuses: bool,
}

/// Returns the private data that the programs of an attempt send in the `n`-th message.
fn words(attempt: usize, n: u8) -> [u8; 224] {
    [attempt as u8 * 16 + n; 224]
}

impl History {
    fn new(seed: u64) -> History {
        let mut world = World::new(seed);
        world.nodes[1].listen(4);
        let refuses = world.random.chance(0.3);
        let count = 1 + world.random.below(4) as usize;
        let attempts = vec![Fate::Pending; count];
        for attempt in 0..count {
            let max_cm_retries = world.random.below(5) as u8;
            let param = ConnectParam {
                qpn: Qpn::new(0x100 + attempt as u32),
                starting_psn: Psn::new(0x1000 + attempt as u32),
                max_cm_retries,
                private_data: &words(attempt, 0)[..56],
                ..param(1, 2)
            };
            world.nodes[0].cm.connect(world.now, attempt as u64, &param).unwrap();
        }
        History { world, attempts, requests: BTreeMap::new(), calls: Vec::new(), refuses }
    }

    /// Schedules a program's call after a random delay.
    fn later(&mut self, node: usize, handle: u64, call: Call) {
        let ns = if self.world.random.chance(0.8) { SECOND / 10 } else { 40 * SECOND };
        let time = self.world.now.after(1 + self.world.random.below(ns));
        self.calls.push((time, node, handle, call));
    }

    /// Runs until nothing is left to happen.
    fn run(&mut self) {
        for _ in 0..10_000 {
            let due = self.calls.iter().map(|(time, ..)| *time).min().unwrap_or(Instant::NEVER);
            if !self.world.step(due) {
                if due == Instant::NEVER {
                    return;
                }
                let index = self.calls.iter().position(|(time, ..)| *time <= due).unwrap();
                let (_, node, handle, call) = self.calls.remove(index);
                self.call(node, handle, call);
            }
            for node in 0..2 {
                for event in self.world.events(node) {
                    self.event(node, &event);
                }
            }
        }
        panic!("the history does not end");
    }

    /// Makes a call. A call that is too late is refused, because the peer may have given up before.
    fn call(&mut self, node: usize, handle: u64, call: Call) {
        let now = self.world.now;
        let attempt = self.attempt(node, handle);
        let cm = &mut self.world.nodes[node].cm;
        let data = |n, len: usize| words(attempt, n)[..len].to_vec();
        let _ = match call {
            Call::Accept => {
                let (qpn, starting_psn) =
                    (Qpn::new(0x200 + attempt as u32), Psn::new(0x2000 + attempt as u32));
                let data = data(1, 196);
                cm.accept(
                    now,
                    handle,
                    &AcceptParam { qpn, starting_psn, private_data: &data, ..AcceptParam::default() },
                )
            }
            Call::Reject => {
                let data = data(4, 148);
                let param = RejectParam { reason: RejectReason::CONSUMER, info: &[], private_data: &data };
                let refused = cm.reject(now, handle, &param);
                if refused.is_ok() {
                    self.set_fate(1, handle, Fate::Failed);
                }
                refused
            }
            Call::Ready => {
                let ready = cm.ready_to_use(handle, &data(2, 224));
                if ready.is_ok() {
                    self.attempts[attempt] = Fate::Established;
                }
                ready
            }
            Call::Disconnect => cm.disconnect(now, handle, &data(3, 220)),
        };
        self.world.nodes[node].cm.check();
    }

    fn attempt(&self, node: usize, handle: u64) -> usize {
        if node == 0 { handle as usize } else { self.requests[&handle].attempt }
    }

    fn event(&mut self, node: usize, event: &CmEvent) {
        if let EventKind::ConnectRequest(request) = &event.kind {
            let attempt = (request.param.qpn.get() - 0x100) as usize;
            assert_eq!(event.private_data[..], words(attempt, 0)[..56]);
            let alive = |request: &Request| request.attempt == attempt && request.fate < Fate::Failed;
            assert!(!self.requests.values().any(alive), "a second request for attempt {attempt}");
            self.requests.insert(event.handle, Request { attempt, fate: Fate::Pending });
            let refuse = self.refuses && self.world.random.chance(0.5);
            return self.later(1, event.handle, if refuse { Call::Reject } else { Call::Accept });
        }
        let attempt = self.attempt(node, event.handle);
        let heard = |n, len: usize| {
            let silent = event.private_data.is_empty() || event.private_data.iter().all(|byte| *byte == 0);
            assert!(silent || event.private_data[..] == words(attempt, n)[..len], "{event:?}");
        };
        let fate = match event.kind {
            EventKind::ConnectResponse(_) => {
                heard(1, 196);
                return self.later(0, event.handle, Call::Ready);
            }
            EventKind::Established => {
                heard(2, 224);
                Fate::Established
            }
            EventKind::Rejected(_) => {
                heard(4, 148);
                Fate::Failed
            }
            EventKind::Unreachable => Fate::Failed,
            EventKind::Disconnected(Cause::Requested) => {
                self.later(node, event.handle, Call::Disconnect);
                Fate::Ended
            }
            EventKind::Disconnected(_) => Fate::Ended,
            EventKind::TimewaitExit => return,
            other => panic!("{other:?}"),
        };
        self.set_fate(node, event.handle, fate);
    }

    fn set_fate(&mut self, node: usize, handle: u64, fate: Fate) {
        if node == 0 {
            self.attempts[handle as usize] = fate;
        } else if let Some(request) = self.requests.get_mut(&handle) {
            request.fate = fate;
        }
    }

    /// Checks that both sides agree, unless the passive side gave up and its last message was lost. Returns
    /// the number of established connections.
    fn expect_alike(&self) -> usize {
        assert!(!self.attempts.contains(&Fate::Pending), "{:?}", self.attempts);
        let mut established = Vec::new();
        for (handle, Request { attempt, fate }) in &self.requests {
            assert_ne!(*fate, Fate::Pending, "attempt {attempt}");
            if *fate == Fate::Established {
                assert_eq!(self.attempts[*attempt], Fate::Established, "attempt {attempt}");
                assert!(!established.contains(attempt), "attempt {attempt} twice");
                established.push(*attempt);
                self.expect_attributes(*attempt, *handle);
            }
        }
        self.attempts.iter().filter(|fate| **fate == Fate::Established).count() - established.len()
    }

    fn expect_attributes(&self, attempt: usize, handle: u64) {
        let active = self.world.nodes[0].cm.qp_attributes(attempt as u64).unwrap();
        let passive = self.world.nodes[1].cm.qp_attributes(handle).unwrap();
        let n = attempt as u32;
        assert_eq!((active.remote_qpn, passive.remote_qpn), (Qpn::new(0x200 + n), Qpn::new(0x100 + n)));
        assert_eq!((active.sq_psn, active.rq_psn), (Psn::new(0x2000 + n), Psn::new(0x1000 + n)));
        assert_eq!((active.sq_psn, active.rq_psn), (passive.rq_psn, passive.sq_psn));
    }

    /// Ends all connections: from one side, the other, or both. A side whose peer has tried in vain must
    /// find out by itself that the peer is gone, so it tries as well.
    fn end(&mut self) {
        self.disconnect();
        self.run();
        for attempt in 0..self.attempts.len() {
            self.later(0, attempt as u64, Call::Disconnect);
        }
        self.run();
    }

    fn disconnect(&mut self) {
        let requests = self.requests.clone();
        let stands =
            |attempt| requests.values().any(|it| it.attempt == attempt && it.fate == Fate::Established);
        for attempt in 0..self.attempts.len() {
            if self.world.random.chance(0.6) || !stands(attempt) {
                self.later(0, attempt as u64, Call::Disconnect);
            }
        }
        for handle in requests.keys() {
            self.later(1, *handle, Call::Disconnect);
        }
    }
}

/// Runs thousands of connections over a link that loses, duplicates and reorders MADs. Each is
/// established on both sides or on neither, and private data arrives unchanged.
#[test]
fn every_connect_ends_alike_on_both_sides_and_nothing_is_left() {
    let mut established = 0;
    let mut failed = 0;
    let mut alone = 0;
    for seed in 0..4_000 {
        let _named = Seed(seed);
        let mut history = History::new(seed);
        history.run();
        let count = history.expect_alike();
        assert!(count == 0 || history.world.loss > 0, "nothing was lost");
        alone += count;
        for attempt in &history.attempts {
            established += usize::from(*attempt == Fate::Established);
            failed += usize::from(*attempt != Fate::Established);
        }
        history.end();
        let fates = history.attempts.iter().chain(history.requests.values().map(|request| &request.fate));
        fates.for_each(|fate| assert!(*fate >= Fate::Failed, "{fate:?}"));
        history.world.expect_nothing_left();
    }
    println!("{established} established, {failed} failed, {alone} on the active side alone");
    assert!(established > 5_000 && failed > 1_000 && alone < established / 10);
}
