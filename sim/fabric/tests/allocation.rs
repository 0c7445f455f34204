//! The data path does not allocate after set-up: each verb runs many times while every allocation of the
//! thread is counted.
//!
//! The count covers program, NIC, transport, memory and the simulated link.

use allocation_counter::measure;
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_fault::{Action, Rule, Rules};
use remora_nic::{Flags, Operation, Payload, ReceiveRequest, Sge, Status, WorkRequest};

struct Steady {
    world: World,
    ends: [(QueuePair, CompletionQueue); 2],
    here: Region,
    there: Region,
}

impl Steady {
    fn new(rules: Rules) -> Steady {
        Steady::over(rules, None)
    }

    fn over(rules: Rules, irn: Option<u32>) -> Steady {
        let mut world = World::new(&Config { rules, ..Config::default() });
        // Over IRN the timeout only decides when a queue pair fails.
        let timeout = if irn.is_some() { 14 } else { Settings::default().timeout };
        let ends = world.pair(0, 1, &Settings { mtu: 1024, irn, timeout, ..Settings::default() });
        let here = world.register(0, 1 << 16, ALL);
        let there = world.register(1, 1 << 16, ALL);
        Steady { world, ends, here, there }
    }

    /// Posts eight requests and polls their completions; receives are posted for operations that need one.
    fn batch(&mut self, operation: Operation, list: &[Sge], inline: bool) {
        let [(left, left_cq), (right, right_cq)] = self.ends;
        let takes_receive =
            matches!(operation, Operation::Send | Operation::SendImm(_) | Operation::WriteImm(..));
        let receive = [self.there.sge(8192, 4096), self.there.sge(16384, 4096)];
        for id in 0..8 {
            if takes_receive {
                self.world.post_receive(right, &ReceiveRequest { id, sges: &receive }).unwrap();
            }
            let payload = if inline { Payload::Inline(&[7; 100]) } else { Payload::Sges(list) };
            let flags = Flags { signaled: id % 2 == 1, fence: id == 4, solicited: false };
            self.world.post_quietly(left, &WorkRequest { id, operation, payload, flags }).unwrap();
        }
        self.world.ring(left);
        assert!(self.world.settle(1_000_000));
        let mut sent = 0;
        while let Some(wc) = self.world.poll(left_cq) {
            assert_eq!(wc.status, Status::Success);
            sent += 1;
        }
        assert_eq!(sent, 4);
        while self.world.poll(right_cq).is_some() {}
    }

    /// The operations of each verb, with one packet and with several.
    fn work(&self) -> Vec<(&'static str, Operation, Vec<Sge>, bool)> {
        let near = &self.here;
        let far = self.there.remote(0);
        let small = vec![near.sge(0, 64)];
        let long = vec![near.sge(0, 3000)];
        let many: Vec<Sge> = (0..16).map(|part| near.sge(part * 300, 200)).collect();
        let word = vec![near.sge(0, 8)];
        vec![
            ("SEND", Operation::Send, small.clone(), false),
            ("SEND inline", Operation::Send, vec![], true),
            ("SEND with immediate data, long", Operation::SendImm(1), long.clone(), false),
            ("WRITE", Operation::Write(far), small.clone(), false),
            ("WRITE inline", Operation::Write(far), vec![], true),
            ("WRITE, long", Operation::Write(far), long.clone(), false),
            ("WRITE of 16 elements", Operation::Write(far), many.clone(), false),
            ("WRITE with immediate data", Operation::WriteImm(far, 2), small.clone(), false),
            ("READ", Operation::Read(far), small, false),
            ("READ, long", Operation::Read(far), long, false),
            ("READ into 16 elements", Operation::Read(far), many, false),
            ("CAS", Operation::CompareSwap { remote: far, compare: 0, swap: 1 }, word.clone(), false),
            ("FAA", Operation::FetchAdd { remote: far, add: 1 }, word, false),
            ("NOP", Operation::Nop, vec![], false),
        ]
    }
}

#[test]
fn a_steady_state_verb_allocates_nothing() {
    for irn in [None, Some(128)] {
        let mut steady = Steady::over(Rules::default(), irn);
        for (name, operation, list, inline) in steady.work() {
            (0..20).for_each(|_| steady.batch(operation, &list, inline));
            let counted = measure(|| (0..100).for_each(|_| steady.batch(operation, &list, inline)));
            assert_eq!(counted.count_total, 0, "{name}, IRN {irn:?}: {counted:?}");
        }
    }
}

#[test]
fn taking_keys_away_allocates_nothing() {
    let mut steady = Steady::new(Rules::default());
    let rights = ALL | remora_memory::Access::INVALIDATE;
    let regions = |steady: &mut Steady, node: usize| -> Vec<Region> {
        (0..100).map(|_| steady.world.register(node, 64, rights)).collect()
    };
    let ours = regions(&mut steady, 0);
    let theirs = regions(&mut steady, 1);
    let [(left, left_cq), (right, right_cq)] = steady.ends;
    let take = |steady: &mut Steady, range: std::ops::Range<usize>| {
        for (near, far) in ours[range.clone()].iter().zip(&theirs[range]) {
            steady.world.post_receive(right, &ReceiveRequest { id: 1, sges: &[] }).unwrap();
            for operation in [Operation::SendInv(far.key), Operation::LocalInv(near.key)] {
                let flags = Flags { signaled: true, ..Flags::default() };
                let request = WorkRequest { id: 2, operation, payload: Payload::Sges(&[]), flags };
                steady.world.post(left, &request).unwrap();
            }
            assert!(steady.world.settle(1_000_000));
            assert_eq!(steady.world.poll(right_cq).map(|wc| wc.invalidated), Some(Some(far.key)));
            for _ in 0..2 {
                assert_eq!(steady.world.poll(left_cq).map(|wc| wc.status), Some(Status::Success));
            }
        }
    };
    take(&mut steady, 0..20);
    let counted = measure(|| take(&mut steady, 20..100));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn recovery_from_loss_allocates_nothing_either() {
    let rules = vec![Rule::chance(Action::Drop, 0.05), Rule::chance(Action::Duplicate, 0.05)];
    for irn in [None, Some(128)] {
        let mut steady = Steady::over(Rules::of(rules.clone()), irn);
        let work = steady.work();
        let all = |steady: &mut Steady, rounds| {
            for (_, operation, list, inline) in &work {
                (0..rounds).for_each(|_| steady.batch(*operation, list, *inline));
            }
        };
        all(&mut steady, 40);
        let counted = measure(|| all(&mut steady, 20));
        assert_eq!(counted.count_total, 0, "IRN {irn:?}: {counted:?}");
        assert!(steady.world.counters(0).retransmitted_pkts > 100);
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(vec![1u8; 100]))).count_total, 1);
}
