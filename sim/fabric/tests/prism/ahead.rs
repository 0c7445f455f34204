//! READs through pointers that are delayed: later requests find them executed.

use remora_fabric::Config;
use remora_nic::prism::{Address, WorkRequest};
use remora_nic::{Flags, Payload};
use remora_wire::frame::{Endpoint, Ingress};

use crate::bench::{Bench, arms, read};

/// More requests than the NIC may delay at the same time.
const MANY: u64 = 40;

/// Delivers the frames to the server's NIC one after the other before it sends anything, as from a port with
/// many frames.
fn at_once(bench: &mut Bench) {
    bench.world.cut(0, 1, true);
    bench.world.tap();
    bench.world.ring(bench.left);
    bench.world.run_for(20_000);
    let sent = bench.world.sent();
    bench.world.cut(0, 1, false);
    assert!(sent.len() > 2 * MANY as usize);
    let now = bench.world.now();
    let start = bench.world.start();
    let source = Endpoint::default();
    bench.world.with_nic(1, |nic, mem| {
        for frame in &sent {
            nic.receive(
                now,
                mem,
                &Ingress {
                    bytes: &frame.bytes,
                    start,
                    sealed: true,
                    source,
                    destination: None,
                    origin: None,
                },
            );
        }
    });
}

#[test]
fn a_change_of_the_pointer_comes_between_the_reads_before_and_behind_it() {
    let most = 2 * MANY as u8 + 1;
    let settings = arms()[0];
    let settings = remora_fabric::Settings {
        max_rd_atomic: most,
        max_dest_rd_atomic: most,
        send_slots: 256,
        ..settings
    };
    let mut bench = Bench::over(&Config::default(), &settings);
    let old = bench.at(4096).addr;
    let new = bench.at(8192).addr;
    bench.there.store(4096, &[1; 100]);
    bench.there.store(8192, &[2; 100]);
    bench.set(0, &[old, 100]);
    let slot = bench.at(0);
    let places: Vec<_> = (0..2 * MANY as usize).map(|index| [bench.here.sge(128 * index, 100)]).collect();
    let reads: Vec<WorkRequest<'_>> = (0..2 * MANY)
        .map(|id| bench.ask(id, read(Address::bounded(slot), 100, &places[id as usize])))
        .collect();
    let (before, behind) = reads.split_at(MANY as usize);
    before.iter().for_each(|read| bench.put(read));
    let change = remora_nic::WorkRequest {
        id: 100,
        operation: remora_nic::Operation::Write(slot),
        payload: Payload::Inline(&new.to_le_bytes()),
        flags: Flags::default(),
    };
    bench.world.post_quietly(bench.left, &change).unwrap();
    behind.iter().for_each(|read| bench.put(read));
    at_once(&mut bench);
    assert!(bench.world.settle(1_000_000));
    assert_eq!(bench.world.drain(bench.left_cq).len(), 2 * MANY as usize);
    assert_eq!(bench.world.counters(1).out_of_sequence, 0, "none was overtaken and had to come again");
    for index in 0..2 * MANY as usize {
        let wanted = if index < MANY as usize { 1 } else { 2 };
        assert_eq!(bench.here.load(128 * index, 100), vec![wanted; 100], "{index}");
    }
}
