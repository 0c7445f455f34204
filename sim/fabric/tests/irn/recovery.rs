//! Loss of requests: later packets are placed early, lost ones are recovered one by one by NACK or timer, and
//! retries are exhausted.

use crate::bench::{Bench, SIGNALED, good};
use crate::{bench, bench_with, nth, rules, settings};
use remora_fabric::{Config, Settings};
use remora_fault::{Action, Directions, Rule};
use remora_nic::{Flags, Operation, Status};
use remora_transport::Instant;
use remora_transport::rc::irn::{self, Recovery};
use remora_wire::irn::Additions;
use remora_wire::{NakCode, Opcode, Syndrome, packet};

fn lose_middle(bench: &mut Bench, index: u64) {
    rules(bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_MIDDLE]), index)]);
}

/// Returns the time in nanoseconds at which the only request completes.
fn completion_at(bench: &mut Bench) -> u64 {
    loop {
        assert!(bench.world.step(), "it comes to rest without a completion");
        if let Some(wc) = bench.world.poll(bench.left_cq) {
            assert_eq!(wc.status, Status::Success);
            return bench.world.now().since(Instant(0));
        }
    }
}

#[test]
fn packets_behind_a_gap_are_placed_and_only_the_lost_one_is_sent_again() {
    let mut bench = bench();
    lose_middle(&mut bench, 1);
    bench.write(1, 256 * 8);
    // After slightly more than the one-way delay, all packets but the lost one are placed, and nothing is
    // complete.
    bench.world.run_for(2_000);
    let content = bench.there.load(0, 2048);
    let sent = bench.here.load(0, 2048);
    assert_eq!((&content[..512], &content[768..]), (&sent[..512], &sent[768..]));
    assert_eq!(content[512..768], [0; 256]);
    assert_eq!(bench.settle(), good([1]));
    assert_eq!(bench.there.load(0, 2048), bench.here.load(0, 2048));
    let left = bench.world.counters(0);
    let right = bench.world.counters(1);
    assert_eq!((left.retransmitted_pkts, left.local_ack_timeout_err, left.irn_recoveries), (1, 0, 1));
    assert_eq!((right.irn_ahead_pkts, right.rx_write_requests), (5, 1));
}

#[test]
fn each_arrival_out_of_order_is_answered_by_a_nack_with_both_numbers() {
    let mut bench = bench();
    lose_middle(&mut bench, 0);
    bench.write(1, 256 * 5);
    bench.settle();
    let start = bench.world.start();
    let mut answers = Vec::new();
    for frame in bench.frames(1) {
        let below = start.overhead(true);
        let view = packet::View::new(&frame.bytes[below..]).unwrap();
        let (additions, _) = Additions::split(&view).unwrap();
        let syndrome = view.aeth().unwrap().syndrome;
        let nack = syndrome == Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR);
        assert_eq!(nack, additions.sack.is_some());
        answers.push((view.bth.psn().get(), additions.sack.map(|sack| sack.psn.get())));
    }
    // Packet 0 arrives in order, packets 2 to 4 ahead of packet 1, and then all are acknowledged.
    assert_eq!(answers, [(0, None), (1, Some(2)), (1, Some(3)), (1, Some(4)), (4, None)]);
}

#[test]
fn every_write_packet_carries_its_own_address_and_what_is_left() {
    let mut bench = bench();
    bench.write(1, 256 * 2 + 100);
    bench.settle();
    let mut seen = Vec::new();
    for frame in bench.frames(0) {
        let view = packet::View::new(&frame.bytes[bench.world.start().overhead(true)..]).unwrap();
        let (additions, payload) = Additions::split(&view).unwrap();
        let reth = view.reth().or(additions.reth).unwrap();
        seen.push((reth.va - bench.there.address, reth.dma_len, payload.len()));
    }
    assert_eq!(seen, [(0, 612, 256), (256, 356, 256), (512, 100, 100)]);
}

#[test]
fn a_lost_last_packet_is_recovered_by_the_short_timer() {
    let mut bench = bench();
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_LAST]), 0)]);
    bench.write(1, 256 * 4);
    let took = completion_at(&mut bench);
    assert!((100_000..110_000).contains(&took), "{took} ns");
    let counters = bench.world.counters(0);
    assert_eq!((counters.irn_short_timeouts, counters.local_ack_timeout_err), (1, 1));
}

#[test]
fn many_packets_in_flight_wait_for_the_long_timer() {
    let mut bench = bench();
    // Everything is lost, so no NACK reports the missing packets.
    rules(&mut bench, vec![Rule::new(Action::Drop).towards(Directions::Send).at_most(8)]);
    bench.write(1, 256 * 8);
    let took = completion_at(&mut bench);
    // Nothing was selectively acknowledged, so the oldest packet is sent once per round trip.
    assert!((320_000..340_000).contains(&took), "{took} ns");
    assert_eq!(bench.world.counters(0).irn_short_timeouts, 0);
}

#[test]
fn the_cap_bounds_what_is_in_flight_and_without_bdp_fc_only_the_bitmap_does() {
    for (bdp_fc, expected) in [(true, 110), (false, 128)] {
        let mut bench = bench_with(irn::Settings { bdp_fc, ..irn::Settings::default() });
        bench.world.cut(0, 1, true);
        bench.write(1, 256 * 200);
        bench.world.run_for(50_000);
        assert_eq!(bench.frames(0).len(), expected);
    }
}

#[test]
fn the_ablations_send_more_or_wait_longer() {
    let mut sent = Vec::new();
    for recovery in [Recovery::Selective, Recovery::HeadOnly, Recovery::GoBackN] {
        let mut bench = bench_with(irn::Settings { recovery, ..irn::Settings::default() });
        let nine = Rule::every(Action::Drop, 10).towards(Directions::Send).at_most(9);
        rules(&mut bench, vec![nine]);
        bench.write(1, 256 * 100);
        let took = completion_at(&mut bench);
        assert_eq!(bench.there.load(0, 25_600), bench.here.load(0, 25_600));
        sent.push((bench.world.counters(0).retransmitted_pkts, took));
    }
    let [selective, head, back] = sent[..] else { unreachable!("three of them") };
    assert!(back.0 > 2 * selective.0, "{sent:?}");
    assert!(head.1 > selective.1 && back.1 > selective.1, "{sent:?}");
}

/// A local ACK timeout far below the round trip: go-back-N would send eight times within it.
///
/// Regression: if `timeout` was shorter than the first timer of IRN, the peer was given up without any
/// retransmission.
#[test]
fn however_short_the_timeout_a_request_is_sent_again_before_its_peer_is_given_up() {
    for (retry_cnt, sent) in [(0, 1), (1, 2), (2, 3), (7, 4)] {
        let mut bench = Bench::new(&Settings { retry_cnt, timeout: 1, ..settings() });
        bench.world.cut(0, 1, true);
        bench.write(1, 64);
        assert_eq!(bench.settle(), [(1, Status::RetryExceeded)]);
        assert_eq!(bench.frames(0).len(), sent, "retry_cnt {retry_cnt}");
    }
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_after_the_patience_of_the_verbs() {
    for (retry_cnt, timeout, us) in [(0, 8, 1_048), (3, 8, 4_194), (7, 6, 2_097)] {
        let mut bench = Bench::new(&Settings { retry_cnt, timeout, ..settings() });
        bench.world.cut(0, 1, true);
        bench.write(1, 64);
        assert_eq!(bench.settle(), [(1, Status::RetryExceeded)]);
        let took = bench.world.now().since(Instant(0)) / 1000;
        // The retries end at the first timer that expires after the total timeout.
        assert!((us..us + 801).contains(&took), "{took} us for {us}");
    }
    let mut bench = Bench::new(&Settings { timeout: 0, ..settings() });
    bench.world.cut(0, 1, true);
    bench.write(1, 64);
    bench.world.run_for(1_000_000_000);
    assert_eq!(bench.world.drain(bench.left_cq), []);
    bench.world.cut(0, 1, false);
    bench.world.run_for(1_000_000);
    assert_eq!(crate::bench::ends(&bench.world.drain(bench.left_cq)), good([1]));
}

#[test]
fn a_fence_waits_for_the_writes_before_it_too() {
    for fence in [false, true] {
        let mut bench = bench();
        rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_ONLY]), 0)]);
        let here = bench.here.clone();
        let remote = bench.there.remote(0);
        here.store(0, b"first");
        here.store(64, b"later");
        bench.put(1, Operation::Write(remote), &[here.sge(0, 5)], SIGNALED).unwrap();
        bench.put(2, Operation::Write(remote), &[here.sge(64, 5)], Flags { fence, ..SIGNALED }).unwrap();
        bench.world.ring(bench.left);
        assert_eq!(bench.settle(), good([1, 2]));
        // Without a fence the lost one is executed last, as the documentation warns.
        let expected: &[u8] = if fence { b"later" } else { b"first" };
        assert_eq!(bench.there.load(0, 5), expected);
    }
}

#[test]
fn psns_wrap_in_both_sequence_spaces() {
    for before in 0..7 {
        let start = 0x00ff_ffff - before;
        let psn = [start, (start + 1) & 0x00ff_ffff];
        let mut bench = Bench::over(&Config::default(), &Settings { psn, ..settings() });
        rules(&mut bench, vec![Rule::every(Action::Drop, 7)]);
        for id in 0..3 {
            bench.receive(id, 4096);
            bench.write(10 * id, 700);
            bench.read(10 * id + 1, 700);
            bench.send(10 * id + 2, 600);
            let remote = bench.there.remote(800);
            let list = [bench.here.sge(2 << 20, 8)];
            bench.post(10 * id + 3, Operation::FetchAdd { remote, add: 1 }, &list);
        }
        assert_eq!(bench.settle(), good((0..3).flat_map(|id| (0..4).map(move |verb| 10 * id + verb))));
        assert_eq!(bench.right_ends(), good(0..3));
        assert_eq!(bench.there.load(800, 8), 3u64.to_ne_bytes());
    }
}
