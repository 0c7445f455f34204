//! The long message of one queue pair does not delay the short message of another.

use crate::bench::{SIGNALED, ends, good};
use remora_fabric::{ALL, Config, LinkConfig, QueuePair, Region, Settings, World, forge};
use remora_memory::Access;
use remora_nic::{Command, Operation, Payload, Sge, WorkRequest};
use remora_wire::Opcode;
use std::collections::BTreeMap;

/// Posts a WRITE of the first `len` bytes.
fn write(world: &mut World, qp: QueuePair, here: &Region, there: &Region, len: usize) {
    let list = [here.sge(0, len)];
    let write = WorkRequest {
        id: 1,
        operation: Operation::Write(there.remote(0)),
        payload: Payload::Sges(&list),
        flags: SIGNALED,
    };
    world.post(qp, &write).unwrap();
}

/// Returns the number of frames that node 0 sends in `ns` nanoseconds, by destination queue pair.
fn frames_of_0(world: &mut World, ns: u64) -> BTreeMap<u32, u32> {
    world.tap();
    world.sent();
    world.run_for(ns);
    let mut counts = BTreeMap::new();
    for sent in world.sent().iter().filter(|sent| sent.from == 0) {
        let packet = forge::transport(world.start(), &sent.bytes).unwrap();
        *counts.entry(packet.bth.dest_qp.get()).or_insert(0) += 1;
    }
    counts
}

#[test]
fn a_write_of_a_gibibyte_delays_another_queue_pairs_read_by_a_few_packets() {
    // The port accepts two frames at a time, so that waiting frames are in the NIC, which takes turns.
    let link = LinkConfig { queue: 2, ..LinkConfig::default() };
    let mut world = World::new(&Config { link, ..Config::default() });
    let settings = Settings { mtu: 1024, max_sge: 30, ..Settings::default() };
    let [(long, long_cq), _] = world.pair(0, 1, &settings);
    let [(short, short_cq), _] = world.pair(0, 1, &settings);
    let here = world.register(0, 64 << 20, Access::LOCAL_WRITE);
    let there = world.register(1, 1 << 30, ALL);
    // 16 elements over the same 64 MiB are 1 GiB.
    let list: Vec<Sge> = (0..16).map(|_| here.sge(0, 64 << 20)).collect();
    let write = WorkRequest {
        id: 1,
        operation: Operation::Write(there.remote(0)),
        payload: Payload::Sges(&list),
        flags: SIGNALED,
    };
    world.post(long, &write).unwrap();
    world.run_for(50_000);
    let mut most = 0;
    for id in 0..50 {
        world.tap();
        world.sent();
        let into = [here.sge(0, 64)];
        let read = WorkRequest {
            id,
            operation: Operation::Read(there.remote(1 << 29)),
            payload: Payload::Sges(&into),
            flags: SIGNALED,
        };
        world.post(short, &read).unwrap();
        let mut got = Vec::new();
        while got.is_empty() && world.step() {
            got = world.drain(short_cq);
        }
        assert_eq!(ends(&got), good([id]));
        let sent = world.sent();
        let is_read = |sent: &&remora_fabric::Sent| {
            forge::transport(world.start(), &sent.bytes)
                .is_some_and(|packet| packet.bth.opcode == Opcode::RC_RDMA_READ_REQUEST)
        };
        let index = sent.iter().filter(|sent| sent.from == 0).position(|sent| is_read(&sent)).unwrap();
        most = most.max(index);
        assert_eq!(ends(&world.drain(long_cq)), [], "the long one is still at work");
    }
    assert!(most <= 16, "{most} packets of the WRITE left between the READ's doorbell and its request");
}

/// Regression: on a full port a queue pair never gave way to others.
#[test]
fn queue_pairs_with_equal_work_share_the_link_equally() {
    let link = LinkConfig { queue: 4, ..LinkConfig::default() };
    let mut world = World::new(&Config { link, ..Config::default() });
    let pairs: Vec<_> = (0..8).map(|_| world.pair(0, 1, &Settings::default())[0]).collect();
    let here = world.register(0, 1 << 20, ALL);
    let there = world.register(1, 1 << 20, ALL);
    for (qp, _) in &pairs {
        write(&mut world, *qp, &here, &there, 1 << 20);
    }
    world.run_for(200_000);
    let counts = frames_of_0(&mut world, 200_000);
    let least = counts.values().min().unwrap();
    let most = counts.values().max().unwrap();
    assert_eq!(counts.len(), 8);
    assert!(most - least <= 16, "{counts:?}");
}

#[test]
fn a_party_with_many_busy_queue_pairs_leaves_half_of_the_frames_to_one_with_a_single_one() {
    let link = LinkConfig { queue: 4, ..LinkConfig::default() };
    let mut world = World::new(&Config { link, nic: nic_of(128), ..Config::default() });
    let pairs: Vec<_> = (0..65).map(|_| world.pair(0, 1, &Settings::default())).collect();
    let here = world.register(0, 1 << 20, ALL);
    let there = world.register(1, 1 << 20, ALL);
    for (number, [(qp, _), _]) in pairs.iter().enumerate() {
        let party = if number < 64 { 1 } else { 2 };
        world.ask::<()>(0, Command::SetTenant { qp: qp.number, tenant: party }).unwrap();
        write(&mut world, *qp, &here, &there, 1 << 20);
    }
    world.run_for(50_000);
    let counts = frames_of_0(&mut world, 100_000);
    let [_, (single, _)] = pairs[64];
    let all = counts.values().sum::<u32>();
    let alone = counts[&single.number.get()];
    assert!(all > 200 && alone.abs_diff(all - alone) <= all / 20, "{alone} of {all}: {counts:?}");
    let mut others = counts.iter().filter(|(qp, _)| **qp != single.number.get()).map(|(_, frames)| *frames);
    assert!(others.by_ref().count() == 64, "all of the others have their turns: {counts:?}");
}

#[test]
fn a_peer_without_room_holds_up_nobody_who_sends_to_another() {
    let link = LinkConfig { queue: 4, ..LinkConfig::default() };
    let mut world = World::new(&Config { nodes: 3, link, ..Config::default() });
    // A packet takes longer than the test.
    world.set_rate(0, 1, 1_000_000);
    let stuck: Vec<_> = (0..8).map(|_| world.pair(0, 1, &Settings::default())[0]).collect();
    let [(quick, cq), _] = world.pair(0, 2, &Settings::default());
    let here = world.register(0, 1 << 20, ALL);
    let [slow, fast] = [1, 2].map(|node| world.register(node, 1 << 20, ALL));
    for (qp, _) in stuck {
        write(&mut world, qp, &here, &slow, 1 << 20);
    }
    world.run_for(10_000);
    write(&mut world, quick, &here, &fast, 64 << 10);
    world.run_for(100_000);
    assert_eq!(ends(&world.drain(cq)), good([1]));
}

fn nic_of(max_qps: u32) -> remora_nic::Config {
    remora_nic::Config { max_qps, max_cqs: 2 * max_qps, max_events: 256, ..remora_nic::Config::default() }
}
