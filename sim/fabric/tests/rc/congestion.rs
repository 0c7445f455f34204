//! The reactions of a queue pair to marks, notifications and round trips, packet by packet.
//! The tests of `remora bench congestion` show that two flows share a bottleneck.

use crate::bench::Bench;
use remora_fabric::forge::{Forge, transport};
use remora_fabric::{Config, LinkConfig, Sent, Settings, World};
use remora_nic::{Modify, Operation};
use remora_transport::congestion::Algorithm;
use remora_wire::ipv4;
use remora_wire::{Extensions, Opcode, Packet, bth, reth};

/// Returns the ECN field of a frame that begins with its IP header.
fn ecn(sent: &Sent) -> u8 {
    ipv4::View::new(&sent.bytes).unwrap().ecn()
}

fn opcode(world: &World, sent: &Sent) -> Opcode {
    transport(world.start(), &sent.bytes).unwrap().bth.opcode
}

fn controlled(algorithm: Algorithm, irn: Option<u32>) -> Bench {
    let link = LinkConfig { rate: 40_000_000_000, ..LinkConfig::default() };
    let mut bench =
        Bench::over(&Config { link, ..Config::default() }, &Settings { irn, ..Settings::default() });
    for qp in [bench.left, bench.right] {
        let change = Modify { congestion: Some(algorithm), ..Modify::default() };
        bench.world.modify(qp, &change).unwrap();
    }
    bench
}

/// Returns a one-packet WRITE from the left as it leaves a switch that has marked it.
fn marked_write(bench: &Bench, psn: u32) -> Vec<u8> {
    let forge = Forge::new(&bench.world, 0, bench.right);
    let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 4 };
    let ext = Extensions { reth: Some(reth), ..Extensions::NONE };
    let bth = bth::Repr { ack_req: true, ..forge.bth(Opcode::RC_RDMA_WRITE_ONLY, psn) };
    let mut frame = forge.frame(bth, ext, &[1, 2, 3, 4]);
    let header = ipv4::Repr { ecn: 3, ..ipv4::Repr::parse(&ipv4::View::new(&frame).unwrap()) };
    header.emit(&mut frame);
    frame
}

/// Returns a CNP to the left, as the right would send it.
fn cnp(bench: &Bench) -> Vec<u8> {
    let forge = Forge::new(&bench.world, 1, bench.left);
    forge.frame(bth::Repr { becn: true, ..forge.bth(Opcode::CNP, 0) }, Extensions::NONE, &[0; 16])
}

/// Returns the time in nanoseconds of a WRITE of 1 MiB by the left.
fn duration(bench: &mut Bench) -> u64 {
    let before = bench.world.now();
    bench.write(9, 1 << 20);
    while bench.world.drain(bench.left_cq).is_empty() {
        assert!(bench.world.step());
    }
    bench.world.now().since(before)
}

#[test]
fn marked_packets_are_answered_by_a_cnp_at_once_and_then_one_in_50_us() {
    for irn in [None, Some(128)] {
        let mut bench = controlled(Algorithm::None, irn);
        for psn in 0..100 {
            let frame = marked_write(&bench, psn);
            bench.world.inject(0, 1, &frame);
            bench.world.run_for(1_000);
        }
        let sent = bench.world.sent();
        let cnps: Vec<_> = sent.iter().filter(|sent| opcode(&bench.world, sent) == Opcode::CNP).collect();
        assert_eq!(cnps.len(), 2, "100 marks in 100 us");
        let packet: Packet<'_> = transport(bench.world.start(), &cnps[0].bytes).unwrap();
        assert!(packet.bth.becn && packet.bth.dest_qp == bench.left.number);
        assert_eq!((packet.payload, ecn(cnps[0])), (&[0; 16][..], 0));
        let counters = bench.world.counters(1);
        assert_eq!((counters.np_ecn_marked_roce_packets, counters.np_cnp_sent), (100, 2));
        // The sender has no congestion control, so it counts the CNP and continues.
        assert_eq!(bench.world.counters(0).rp_cnp_ignored, 2);
        assert_eq!(bench.there.load(0, 4), [1, 2, 3, 4], "a mark spoils nothing: {irn:?}");
    }
}

#[test]
fn only_what_a_sender_with_dcqcn_sends_may_be_marked() {
    for (algorithm, expected) in [(Algorithm::Dcqcn, 2), (Algorithm::Timely, 0), (Algorithm::None, 0)] {
        for irn in [None, Some(128)] {
            let mut bench = controlled(algorithm, irn);
            bench.write(1, 100);
            bench.world.run_for(100_000);
            let sent = bench.world.sent();
            assert!(
                !sent.is_empty() && sent.iter().all(|sent| ecn(sent) == expected),
                "{algorithm:?} {irn:?}"
            );
        }
    }
}

#[test]
fn a_cnp_halves_the_rate_of_requests_and_of_read_responses() {
    for irn in [None, Some(128)] {
        let mut bench = controlled(Algorithm::Dcqcn, irn);
        let free = duration(&mut bench);
        let frame = cnp(&bench);
        bench.world.inject(1, 0, &frame);
        bench.world.run_for(10);
        let held = duration(&mut bench);
        assert_eq!(bench.world.counters(0).rp_cnp_handled, 1);
        // Half of the rate at first, three quarters after 55 µs, and so on.
        assert!(held * 20 > free * 23 && held < free * 2, "{held} after {free} ns, {irn:?}");

        let mut bench = controlled(Algorithm::Dcqcn, irn);
        let read = |bench: &mut Bench| {
            let before = bench.world.now();
            let remote = bench.there.remote(0);
            let list = [bench.here.sge(0, 1 << 20)];
            bench.post(1, Operation::Read(remote), &list);
            while bench.world.drain(bench.left_cq).is_empty() {
                assert!(bench.world.step());
            }
            bench.world.now().since(before)
        };
        let free = read(&mut bench);
        let forge = Forge::new(&bench.world, 0, bench.right);
        let frame =
            forge.frame(bth::Repr { becn: true, ..forge.bth(Opcode::CNP, 0) }, Extensions::NONE, &[0; 16]);
        bench.world.inject(0, 1, &frame);
        bench.world.run_for(10);
        let held = read(&mut bench);
        assert!(held * 20 > free * 23 && held < free * 2, "responses: {held} after {free} ns, {irn:?}");
    }
}

#[test]
fn notifications_without_end_leave_the_least_rate_and_acknowledgements_pass_freely() {
    let mut bench = controlled(Algorithm::Dcqcn, None);
    for _ in 0..200 {
        let frame = cnp(&bench);
        bench.world.inject(1, 0, &frame);
        bench.world.run_for(10);
    }
    // At 10 Mb/s a packet of 1 KiB takes 850 µs.
    bench.write(1, 2048);
    bench.world.run_for(100_000);
    assert!(bench.world.drain(bench.left_cq).is_empty());
    // Meanwhile the left answers the right, slowed down but not stopped.
    let remote = bench.here.remote(0);
    let list = [bench.there.sge(0, 64)];
    let request = remora_nic::WorkRequest {
        id: 2,
        operation: Operation::Write(remote),
        payload: remora_nic::Payload::Sges(&list),
        flags: crate::bench::SIGNALED,
    };
    bench.world.post(bench.right, &request).unwrap();
    bench.world.run_for(20_000);
    assert_eq!(bench.world.drain(bench.right_cq).len(), 1, "the acknowledgement did not wait");
    bench.world.run_for(10_000_000);
    assert_eq!(bench.world.drain(bench.left_cq).len(), 1);
}

#[test]
fn a_control_that_is_taken_away_lets_packets_go() {
    let mut bench = controlled(Algorithm::Dcqcn, None);
    let free = duration(&mut bench);
    for _ in 0..50 {
        let frame = cnp(&bench);
        bench.world.inject(1, 0, &frame);
        bench.world.run_for(10);
    }
    let change = Modify { congestion: Some(Algorithm::None), ..Modify::default() };
    bench.world.modify(bench.left, &change).unwrap();
    assert!(duration(&mut bench) < free * 11 / 10);
}

#[test]
fn the_lower_of_the_programs_limit_and_what_the_control_allows_is_the_rate() {
    for irn in [None, Some(128)] {
        let limited = |algorithm, limit| {
            let mut bench = controlled(algorithm, irn);
            let change = Modify { rate_limit: Some(limit), ..Modify::default() };
            bench.world.modify(bench.left, &change).unwrap();
            bench
        };
        let mut bench = limited(Algorithm::None, 8_000_000_000);
        let slow = duration(&mut bench);
        // 1 MiB and its headers, at a byte per nanosecond.
        assert!((1_048_576..1_100_000).contains(&slow), "{slow} ns, {irn:?}");
        let change = Modify { rate_limit: Some(0), ..Modify::default() };
        bench.world.modify(bench.left, &change).unwrap();
        let free = duration(&mut bench);
        assert!(free * 4 < slow, "{free} ns without the limit, {irn:?}");
        // The congestion control allows 40 Gb/s, then half of it and slowly more. A limit of 8 Gb/s is lower,
        // one of 39 Gb/s is not.
        for (limit, held_by_the_limit) in [(8_000_000_000, true), (39_000_000_000, false)] {
            let mut bench = limited(Algorithm::Dcqcn, limit);
            let before = duration(&mut bench);
            let frame = cnp(&bench);
            bench.world.inject(1, 0, &frame);
            bench.world.run_for(10);
            let after = duration(&mut bench);
            assert_eq!(after * 20 < before * 21, held_by_the_limit, "{after} after {before} ns, {irn:?}");
        }
    }
}
