//! Timers measure the silence of the peer, and not the time for which packets wait on this side.
//!
//! Packets may wait for a rate limit, congestion control, the window, SQD, other tenants, the port's queue,
//! or a receiver that is not ready (RNR). In each case a dead peer is detected, even if its requester sends
//! slowly.

use crate::bench::{Bench, SIGNALED, SILENT, ends, good};
use remora_fabric::{Config, LinkConfig, QueuePair, Settings};
use remora_fault::{Action, Rule, Rules};
use remora_nic::{AsyncEvent, Command, Flags, Modify, Operation, Payload, Sge, Status, WorkRequest};
use remora_transport::congestion::{self, Algorithm};
use remora_transport::state::State;
use remora_transport::timers::{ack_timeout_ns, rnr_timer_ns};
use remora_wire::Opcode;

const RATE: u64 = 10_000_000;
/// Nanoseconds per byte at that rate.
const NS_PER_BYTE: u64 = 800;
/// Tolerance in nanoseconds: the burst of the pacer after a pause, and a round trip.
const SLACK: u64 = 20_000;

/// Plain RC with go-back-N, and IRN.
const BOTH: [Option<u32>; 2] = [None, Some(128)];

fn limit(bench: &mut Bench, qp: QueuePair, rate: u64) {
    bench.world.modify(qp, &Modify { rate_limit: Some(rate), ..Modify::default() }).unwrap();
}

/// Returns two queue pairs, of which the left sends at [`RATE`].
fn limited(settings: &Settings) -> Bench {
    let mut bench = Bench::new(settings);
    let left = bench.left;
    limit(&mut bench, left, RATE);
    bench
}

/// Returns the nanoseconds until `count` requests of the left have succeeded.
fn took(bench: &mut Bench, count: usize) -> u64 {
    let begun = bench.world.now();
    let mut done = 0;
    while done < count {
        assert!(bench.world.step(), "it comes to rest after {done} of {count}");
        let all = ends(&bench.world.drain(bench.left_cq));
        assert!(all.iter().all(|(_, status)| *status == Status::Success), "{all:?}");
        done += all.len();
    }
    bench.world.now().since(begun)
}

/// Returns the transmission time at [`RATE`] of all frames of `sender` but the last.
fn time_of_frames(bench: &mut Bench, sender: usize) -> u64 {
    let below = bench.world.start().overhead(true);
    let frames = bench.frames(sender);
    let (_, before) = frames.split_last().expect("frames");
    before.iter().map(|sent| (sent.bytes.len() - below) as u64 * NS_PER_BYTE).sum()
}

/// Checks that no timer has expired on either side and that nothing was retransmitted.
fn assert_quiet(bench: &Bench, label: &str) {
    for node in 0..2 {
        let counters = bench.world.counters(node);
        let timeouts = (counters.local_ack_timeout_err, counters.irn_response_timeouts);
        let again = (counters.retransmitted_pkts, counters.irn_responses_repeated);
        assert_eq!((timeouts, again), ((0, 0), (0, 0)), "node {node}, {label}");
    }
}

/// Regression: a queue pair with a rate limit took its own pauses for silence of the peer, so a WRITE at 10
/// Mb/s exhausted its retries.
#[test]
fn a_limited_write_takes_its_bytes_over_the_rate_whatever_timeout_and_retry_cnt() {
    for irn in BOTH {
        for (timeout, retry_cnt, len) in
            [(14, 0, 256 << 10), (14, 7, 1 << 20), (8, 0, 256 << 10), (1, 0, 64 << 10), (1, 7, 256 << 10)]
        {
            let settings = Settings { mtu: 4096, timeout, retry_cnt, irn, ..Settings::default() };
            let label = format!("timeout {timeout}, retry_cnt {retry_cnt}, {len} bytes, {irn:?}");
            let mut bench = limited(&settings);
            bench.write(1, len);
            let took = took(&mut bench, 1);
            let expected = time_of_frames(&mut bench, 0);
            assert!(took + SLACK > expected && took < expected + SLACK, "{took} for {expected} ns, {label}");
            assert_quiet(&bench, &label);
            assert_eq!(bench.there.load(0, len), bench.here.load(0, len));
        }
    }
}

#[test]
fn limited_messages_of_every_kind_see_no_timeout() {
    for irn in BOTH {
        let mut bench = limited(&Settings { mtu: 256, timeout: 1, retry_cnt: 0, irn, ..Settings::default() });
        for id in 0..20 {
            bench.receive(id, 4096);
            let remote = bench.there.remote(0);
            let list = [bench.here.sge(2 << 20, 8)];
            let request = [
                (Operation::Write(remote), bench.here.sge(0, 700)),
                (Operation::Read(remote), bench.here.sge(1 << 20, 700)),
                (Operation::Send, bench.here.sge(0, 600)),
                (Operation::FetchAdd { remote, add: 1 }, list[0]),
            ];
            for (verb, (operation, sge)) in request.into_iter().enumerate() {
                let flags = Flags { fence: verb == 2 && id % 3 == 0, ..SIGNALED };
                bench.put(4 * id + verb as u64, operation, &[sge], flags).unwrap();
            }
        }
        bench.world.ring(bench.left);
        assert_eq!(bench.settle(), good(0..80), "{irn:?}");
        assert_quiet(&bench, &format!("{irn:?}"));
    }
}

#[test]
fn a_control_of_congestion_that_holds_packets_back_costs_no_timeout() {
    for irn in BOTH {
        for algorithm in [Algorithm::Dcqcn, Algorithm::Timely] {
            let congestion = congestion::Settings { algorithm, line_rate: RATE, ..Default::default() };
            let nic = remora_nic::Config { congestion, ..Config::default().nic };
            let settings = Settings { mtu: 4096, timeout: 8, retry_cnt: 0, irn, ..Settings::default() };
            let mut bench = Bench::over(&Config { nic, ..Config::default() }, &settings);
            bench.write(1, 256 << 10);
            let took = took(&mut bench, 1);
            let expected = time_of_frames(&mut bench, 0);
            assert!(took + SLACK > expected && took < expected + SLACK, "{took} for {expected} ns");
            assert_quiet(&bench, &format!("{algorithm:?}, {irn:?}"));
        }
    }
}

#[test]
fn responses_that_the_responder_holds_back_run_no_timer_on_either_side() {
    // Over IRN the responder has its own timer for its responses. With go-back-N the requester's local ACK
    // timeout must be longer than a response takes.
    for (irn, timeout) in [(None, 14), (Some(128), 14)] {
        let settings = Settings { mtu: 4096, timeout, retry_cnt: 0, irn, ..Settings::default() };
        let mut bench = Bench::new(&settings);
        let right = bench.right;
        limit(&mut bench, right, RATE);
        bench.read(1, 1 << 20);
        let took = took(&mut bench, 1);
        let expected = time_of_frames(&mut bench, 1);
        // Each piece is requested by a READ request and answered by its responses only, so the rate is the
        // responder's.
        assert!(took + SLACK > expected && took < expected + SLACK, "{took} for {expected} ns");
        assert_quiet(&bench, &format!("{irn:?}"));
        assert_eq!(bench.here.load(1 << 20, 1 << 20), bench.there.load(0, 1 << 20));
    }
}

#[test]
fn a_response_that_waits_to_be_sent_again_counts_as_no_silence_of_the_requester() {
    let settings = Settings { mtu: 4096, timeout: 14, retry_cnt: 0, irn: Some(128), ..Settings::default() };
    let mut bench = Bench::new(&settings);
    let right = bench.right;
    limit(&mut bench, right, RATE);
    let lost = Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_READ_RESPONSE_MIDDLE]).after(3).at_most(1);
    bench.world.set_rules(&Rules::of(vec![lost]), 1);
    bench.read(1, 64 << 10);
    took(&mut bench, 1);
    let responder = bench.world.counters(1);
    // The next response leaves much later than RTO_low, so the loss is detected by silence, once.
    assert_eq!((responder.irn_responses_repeated, responder.irn_response_timeouts), (1, 1));
    assert_eq!(bench.world.counters(0).local_ack_timeout_err, 0);
}

#[test]
fn a_packet_that_waits_to_be_sent_again_counts_as_no_silence_of_the_peer() {
    // Over IRN the next packet leaves much later than RTO_low, so the loss is detected by silence, once. With
    // go-back-N it is detected by the next packet, since no packet has requested an acknowledgement.
    for (irn, again, (timeouts, naks)) in [(None, 2..=3, (0, 1)), (Some(128), 1..=1, (1, 0))] {
        let settings = Settings { mtu: 4096, timeout: 8, retry_cnt: 1, irn, ..Settings::default() };
        let mut bench = limited(&settings);
        let lost = Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_MIDDLE]).after(3).at_most(1);
        bench.world.set_rules(&Rules::of(vec![lost]), 1);
        bench.write(1, 128 << 10);
        took(&mut bench, 1);
        let counters = bench.world.counters(0);
        assert_eq!((counters.local_ack_timeout_err, counters.packet_seq_err), (timeouts, naks), "{irn:?}");
        assert!(again.contains(&counters.retransmitted_pkts), "{} {irn:?}", counters.retransmitted_pkts);
    }
}

#[test]
fn a_queue_pair_that_is_drained_at_its_pace_sees_no_timeout() {
    for irn in BOTH {
        let mut bench =
            limited(&Settings { mtu: 4096, timeout: 8, retry_cnt: 0, irn, ..Settings::default() });
        bench.write(1, 256 << 10);
        bench.world.run_for(10_000_000);
        bench.world.bring(bench.left, State::Sqd);
        bench.write(2, 64);
        assert_eq!(bench.settle(), good([1]), "what was begun ends");
        let events: Vec<_> = bench.world.with_nic(0, |nic, _| std::iter::from_fn(|| nic.event()).collect());
        assert_eq!(events, [AsyncEvent::SqDrained(bench.left.number)]);
        // Much later the transfer continues.
        bench.world.run_for(500_000_000);
        bench.world.modify(bench.left, &Modify { state: Some(State::Rts), ..Modify::default() }).unwrap();
        assert_eq!(bench.settle(), good([2]));
        assert_quiet(&bench, &format!("{irn:?}"));
    }
}

#[test]
fn a_window_too_small_for_the_next_read_does_not_wait_for_a_timer() {
    for irn in BOTH {
        // A READ's responses fill the window, and the WRITE before it need not request an acknowledgement,
        // because a READ follows.
        let nic = remora_nic::Config { window: 8, read_piece: 8, ..Config::default().nic };
        for timeout in [0, 8] {
            let settings = Settings { mtu: 256, timeout, retry_cnt: 0, irn, ..Settings::default() };
            let mut bench = Bench::over(&Config { nic, ..Config::default() }, &settings);
            for id in 0..20 {
                let remote = bench.there.remote(0);
                let flags = if id % 4 == 3 { SIGNALED } else { SILENT };
                bench.put(2 * id, Operation::Write(remote), &[bench.here.sge(0, 64)], flags).unwrap();
                let into = [bench.here.sge(1 << 20, 2048)];
                bench.put(2 * id + 1, Operation::Read(remote), &into, flags).unwrap();
            }
            bench.world.ring(bench.left);
            let took = took(&mut bench, 10);
            assert_quiet(&bench, &format!("timeout {timeout}, {irn:?}"));
            assert!(took < ack_timeout_ns(8), "{took} ns, {irn:?}");
        }
    }
}

/// Returns a port that accepts two frames at a time and needs 33 µs for each.
fn narrow() -> Config {
    let link = LinkConfig { queue: 2, rate: 1_000_000_000, ..LinkConfig::default() };
    Config { link, ..Config::default() }
}

#[test]
fn a_port_that_is_full_all_the_time_costs_no_timeout() {
    for irn in BOTH {
        // 32 packets, of which one requests an acknowledgement, take twice the timeout.
        let settings = Settings { mtu: 4096, timeout: 7, retry_cnt: 0, irn, ..Settings::default() };
        let mut bench = Bench::over(&narrow(), &settings);
        bench.write(1, 1 << 20);
        took(&mut bench, 1);
        assert_quiet(&bench, &format!("{irn:?}"));
        assert_eq!(bench.there.load(0, 1 << 20), bench.here.load(0, 1 << 20));
    }
}

#[test]
fn who_waits_for_the_turns_of_other_tenants_sees_no_timeout() {
    for irn in BOTH {
        let settings = Settings { mtu: 4096, timeout: 9, retry_cnt: 0, irn, ..Settings::default() };
        let mut bench = Bench::over(&narrow(), &settings);
        let mut all = vec![(bench.left, bench.left_cq)];
        for _ in 0..7 {
            let [left, _] = bench.world.pair(0, 1, &settings);
            all.push(left);
        }
        let list = [bench.here.sge(0, 1 << 20)];
        for (party, (qp, _)) in all.iter().enumerate() {
            let number = qp.number;
            bench.world.ask::<()>(0, Command::SetTenant { qp: number, tenant: party as u32 + 1 }).unwrap();
            let operation = Operation::Write(bench.there.remote(0));
            let payload = Payload::Sges(&list);
            let write = WorkRequest { id: 1, operation, payload, flags: SIGNALED };
            bench.world.post(*qp, &write).unwrap();
        }
        assert!(bench.world.settle(10_000_000));
        for (_, cq) in all {
            assert_eq!(ends(&bench.world.drain(cq)), good([1]), "{irn:?}");
        }
        assert_quiet(&bench, &format!("{irn:?}"));
    }
}

#[test]
fn a_limited_sender_waits_for_a_receiver_and_sees_no_timeout() {
    for irn in BOTH {
        // The receiver's RNR delay is 20 ms, longer than the allowed silence. A READ is outstanding behind
        // the SEND.
        let settings =
            Settings { mtu: 4096, timeout: 8, retry_cnt: 0, min_rnr_timer: 22, irn, ..Settings::default() };
        let mut bench = limited(&settings);
        let remote = bench.there.remote(0);
        let read = [bench.here.sge(1 << 20, 64)];
        let send = [bench.here.sge(0, 64 << 10)];
        bench.put(1, Operation::Send, &send, SIGNALED).unwrap();
        bench.put(2, Operation::Read(remote), &read, SIGNALED).unwrap();
        bench.world.ring(bench.left);
        bench.world.run_for(100_000_000);
        bench.receive(9, 64 << 10);
        assert_eq!(bench.settle(), good([1, 2]), "{irn:?}");
        let counters = bench.world.counters(0);
        assert!(counters.rnr_nak_retry_err >= 1 && rnr_timer_ns(22) > ack_timeout_ns(8));
        assert_eq!((counters.local_ack_timeout_err, counters.retry_exceeded_err), (0, 0), "{irn:?}");
    }
}

/// Returns the nanoseconds until the left detects that the peer does not answer.
fn despair(bench: &mut Bench) -> u64 {
    let begun = bench.world.now();
    let end = loop {
        assert!(bench.world.step(), "it never does");
        if let Some(end) = bench.world.poll(bench.left_cq) {
            break end;
        }
    };
    assert_eq!((end.id, end.status), (1, Status::RetryExceeded));
    bench.world.now().since(begun)
}

/// A rate limit does not hide a dead peer: it is detected within two timeouts and two packets for each try.
#[test]
fn a_limited_sender_finds_a_dead_peer() {
    for (retry_cnt, rate) in [(0, RATE), (3, RATE), (7, RATE), (3, RATE / 50)] {
        let timeout = 14;
        let gap = 4200 * 8_000_000_000 / rate;
        let settings = Settings { mtu: 4096, timeout, retry_cnt, ..Settings::default() };
        let mut bench = limited(&settings);
        let left = bench.left;
        limit(&mut bench, left, rate);
        bench.write(1, 1 << 20);
        bench.world.run_for(2 * gap);
        bench.world.cut(0, 1, true);
        let took = despair(&mut bench);
        let tries = u64::from(retry_cnt) + 1;
        // In each try an acknowledgement is requested within one timeout and a packet, and awaited for
        // another timeout.
        let least = tries * ack_timeout_ns(timeout);
        let most = tries * 2 * (ack_timeout_ns(timeout) + gap);
        assert!(took >= least && took <= most, "{took} ns, not {least} to {most}, at {rate}");
        let counters = bench.world.counters(0);
        assert_eq!((counters.local_ack_timeout_err, counters.retry_exceeded_err), (tries, 1));
    }
}

#[test]
fn a_limited_sender_over_irn_finds_a_dead_peer() {
    let settings = Settings { mtu: 4096, timeout: 14, retry_cnt: 3, irn: Some(128), ..Settings::default() };
    let mut bench = limited(&settings);
    bench.write(1, 1 << 20);
    bench.world.run_for(10_000_000);
    bench.world.cut(0, 1, true);
    let took = despair(&mut bench);
    // Tolerance of a packet.
    let least = 4 * ack_timeout_ns(14) - 10_000_000;
    let most = 4 * ack_timeout_ns(14) + 10_000_000;
    assert!(took >= least && took <= most, "{took} ns, not {least} to {most}");
}

#[test]
fn a_peer_that_makes_no_room_is_found_as_one_that_does_not_answer() {
    for irn in BOTH {
        let settings = Settings { mtu: 4096, timeout: 10, retry_cnt: 2, irn, ..Settings::default() };
        let mut bench = Bench::over(&narrow(), &settings);
        bench.write(1, 1 << 20);
        bench.world.run_for(1_000_000);
        // Frames that enter the queue from now on stay there for days.
        bench.world.set_rate(0, 1, 1);
        let took = despair(&mut bench);
        let least = 3 * ack_timeout_ns(10);
        let most = 5 * ack_timeout_ns(10);
        assert!(took >= least && took <= most, "{took} ns, not {least} to {most}, {irn:?}");
    }
}

#[test]
fn what_has_left_without_asking_is_asked_about_and_not_repeated_as_lost() {
    // READs that must not be sent yet block later work requests, so the WRITE before them need not have
    // requested an acknowledgement.
    let mut bench =
        Bench::new(&Settings { timeout: 8, retry_cnt: 0, max_rd_atomic: 1, ..Settings::default() });
    let list: [Sge; 1] = [bench.here.sge(0, 64)];
    let remote = bench.there.remote(0);
    for id in 0..30 {
        bench.put(id, Operation::Write(remote), &list, SIGNALED).unwrap();
        bench.put(100 + id, Operation::Read(remote), &list, SIGNALED).unwrap();
    }
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good((0..30).flat_map(|id| [id, 100 + id])));
    assert_quiet(&bench, "READs one at a time");
}
