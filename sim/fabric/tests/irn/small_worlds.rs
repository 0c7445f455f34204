//! Exhaustive small worlds: all combinations of faults for the first few frames, with a mix of verbs.

use crate::settings;
use remora_fabric::{ALL, Config, World};
use remora_fault::{Action, Directions, Rule, Rules};
use remora_nic::{Flags, Operation, Payload, ReceiveRequest, Status, WorkRequest};

/// The faults that a frame can have.
const FATES: [Option<Action>; 4] = [
    None,
    Some(Action::Drop),
    Some(Action::Duplicate),
    // Later than everything that the others send, and later than a timeout.
    Some(Action::Delay { min_ns: 150_000, max_ns: 150_000 }),
];

/// Returns the rules for the first `count` frames of a direction, in fault pattern `number`.
fn fates(number: usize, count: u32, directions: Directions) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for frame in 0..count {
        let fate = FATES[number / FATES.len().pow(frame) % FATES.len()];
        if let Some(action) = fate {
            // A rule does not see the frames that earlier rules matched.
            let after = u64::from(frame) - rules.len() as u64;
            rules.push(Rule::new(action).towards(directions).after(after).at_most(1));
        }
    }
    rules
}

/// Runs a WRITE of three packets, SEND of two, atomic, READ of three responses, WRITE with immediate data,
/// SEND, atomic.
fn run(rules: Vec<Rule>, label: &str) {
    let mut world = World::new(&Config { rules: Rules::of(rules), ..Config::default() });
    let [(left, left_cq), (right, right_cq)] = world.pair(0, 1, &settings());
    let here = world.register(0, 8192, ALL);
    let there = world.register(1, 8192, ALL);
    let pattern: Vec<u8> = (0..1000u32).map(|index| (index * 7 + 1) as u8).collect();
    here.store(0, &pattern);
    for id in 0..3 {
        let list = [there.sge(4096 + id as usize * 512, 512)];
        world.post_receive(right, &ReceiveRequest { id, sges: &list }).unwrap();
    }
    let add = |offset: usize| Operation::FetchAdd { remote: there.remote(offset), add: 3 };
    let work = [
        (Operation::Write(there.remote(0)), here.sge(0, 600)),
        (Operation::Send, here.sge(0, 300)),
        (add(1024), here.sge(6000, 8)),
        (Operation::Read(there.remote(0)), here.sge(2048, 600)),
        (Operation::WriteImm(there.remote(2048), 9), here.sge(0, 10)),
        (Operation::Send, here.sge(0, 5)),
        (add(1024), here.sge(6008, 8)),
    ];
    for (id, (operation, sge)) in work.iter().enumerate() {
        let request = WorkRequest {
            id: id as u64,
            operation: *operation,
            payload: Payload::Sges(std::slice::from_ref(sge)),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        world.post_quietly(left, &request).unwrap();
    }
    world.ring(left);
    assert!(world.settle(100_000), "{label}: the world never comes to rest");
    let done: Vec<_> = world.drain(left_cq).iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(done, (0..7).map(|id| (id, Status::Success)).collect::<Vec<_>>(), "{label}");
    let received: Vec<_> = world.drain(right_cq).iter().map(|wc| (wc.id, wc.byte_len, wc.imm)).collect();
    assert_eq!(received, [(0, 300, None), (1, 10, Some(9)), (2, 5, None)], "{label}");
    assert_eq!(there.load(0, 600), pattern[..600], "{label}");
    assert_eq!(there.load(4096, 300), pattern[..300], "{label}");
    assert_eq!(there.load(2048, 10), pattern[..10], "{label}");
    assert_eq!(there.load(4096 + 1024, 5), pattern[..5], "{label}");
    assert_eq!(here.load(2048, 600), pattern[..600], "{label}");
    assert_eq!(there.load(1024, 8), 6u64.to_ne_bytes(), "{label}");
    assert_eq!(
        (here.load(6000, 8), here.load(6008, 8)),
        (vec![0; 8], 3u64.to_ne_bytes().to_vec()),
        "{label}"
    );
}

/// Returns the number of frames whose fates are combined: `whole` with `REMORA_WHOLE` (`make nightly` sets
/// it), else one less, which takes a quarter of the time.
fn frames(whole: u32) -> u32 {
    if std::env::var_os("REMORA_WHOLE").is_some() { whole } else { whole - 1 }
}

/// Tries every combination of fates of the first six frames of one direction. Nothing is lost, doubled or
/// reordered, and every run ends.
fn every_fate(directions: Directions) {
    let count = frames(6);
    for number in 0..FATES.len().pow(count) {
        run(fates(number, count, directions), &format!("pattern {number} of {count} frames"));
    }
}

#[test]
fn every_fate_of_the_first_frames_of_the_requester() {
    every_fate(Directions::Send);
}

#[test]
fn every_fate_of_the_first_frames_of_the_responder() {
    every_fate(Directions::Receive);
}

#[test]
fn every_fate_of_the_first_frames_of_both() {
    let count = frames(3);
    for there in 0..FATES.len().pow(3) {
        for back in 0..FATES.len().pow(count) {
            let mut rules = fates(there, 3, Directions::Send);
            rules.extend(fates(back, count, Directions::Receive));
            run(rules, &format!("patterns {there} of 3 frames and {back} of {count}"));
        }
    }
}
