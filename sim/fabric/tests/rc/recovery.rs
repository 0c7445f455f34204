//! Loss, duplicates, waiting and exhausted retries.

use crate::bench::{Bench, SIGNALED, SILENT, good};
use remora_fabric::{Config, Settings};
use remora_fault::{Action, Directions, Rule, Rules};
use remora_nic::{Flags, Operation, Status};
use remora_transport::Instant;
use remora_transport::timers::{ack_timeout_ns, rnr_timer_ns};
use remora_wire::Opcode;

fn rules(bench: &mut Bench, rules: Vec<Rule>) {
    bench.world.set_rules(&Rules::of(rules), 1);
}

#[test]
fn psns_wrap_in_every_role() {
    // Each of the four kinds of message crosses the PSN wrap, within and between packets.
    for before in 0..7 {
        let start = 0x00ff_ffff - before;
        let mut bench =
            Bench::new(&Settings { mtu: 256, psn: [start, (start + 1) & 0xff_ffff], ..Settings::default() });
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
        assert_eq!(bench.world.counters(0).retransmitted_pkts, 0, "start {start:#x}");
    }
}

#[test]
fn acknowledgements_are_coalesced() {
    let mut bench = Bench::new(&Settings::default());
    for id in 0..100 {
        let remote = bench.there.remote(0);
        let list = [bench.here.sge(0, 64)];
        bench.put(id, Operation::Write(remote), &list, SIGNALED).unwrap();
    }
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good(0..100));
    let [requests, answers] = bench.opcodes();
    assert_eq!(requests.len(), 100);
    assert!(answers.len() <= 10, "{} acknowledgements of 100 WRITEs", answers.len());
}

#[test]
fn a_lost_acknowledgement_is_implied_by_a_later_one() {
    let mut bench = Bench::new(&Settings::default());
    rules(&mut bench, vec![Rule::new(Action::Drop).towards(Directions::Receive)]);
    bench.write(1, 64);
    bench.world.run_for(20_000);
    rules(&mut bench, vec![]);
    bench.write(2, 64);
    bench.world.run_for(20_000);
    assert_eq!(crate::bench::ends(&bench.world.drain(bench.left_cq)), good([1, 2]));
    assert_eq!(bench.world.counters(0).retransmitted_pkts, 0);
}

#[test]
fn a_read_response_acknowledges_what_came_before() {
    let mut bench = Bench::new(&Settings::default());
    rules(&mut bench, vec![Rule::new(Action::Drop).only(&[Opcode::RC_ACKNOWLEDGE])]);
    bench.write(1, 64);
    bench.read(2, 64);
    assert_eq!(bench.settle(), good([1, 2]));
    assert_eq!(bench.world.counters(0).local_ack_timeout_err, 0);
}

#[test]
fn a_gap_is_reported_once_and_repaired_without_a_timeout() {
    let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
    rules(&mut bench, vec![Rule::every(Action::Drop, 5).only(&[Opcode::RC_RDMA_WRITE_MIDDLE])]);
    bench.write(1, 256 * 8);
    assert_eq!(bench.settle(), good([1]));
    let left = bench.world.counters(0);
    let right = bench.world.counters(1);
    assert_eq!((left.packet_seq_err, left.local_ack_timeout_err), (1, 0));
    assert!(right.out_of_sequence >= 1);
    assert_eq!(bench.there.load(0, 2048), bench.here.load(0, 2048));
}

#[test]
fn lost_responses_are_implied_by_a_later_answer() {
    let mut bench = Bench::new(&Settings::default());
    rules(&mut bench, vec![Rule::every(Action::Drop, 2).only(&[Opcode::RC_RDMA_READ_RESPONSE_ONLY])]);
    bench.there.store(0, b"remote");
    bench.read(1, 6);
    bench.read(2, 6);
    bench.write(3, 64);
    assert_eq!(bench.settle(), good(1..=3));
    let counters = bench.world.counters(0);
    assert_eq!((counters.implied_nak_seq_err, counters.local_ack_timeout_err), (1, 0));
}

#[test]
fn a_duplicate_write_or_send_is_acknowledged_and_not_executed_again() {
    let mut bench = Bench::new(&Settings::default());
    rules(&mut bench, vec![Rule::new(Action::Duplicate).towards(Directions::Send)]);
    bench.receive(7, 100);
    bench.receive(8, 100);
    bench.send(1, 50);
    bench.write(2, 50);
    assert_eq!(bench.settle(), good([1, 2]));
    assert_eq!(bench.right_ends(), good([7]), "one message, one receive");
    let counters = bench.world.counters(1);
    assert_eq!(
        (counters.duplicate_request, counters.rx_send_requests, counters.rx_write_requests),
        (2, 1, 1)
    );
}

#[test]
fn a_duplicate_atomic_is_answered_from_the_replay_store() {
    let mut bench = Bench::new(&Settings::default());
    // Every first answer is lost, so that each atomic is requested twice.
    rules(&mut bench, vec![Rule::every(Action::Drop, 3).only(&[Opcode::RC_ATOMIC_ACKNOWLEDGE])]);
    for id in 0..10u64 {
        let list = [bench.here.sge(64 * id as usize, 8)];
        bench.post(id, Operation::FetchAdd { remote: bench.there.remote(0), add: 1 }, &list);
    }
    let ends = bench.settle();
    assert_eq!(ends, good(0..10));
    for id in 0..10u64 {
        assert_eq!(bench.here.load(64 * id as usize, 8), id.to_ne_bytes());
    }
    assert_eq!(bench.there.load(0, 8), 10u64.to_ne_bytes());
    let counters = bench.world.counters(1);
    assert!(counters.duplicate_request > 0);
    assert_eq!(counters.rx_atomic_requests, 10);
}

#[test]
fn a_duplicate_read_is_executed_again_from_where_it_broke() {
    let settings = Settings { mtu: 256, ..Settings::default() };
    let mut bench = Bench::new(&settings);
    let pattern = bench.here.load(0, 256 * 20);
    bench.there.store(0, &pattern);
    rules(&mut bench, vec![Rule::every(Action::Drop, 11).only(&[Opcode::RC_RDMA_READ_RESPONSE_MIDDLE])]);
    bench.read(1, 256 * 20);
    assert_eq!(bench.settle(), good([1]));
    assert_eq!(bench.here.load(1 << 20, 256 * 20), pattern);
    let frames = bench.frames(0);
    let requests: Vec<_> = frames.iter().map(|sent| bench.packet(sent).ext.reth.unwrap()).collect();
    assert_eq!(requests[0].dma_len, 256 * 20);
    assert!(requests.len() > 1 && requests[1].va > requests[0].va, "{requests:?}");
    assert!(
        requests[1..].iter().all(|reth| reth.va + u64::from(reth.dma_len) == bench.there.address + 256 * 20)
    );
}

#[test]
fn a_receiver_that_is_not_ready_makes_the_sender_wait_as_long_as_the_timer_says() {
    for code in [1u8, 5, 12, 20] {
        let mut bench = Bench::new(&Settings { min_rnr_timer: code, timeout: 0, ..Settings::default() });
        bench.send(1, 64);
        bench.world.run_for(10_000);
        bench.receive(9, 64);
        assert_eq!(bench.settle(), good([1]));
        let frames = bench.frames(0);
        assert_eq!(frames.len(), 2, "code {code}");
        let waited = frames[1].at.since(frames[0].at);
        let expected = rnr_timer_ns(code);
        assert!((expected..expected + 5_000).contains(&waited), "code {code}: {waited} ns for {expected}");
        let left = bench.world.counters(0);
        let right = bench.world.counters(1);
        assert_eq!((left.rnr_nak_retry_err, right.send_rnr_err, right.out_of_buffer), (1, 1, 1));
    }
}

#[test]
fn rnr_retries_run_out_after_as_many_as_were_asked_for_and_7_is_for_ever() {
    for retries in 0..7u8 {
        let mut bench = Bench::new(&Settings { rnr_retry: retries, ..Settings::default() });
        bench.send(1, 64);
        assert_eq!(bench.settle(), [(1, Status::RnrRetryExceeded)]);
        assert_eq!(bench.frames(0).len(), 1 + usize::from(retries));
        assert_eq!(bench.world.counters(0).retry_rnr_exceeded_err, 1);
    }
    let mut bench = Bench::new(&Settings { rnr_retry: 7, ..Settings::default() });
    bench.send(1, 64);
    bench.world.run_for(10_000_000);
    assert!(bench.frames(0).len() > 500);
    assert_eq!(bench.world.drain(bench.left_cq), []);
    bench.receive(9, 64);
    bench.world.run_for(100_000);
    assert_eq!(crate::bench::ends(&bench.world.drain(bench.left_cq)), good([1]));
}

#[test]
fn retries_run_out_after_as_many_timeouts_as_were_asked_for() {
    for (retries, timeout) in [(0u8, 4u8), (3, 5), (7, 6)] {
        let mut bench = Bench::new(&Settings { retry_cnt: retries, timeout, ..Settings::default() });
        bench.world.cut(0, 1, true);
        bench.write(1, 64);
        assert_eq!(bench.settle(), [(1, Status::RetryExceeded)]);
        assert_eq!(bench.frames(0).len(), 1 + usize::from(retries));
        let expected = ack_timeout_ns(timeout) * (u64::from(retries) + 1);
        let took = bench.world.now().since(Instant(0));
        assert!((expected..expected + 1_000).contains(&took), "{took} ns for {expected}");
        let counters = bench.world.counters(0);
        assert_eq!(
            (counters.local_ack_timeout_err, counters.retry_exceeded_err),
            (u64::from(retries) + 1, 1)
        );
    }
}

#[test]
fn a_fenced_request_waits_for_reads_and_atomics_and_an_unfenced_one_does_not() {
    for fence in [false, true] {
        let mut bench = Bench::new(&Settings::default());
        let remote = bench.there.remote(0);
        let list = [bench.here.sge(1 << 20, 8)];
        bench.put(1, Operation::Read(remote), &list, SILENT).unwrap();
        bench.put(2, Operation::FetchAdd { remote, add: 1 }, &list, SILENT).unwrap();
        bench.put(3, Operation::Write(remote), &list, Flags { fence, ..SIGNALED }).unwrap();
        bench.world.ring(bench.left);
        assert_eq!(bench.settle(), good([3]));
        let sent = bench.world.sent();
        let write = sent
            .iter()
            .position(|frame| bench.packet(frame).bth.opcode == Opcode::RC_RDMA_WRITE_ONLY)
            .unwrap();
        let answers_before = sent[..write].iter().filter(|frame| frame.from == 1).count();
        assert_eq!(answers_before, if fence { 2 } else { 0 });
    }
}

#[test]
fn the_window_bounds_what_is_in_flight() {
    let nic = remora_nic::Config { window: 8, ..Config::default().nic };
    let mut bench =
        Bench::over(&Config { nic, ..Config::default() }, &Settings { mtu: 256, ..Settings::default() });
    bench.world.cut(0, 1, true);
    bench.write(1, 256 * 100);
    bench.world.run_for(50_000);
    assert_eq!(bench.frames(0).len(), 8);
}

/// Regression: a local error after unacknowledged WRITEs waited for the retransmission timer.
#[test]
fn a_local_error_behind_writes_does_not_wait_for_a_timer() {
    let mut bench = Bench::new(&Settings { timeout: 0, ..Settings::default() });
    let remote = bench.there.remote(0);
    let list = [bench.here.sge(0, 64)];
    for id in 0..3 {
        bench.put(id, Operation::Write(remote), &list, SIGNALED).unwrap();
    }
    let bad = [remora_nic::Sge { lkey: remora_memory::Key::new(12345), ..list[0] }];
    bench.put(3, Operation::Write(remote), &bad, SIGNALED).unwrap();
    bench.world.ring(bench.left);
    let mut expected = good(0..3);
    expected.push((3, Status::LocalProtection));
    assert_eq!(bench.settle(), expected);
}

/// Returns a bench with a timeout that lets acknowledgements be late.
fn patient() -> Bench {
    Bench::new(&Settings { timeout: 14, ..Settings::default() })
}

/// Posts a SEND without a completion and lets it arrive.
fn send_silently(bench: &mut Bench, id: u64) {
    bench.receive(id, 64);
    let list = [bench.here.sge(0, 64)];
    bench.put(id, Operation::Send, &list, SILENT).unwrap();
    bench.world.ring(bench.left);
    bench.world.run_for(10_000);
}

#[test]
fn sends_without_completions_ask_for_few_acknowledgements() {
    let mut bench = patient();
    for id in 0..128 {
        send_silently(&mut bench, id);
    }
    assert_eq!(bench.right_ends(), good(0..128));
    let [requests, answers] = bench.opcodes();
    assert_eq!(requests.len(), 128);
    assert!(answers.len() <= 16, "{} acknowledgements of 128 SENDs", answers.len());
    // A completion, a READ and local work end as quickly as behind signaled messages.
    bench.read(128, 64);
    bench.world.run_for(10_000);
    send_silently(&mut bench, 129);
    bench.post(130, Operation::Nop, &[]);
    bench.world.run_for(10_000);
    assert_eq!(crate::bench::ends(&bench.world.drain(bench.left_cq)), good([128, 130]));
    assert_eq!(bench.settle(), []);
    assert_eq!(bench.world.counters(0).local_ack_timeout_err, 0);
}

#[test]
fn a_lost_send_without_a_completion_is_sent_again_without_a_timeout() {
    let mut bench = patient();
    rules(&mut bench, vec![Rule::new(Action::Drop).only(&[Opcode::RC_SEND_ONLY])]);
    send_silently(&mut bench, 1);
    rules(&mut bench, vec![]);
    assert_eq!(bench.settle(), []);
    assert_eq!(bench.right_ends(), good([1]));
    let counters = bench.world.counters(0);
    assert_eq!((counters.retransmitted_pkts, counters.local_ack_timeout_err), (1, 0));
}
