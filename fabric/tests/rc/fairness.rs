//! One queue pair's long message does not keep another's short one waiting.

use crate::bench::{SIGNALED, ends, good};
use memory::Access;
use nic::{Operation, Payload, Sge, WorkRequest};
use remora_fabric::{ALL, Config, LinkConfig, Settings, World, forge};
use wire::Opcode;

#[test]
fn a_write_of_a_gibibyte_delays_another_queue_pairs_read_by_a_few_packets() {
    // A port that takes two frames at a time: what waits, waits in the NIC, where turns are taken.
    let link = LinkConfig { queue: 2, ..LinkConfig::default() };
    let mut world = World::new(&Config { link, ..Config::default() });
    let settings = Settings { mtu: 1024, max_sge: 30, ..Settings::default() };
    let [(long, long_cq), _] = world.pair(0, 1, &settings);
    let [(short, short_cq), _] = world.pair(0, 1, &settings);
    let (here, there) = (world.register(0, 64 << 20, Access::LOCAL_WRITE), world.register(1, 1 << 30, ALL));
    // 16 elements over the same 64 MiB are a gibibyte.
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
        let at = sent.iter().filter(|sent| sent.from == 0).position(|sent| is_read(&sent)).unwrap();
        most = most.max(at);
        assert_eq!(ends(&world.drain(long_cq)), [], "the long one is still at work");
    }
    assert!(most <= 16, "{most} packets of the WRITE left between the READ's doorbell and its request");
}

#[test]
fn queue_pairs_with_equal_work_share_the_link_equally() {
    let link = LinkConfig { queue: 4, ..LinkConfig::default() };
    let mut world = World::new(&Config { link, ..Config::default() });
    let pairs: Vec<_> = (0..8).map(|_| world.pair(0, 1, &Settings::default())[0]).collect();
    let (here, there) = (world.register(0, 1 << 20, ALL), world.register(1, 1 << 20, ALL));
    for (qp, _) in &pairs {
        let list = [here.sge(0, 1 << 20)];
        let write = WorkRequest {
            id: 1,
            operation: Operation::Write(there.remote(0)),
            payload: Payload::Sges(&list),
            flags: SIGNALED,
        };
        world.post(*qp, &write).unwrap();
    }
    world.run_for(200_000);
    world.tap();
    world.sent();
    world.run_for(200_000);
    let mut counts = std::collections::BTreeMap::new();
    for sent in world.sent().iter().filter(|sent| sent.from == 0) {
        let packet = forge::transport(world.start(), &sent.bytes).unwrap();
        *counts.entry(packet.bth.dest_qp.get()).or_insert(0u32) += 1;
    }
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert_eq!(counts.len(), 8);
    assert!(most - least <= 16, "{counts:?}");
}
