//! Queue pair states, events, flushing and draining.

use crate::bench::{Bench, SIGNALED, SILENT, good};
use remora_fabric::{QueuePair, Settings};
use remora_fault::{Action, Rule, Rules};
use remora_nic::{AsyncEvent, Command, Modify, ModifyFault, Operation, PostError, Status};
use remora_transport::state::{Attributes, ModifyError, State};

fn events(bench: &mut Bench, node: usize) -> Vec<AsyncEvent> {
    bench.world.with_nic(node, |nic, _| std::iter::from_fn(|| nic.event()).collect())
}

fn only_state(state: State) -> Modify {
    Modify { state: Some(state), ..Modify::default() }
}

#[test]
fn a_drained_queue_pair_says_so_once_and_goes_on_where_it_stopped() {
    let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
    bench.write(1, 256 * 50);
    bench.world.run_for(1_100);
    assert_eq!(events(&mut bench, 0), []);
    bench.world.bring(bench.left, State::Sqd);
    bench.write(2, 64);
    assert_eq!(bench.settle(), good([1]), "what was begun is finished, nothing is begun");
    let drained = [AsyncEvent::SqDrained(bench.left.number)];
    assert_eq!(events(&mut bench, 0), drained);
    bench.world.modify(bench.left, &only_state(State::Rts)).unwrap();
    assert_eq!(bench.settle(), good([2]));
    assert_eq!(events(&mut bench, 0), []);
}

/// Regression: an idle queue pair in SQD never reported that it was drained.
#[test]
fn an_idle_queue_pair_is_drained_at_once() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.bring(bench.left, State::Sqd);
    assert_eq!(events(&mut bench, 0), [AsyncEvent::SqDrained(bench.left.number)]);
    assert_eq!(bench.world.state(bench.left), Some(State::Sqd));
}

#[test]
fn a_drained_queue_pair_still_serves_its_peer() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.bring(bench.right, State::Sqd);
    bench.write(1, 64);
    bench.read(2, 64);
    assert_eq!(bench.settle(), good([1, 2]));
}

#[test]
fn everything_posted_is_flushed_in_order_send_queue_and_receive_queue() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.cut(0, 1, true);
    let remote = bench.there.remote(0);
    let list = [bench.here.sge(0, 64)];
    for id in 0..30 {
        let flags = if id % 3 == 0 { SIGNALED } else { SILENT };
        bench.put(id, Operation::Write(remote), &list, flags).unwrap();
    }
    bench.world.ring(bench.left);
    bench.world.run_for(5_000);
    // Some packets are in flight, some work requests are fetched, some are not: all complete with an error,
    // signaled or not.
    for id in 30..40 {
        bench.put(id, Operation::Write(remote), &list, SILENT).unwrap();
    }
    for id in 0..5 {
        bench.receive(id, 10);
    }
    bench.world.bring(bench.left, State::Err);
    bench.world.bring(bench.right, State::Err);
    let flushed = |ids: std::ops::Range<u64>| ids.map(|id| (id, Status::WrFlushed)).collect::<Vec<_>>();
    assert_eq!(bench.settle(), flushed(0..40));
    assert_eq!(bench.right_ends(), flushed(0..5));
    // A work request posted in ERR is flushed at once.
    bench.write(40, 64);
    bench.receive(5, 10);
    assert_eq!((bench.settle(), bench.right_ends()), (flushed(40..41), flushed(5..6)));
    assert_eq!(bench.there.load(0, 64), vec![0; 64]);
}

/// Regression: the send queue slots of a failed request were never freed.
#[test]
fn a_failed_request_ends_the_queue_pair_and_gives_its_slots_back() {
    let settings = Settings { send_slots: 1, max_sge: 1, ..Settings::default() };
    let mut bench = Bench::new(&settings);
    let list = [bench.here.sge(0, 64)];
    let nowhere = remora_nic::Remote { addr: 0, rkey: remora_memory::Key::new(77) };
    bench.post(1, Operation::Write(nowhere), &list);
    assert_eq!(bench.settle(), [(1, Status::RemoteAccess)]);
    assert_eq!(bench.world.state(bench.left), Some(State::Err));
    assert_eq!(bench.world.state(bench.right), Some(State::Err));
    // The queue of one slot is empty again.
    bench.post(2, Operation::Write(nowhere), &list);
    assert_eq!(bench.settle(), [(2, Status::WrFlushed)]);
}

/// Regression: a move to ERR removed an event that was already pending.
#[test]
fn going_to_err_by_ones_own_will_raises_no_event_and_takes_none_away() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.bring(bench.left, State::Sqd);
    bench.world.bring(bench.left, State::Err);
    bench.world.bring(bench.left, State::Err);
    assert_eq!(events(&mut bench, 0), [AsyncEvent::SqDrained(bench.left.number)]);
}

#[test]
fn the_events_of_a_refused_request_name_the_queue_pairs() {
    let mut bench = Bench::new(&Settings::default());
    let list = [bench.here.sge(0, 64)];
    bench.post(1, Operation::Write(remora_nic::Remote { addr: 0, rkey: remora_memory::Key::new(77) }), &list);
    assert_eq!(bench.settle(), [(1, Status::RemoteAccess)]);
    assert!(events(&mut bench, 0).contains(&AsyncEvent::QpFatal(bench.left.number)));
    assert_eq!(events(&mut bench, 1), [AsyncEvent::QpAccess(bench.right.number)]);
}

#[test]
fn the_first_packet_in_rtr_is_announced_once() {
    let mut bench = Bench::new(&Settings::default());
    let settings = Settings::default();
    bench.world.bring(bench.right, State::Reset);
    let way = bench.world.way_to_rts(bench.right, bench.left, [0, 0], &settings);
    bench.world.modify(bench.right, &way[0]).unwrap();
    bench.world.modify(bench.right, &way[1]).unwrap();
    bench.write(1, 64);
    bench.write(2, 64);
    assert_eq!(bench.settle(), good([1, 2]), "a responder needs no RTS");
    assert_eq!(events(&mut bench, 1), [AsyncEvent::CommunicationEstablished(bench.right.number)]);
}

#[test]
fn a_queue_pair_refuses_what_its_state_does_not_allow_and_stays_as_it_was() {
    let mut bench = Bench::new(&Settings::default());
    let settings = Settings::default();
    bench.world.bring(bench.left, State::Reset);
    let [init, rtr, rts] = bench.world.way_to_rts(bench.left, bench.right, [0, 0], &settings);
    let left = bench.left;
    let world = &mut bench.world;
    let refused = |world: &mut remora_fabric::World, change: &Modify| world.modify(left, change).unwrap_err();
    assert_eq!(
        refused(world, &rts),
        ModifyFault::Transition(ModifyError::NoTransition(State::Reset, State::Rts))
    );
    assert!(matches!(
        refused(world, &Modify { access: None, ..init }),
        ModifyFault::Transition(ModifyError::Missing(_))
    ));
    assert_eq!(refused(world, &Modify { port: Some(2), ..init }), ModifyFault::Value(Attributes::PORT));
    world.modify(left, &init).unwrap();
    for (change, name) in [
        (Modify { path_mtu: Some(1000), ..rtr }, Attributes::PATH_MTU),
        (Modify { min_rnr_timer: Some(32), ..rtr }, Attributes::MIN_RNR_TIMER),
        (Modify { max_dest_rd_atomic: Some(129), ..rtr }, Attributes::MAX_DEST_RD_ATOMIC),
    ] {
        assert_eq!(refused(world, &change), ModifyFault::Value(name));
    }
    assert!(matches!(
        refused(world, &Modify { dest_qp: None, ..rtr }),
        ModifyFault::Transition(ModifyError::Missing(_))
    ));
    assert_eq!(world.state(left), Some(State::Init));
    world.modify(left, &rtr).unwrap();
    assert_eq!(
        refused(world, &Modify { retry_cnt: Some(8), ..rts }),
        ModifyFault::Value(Attributes::RETRY_CNT)
    );
    world.modify(left, &rts).unwrap();
    let mut ghost: QueuePair = left;
    ghost.number = remora_wire::Qpn::new(0xab_cdef);
    assert_eq!(world.modify(ghost, &only_state(State::Err)), Err(ModifyFault::NoQueuePair));
}

#[test]
fn a_queue_pair_connects_again_after_an_error_and_forgets_what_was() {
    let mut bench = Bench::new(&Settings::default());
    for round in 0..5u32 {
        bench.world.cut(0, 1, true);
        bench.write(1, 64);
        assert_eq!(bench.settle(), [(1, Status::RetryExceeded)]);
        bench.world.cut(0, 1, false);
        bench.receive(9, 100);
        for qp in [bench.left, bench.right] {
            bench.world.bring(qp, State::Reset);
        }
        bench.world.connect(
            bench.left,
            bench.right,
            &Settings { psn: [round * 77, 5], ..Settings::default() },
        );
        bench.receive(10, 100);
        bench.send(2, 64);
        assert_eq!(bench.settle(), good([2]));
        assert_eq!(bench.right_ends(), good([10]), "the receive of before RESET is forgotten");
    }
}

#[test]
fn a_full_queue_refuses_and_takes_again_when_slots_are_free() {
    let mut bench = Bench::new(&Settings { send_slots: 8, ..Settings::default() });
    let remote = bench.there.remote(0);
    let list = [bench.here.sge(0, 64)];
    for id in 0..8 {
        bench.put(id, Operation::Write(remote), &list, SIGNALED).unwrap();
    }
    assert_eq!(bench.put(8, Operation::Write(remote), &list, SIGNALED), Err(PostError::QueueFull));
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good(0..8));
    bench.put(8, Operation::Write(remote), &list, SIGNALED).unwrap();
}

#[test]
fn a_peer_killed_in_mid_transfer_ends_the_work_within_the_retries() {
    let mut bench = Bench::new(&Settings { mtu: 256, retry_cnt: 3, ..Settings::default() });
    bench.write(1, 1 << 20);
    bench.read(2, 4096);
    bench.world.run_for(30_000);
    bench.world.ask::<()>(1, Command::DestroyQp(bench.right.number)).unwrap();
    assert_eq!(bench.settle(), [(1, Status::RetryExceeded), (2, Status::WrFlushed)]);
    assert!(bench.world.counters(1).unknown_qp > 0);
    bench.world.ask::<()>(0, Command::DestroyQp(bench.left.number)).unwrap();
    assert_eq!(bench.world.state(bench.left), None);
}

/// Regression: deadlines of the pacer were in the past.
#[test]
fn a_paced_queue_pair_keeps_its_rate_and_lets_time_pass() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.bring(bench.left, State::Reset);
    bench.world.bring(bench.right, State::Reset);
    bench.world.connect(bench.left, bench.right, &Settings { timeout: 12, ..Settings::default() });
    let rate = Modify { rate_limit: Some(8_000_000_000), ..only_state(State::Rts) };
    // At 1 GB/s a million bytes take a millisecond.
    bench.world.modify(bench.left, &rate).unwrap();
    let start = bench.world.now();
    bench.write(1, 1_000_000);
    assert_eq!(bench.settle(), good([1]));
    let took = bench.frames(0).last().unwrap().at.since(start);
    assert!((1_000_000..1_120_000).contains(&took), "{took} ns");
}

#[test]
fn faults_do_not_keep_an_error_from_both_ends() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.set_rules(&Rules::of(vec![Rule::chance(Action::Drop, 0.3)]), 4);
    let list = [bench.here.sge(0, 64)];
    bench.post(1, Operation::Write(remora_nic::Remote { addr: 0, rkey: remora_memory::Key::new(77) }), &list);
    let ends = bench.settle();
    assert!(ends == [(1, Status::RemoteAccess)] || ends == [(1, Status::RetryExceeded)], "{ends:?}");
    assert_eq!(bench.world.state(bench.right), Some(State::Err));
}
