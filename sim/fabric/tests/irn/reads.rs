//! READs and atomics over IRN: executed once and in order, with responses recovered by the responder's own
//! sender.

use crate::bench::{Bench, SIGNALED, good};
use crate::{bench, nth, rules, settings};
use remora_fabric::Settings;
use remora_fault::{Action, Directions, Rule};
use remora_nic::{Operation, Status};
use remora_transport::state::State;
use remora_wire::Opcode;

#[test]
fn a_read_sees_the_write_before_it_though_that_was_lost() {
    let mut bench = bench();
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_ONLY]), 0)]);
    let here = bench.here.clone();
    let remote = bench.there.remote(0);
    here.store(0, b"fresh");
    bench.put(1, Operation::Write(remote), &[here.sge(0, 5)], SIGNALED).unwrap();
    bench.put(2, Operation::Read(remote), &[here.sge(1 << 20, 5)], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good([1, 2]));
    assert_eq!(here.load(1 << 20, 5), b"fresh");
    assert_eq!(bench.world.counters(1).irn_ahead_pkts, 1, "the READ request was kept, not dropped");
    assert_eq!(bench.world.counters(0).retransmitted_pkts, 1);
}

/// The failed SEND is not retransmitted and completes only after the READ. Nothing can be sent, but the timer
/// must run.
///
/// Regression: after a SEND failed behind a READ without a response, neither ended, because the timer was
/// stopped for a packet that never leaves. Found by fuzzing.
#[test]
fn a_read_without_an_answer_ends_though_a_failed_send_waits_behind_it() {
    let settings = Settings { rnr_retry: 0, retry_cnt: 2, ..settings() };
    let mut bench = Bench::new(&settings);
    rules(&mut bench, vec![Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_READ_RESPONSE_ONLY])]);
    let here = bench.here.clone();
    let remote = bench.there.remote(0);
    bench.put(1, Operation::Read(remote), &[here.sge(1 << 20, 5)], SIGNALED).unwrap();
    bench.put(2, Operation::Send, &[here.sge(0, 5)], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    let ended: Vec<_> = bench.settle().into_iter().collect();
    assert_eq!(ended, [(1, Status::RetryExceeded), (2, Status::WrFlushed)]);
    assert_eq!(bench.world.state(bench.left), Some(State::Err));
}

#[test]
fn atomics_are_executed_once_and_in_order_whatever_is_lost_or_doubled() {
    let mut bench = bench();
    rules(
        &mut bench,
        vec![
            Rule::every(Action::Drop, 5),
            Rule::every(Action::Duplicate, 3),
            Rule::every(Action::Reorder { frames: 2 }, 4),
        ],
    );
    for id in 0..40u64 {
        let list = [bench.here.sge(64 * id as usize, 8)];
        bench
            .put(id, Operation::FetchAdd { remote: bench.there.remote(0), add: 1 }, &list, SIGNALED)
            .unwrap();
    }
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good(0..40));
    for id in 0..40u64 {
        assert_eq!(bench.here.load(64 * id as usize, 8), id.to_ne_bytes());
    }
    assert_eq!(bench.there.load(0, 8), 40u64.to_ne_bytes());
    assert_eq!(bench.world.counters(1).rx_atomic_requests, 40);
}

#[test]
fn lost_responses_are_sent_again_by_the_responder_one_by_one() {
    let mut bench = bench();
    let pattern = bench.here.load(0, 256 * 10);
    bench.there.store(0, &pattern);
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_READ_RESPONSE_MIDDLE]), 3)]);
    bench.read(1, 256 * 10);
    assert_eq!(bench.settle(), good([1]));
    assert_eq!(bench.here.load(1 << 20, 2560), pattern);
    let [requests, answers] = bench.opcodes();
    let reads = requests.iter().filter(|opcode| **opcode == Opcode::RC_RDMA_READ_REQUEST).count();
    assert_eq!(reads, 1, "the READ is asked for once");
    assert!(requests.contains(&Opcode::IRN_READ_ACKNOWLEDGE));
    let responses = answers.iter().filter(|opcode| **opcode != Opcode::RC_ACKNOWLEDGE).count();
    assert_eq!(responses, 11);
    let right = bench.world.counters(1);
    assert_eq!((right.irn_responses_repeated, right.irn_response_timeouts), (1, 0));
}

#[test]
fn a_lost_last_response_comes_by_the_responders_timer() {
    let mut bench = bench();
    bench.there.store(0, b"remote");
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_READ_RESPONSE_ONLY]), 0)]);
    bench.read(1, 6);
    assert_eq!(bench.settle(), good([1]));
    assert_eq!(bench.here.load(1 << 20, 6), b"remote");
    assert_eq!(bench.world.counters(1).irn_response_timeouts, 1);
    assert_eq!(bench.world.counters(0).local_ack_timeout_err, 0);
}

#[test]
fn a_response_also_acknowledges_the_requests_before_it() {
    let mut bench = bench();
    rules(&mut bench, vec![Rule::new(Action::Drop).only(&[Opcode::RC_ACKNOWLEDGE])]);
    bench.write(1, 64);
    bench.read(2, 64);
    assert_eq!(bench.settle(), good([1, 2]));
    assert_eq!(bench.world.counters(0).local_ack_timeout_err, 0);
}

#[test]
fn no_more_reads_are_outstanding_than_agreed_and_the_rest_follow() {
    let mut bench =
        crate::bench::Bench::new(&Settings { max_rd_atomic: 2, max_dest_rd_atomic: 2, ..settings() });
    for id in 0..10 {
        bench
            .put(id, Operation::Read(bench.there.remote(0)), &[bench.here.sge(1 << 20, 600)], SIGNALED)
            .unwrap();
    }
    bench.world.ring(bench.left);
    bench.world.run_for(1);
    assert_eq!(bench.frames(0).len(), 2);
    // The (N)ACKs of responses are lost: the request for the next READ proves that all responses but those to
    // the last READ arrived.
    rules(&mut bench, vec![Rule::new(Action::Drop).only(&[Opcode::IRN_READ_ACKNOWLEDGE])]);
    bench.world.run_for(50_000);
    assert_eq!(crate::bench::ends(&bench.world.drain(bench.left_cq)), good(0..10));
}

#[test]
fn memory_that_goes_when_the_read_is_over_ends_nobody_though_the_acknowledgement_was_lost() {
    let mut bench = bench();
    let region = bench.world.register(1, 4096, remora_fabric::ALL);
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::IRN_READ_ACKNOWLEDGE]), 0)]);
    bench.post(1, Operation::Read(region.remote(0)), &[bench.here.sge(1 << 20, 64)]);
    bench.world.run_for(10_000);
    assert_eq!(crate::bench::ends(&bench.world.drain(bench.left_cq)), good([1]));
    bench.world.deregister(&region);
    // The responder wants to retransmit its response but may no longer read the memory.
    bench.world.run_for(5_000_000);
    assert_eq!(bench.world.counters(1).irn_response_timeouts, 1);
    assert_eq!(bench.world.state(bench.right), Some(State::Rts));
    bench.read(2, 64);
    assert_eq!(bench.settle(), good([2]));
}

#[test]
fn memory_that_goes_under_a_read_is_a_remote_access_error() {
    for lost in [0, 3] {
        let mut bench = bench();
        let region = bench.world.register(1, 64 << 10, remora_fabric::ALL);
        // The loss is of the first transmission, or of a retransmission.
        let rule = Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_READ_RESPONSE_MIDDLE]);
        rules(&mut bench, if lost > 0 { vec![nth(rule, lost)] } else { vec![] });
        bench.post(1, Operation::Read(region.remote(0)), &[bench.here.sge(1 << 20, 64 << 10)]);
        bench.world.run_for(1_500);
        bench.world.deregister(&region);
        assert_eq!(bench.settle(), [(1, Status::RemoteAccess)]);
    }
}

#[test]
fn a_requester_that_is_gone_leaves_the_responder_in_peace() {
    let mut bench = crate::bench::Bench::new(&Settings { timeout: 6, retry_cnt: 3, ..settings() });
    bench.read(1, 256 * 20);
    bench.world.run_for(1_500);
    bench.world.cut(0, 1, true);
    rules(&mut bench, vec![Rule::new(Action::Drop).towards(Directions::Send)]);
    // The responder retransmits until the timeout and is silent afterwards.
    bench.world.run_for(10_000_000);
    bench.world.sent();
    bench.world.run_for(100_000_000);
    assert_eq!(bench.frames(1).len(), 0);
    assert_eq!(bench.world.state(bench.right), Some(State::Rts));
}
