//! Work queues as bytes, fetching, completion queues, notification.

use crate::bench::{Bench, SIGNALED, SILENT, ends, good};
use remora_fabric::{ALL, Config, Settings};
use remora_nic::wqe::{MAX_SGE, SLOT, Wqe, WqeOpcode, flag};
use remora_nic::{
    AsyncEvent, Command, CqFlags, Fetching, Flags, NicError, Notify, Operation, Payload, PostError,
    ReceiveRequest, Status, Word, WorkRequest,
};
use remora_transport::state::State;

#[test]
fn a_change_before_the_fetch_is_seen_and_one_inside_a_fetched_batch_is_not() {
    let mut bench = Bench::new(&Settings { send_slots: 64, ..Settings::default() });
    let list = [bench.here.sge(0, 8)];
    let ring = bench.world.send_ring(bench.left);
    for id in 0..32 {
        bench.put(id, Operation::Write(bench.there.remote(64 * id as usize)), &list, SIGNALED).unwrap();
    }
    let turn_into_nop = |index: u64| {
        let mut slot = [0; SLOT];
        ring.load(index, &mut slot);
        slot[0] = WqeOpcode::NOP.0;
        ring.store(index, &slot);
    };
    // Nothing is fetched before the doorbell.
    turn_into_nop(3);
    bench.world.ring(bench.left);
    // A step fetches and executes the first batch of 16, and fetches no further ahead.
    bench.world.step();
    turn_into_nop(7);
    assert_eq!(bench.settle(), good(0..32));
    let written = |id: usize| bench.there.load(64 * id, 8) != vec![0; 8];
    assert!(!written(3), "changed before the fetch");
    assert!(written(7), "changed after the fetch");
}

#[test]
fn a_wqe_that_an_earlier_one_writes_is_seen_only_in_a_later_batch() {
    let mut bench = Bench::new(&Settings { send_slots: 64, ..Settings::default() });
    // The send queue itself is registered as a code region.
    let ring = bench.world.send_ring(bench.left);
    let pd = bench.world.pd(0);
    let table = bench.world.table(0).clone();
    let code = table.register(pd, &[remora_memory::Range::at(ring.bytes(), 1 << 60)], ALL).unwrap();
    bench.there.store(0, &[WqeOpcode::NOP.0, flag::SIGNALED]);
    let list = [bench.here.sge(0, 8)];
    // WQE 0 READs two bytes over the header of WQE 5 (in the same batch), and WQE 1 over that of WQE 20 (in
    // the next batch).
    for (id, target) in [(0u64, 5u64), (1, 20)] {
        let header = remora_nic::Sge { addr: (1 << 60) + ring.position(target) as u64, len: 2, lkey: code };
        bench.put(id, Operation::Read(bench.there.remote(0)), &[header], SIGNALED).unwrap();
    }
    for id in 2..32u64 {
        let flags = Flags { fence: id == 16, ..SIGNALED };
        bench.put(id, Operation::Write(bench.there.remote(64 * id as usize)), &list, flags).unwrap();
    }
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good(0..32));
    let written = |id: usize| bench.there.load(64 * id, 8) != vec![0; 8];
    assert!(written(5), "fetched before the READ came back");
    let mut slot = [0; SLOT];
    ring.load(5, &mut slot);
    assert_eq!(slot[0], WqeOpcode::NOP.0, "though the queue's memory says otherwise now");
}

#[test]
fn a_managed_queue_is_fetched_as_far_as_it_is_enabled() {
    let mut bench =
        Bench::new(&Settings { fetching: Fetching::Enabled, send_slots: 64, ..Settings::default() });
    let remote = bench.there.remote(0);
    let list = [bench.here.sge(0, 8)];
    for id in 0..40 {
        bench.put(id, Operation::Write(remote), &list, SIGNALED).unwrap();
    }
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), []);
    let enable =
        |bench: &mut Bench, count| bench.world.ask::<()>(0, Command::Enable { qp: bench.left.number, count });
    enable(&mut bench, 3).unwrap();
    assert_eq!(bench.settle(), good(0..3));
    enable(&mut bench, 2).unwrap();
    assert_eq!(bench.settle(), [], "the count never falls");
    // An ENABLE may exceed the number of posted work requests: later ones are executed once they are posted.
    enable(&mut bench, 41).unwrap();
    assert_eq!(bench.settle(), good(3..40));
    bench.write(40, 8);
    assert_eq!(bench.settle(), good([40]));
    bench.write(41, 8);
    assert_eq!(bench.settle(), []);
    bench.world.bring(bench.left, State::Err);
    assert_eq!(bench.settle(), [(41, Status::WrFlushed)], "enabled or not");
}

#[test]
fn only_a_managed_queue_is_enabled() {
    let mut bench = Bench::new(&Settings::default());
    let number = bench.left.number;
    assert_eq!(bench.world.ask::<()>(0, Command::Enable { qp: number, count: 1 }), Err(NicError::Unknown));
}

/// Regression: a LOCAL_INV after a NOP was executed only after another doorbell.
#[test]
fn local_inv_behind_a_nop_is_executed_without_another_doorbell() {
    let mut bench = Bench::new(&Settings::default());
    let doomed = bench.world.register(0, 64, ALL | remora_memory::Access::INVALIDATE);
    bench.put(1, Operation::Nop, &[], SILENT).unwrap();
    bench.put(2, Operation::LocalInv(doomed.key), &[], SIGNALED).unwrap();
    bench.put(3, Operation::Nop, &[], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good([2, 3]));
    bench.post(4, Operation::Send, &[doomed.sge(0, 8)]);
    assert_eq!(bench.settle(), [(4, Status::LocalProtection)]);
}

#[test]
fn local_inv_waits_for_the_work_before_it() {
    let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
    let doomed = bench.world.register(0, 8192, ALL | remora_memory::Access::INVALIDATE);
    bench.put(1, Operation::Write(bench.there.remote(0)), &[doomed.sge(0, 8192)], SIGNALED).unwrap();
    bench.put(2, Operation::LocalInv(doomed.key), &[], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good([1, 2]));
}

#[test]
fn an_overrun_is_an_event_and_ends_the_queue_pairs_that_lose_completions() {
    let mut world = remora_fabric::World::new(&Config::default());
    let settings = Settings::default();
    let small = world.create_cq(0, 4);
    let left = world.create_qp(small, small, &settings).unwrap();
    let cq = world.create_cq(1, 64);
    let right = world.create_qp(cq, cq, &settings).unwrap();
    world.connect(left, right, &settings);
    for id in 0..6 {
        let nop = WorkRequest { id, operation: Operation::Nop, payload: Payload::Sges(&[]), flags: SIGNALED };
        world.post(left, &nop).unwrap();
    }
    assert!(world.settle(1000));
    let events: Vec<_> = world.with_nic(0, |nic, _| std::iter::from_fn(|| nic.event()).collect());
    assert_eq!(events, [AsyncEvent::CqOverrun(small.number), AsyncEvent::QpFatal(left.number)]);
    assert_eq!(world.state(left), Some(State::Err));
    assert_eq!(ends(&world.drain(small)), good(0..4), "what was written before is still there");
    assert!(world.counters(0).cq_overrun >= 1);
}

#[test]
fn a_completion_queue_is_resized_under_load_without_losing_an_entry() {
    let mut bench = Bench::new(&Settings { send_slots: 64, ..Settings::default() });
    let mut next = 0u64;
    let mut seen = Vec::new();
    for round in 0..60u32 {
        for _ in 0..12 {
            let remote = bench.there.remote(0);
            let list = [bench.here.sge(0, 8)];
            if bench.put(next, Operation::Write(remote), &list, SIGNALED).is_ok() {
                next += 1;
            }
        }
        bench.world.ring(bench.left);
        bench.world.run_for(700);
        for _ in 0..5 {
            seen.extend(bench.world.poll(bench.left_cq).map(|wc| wc.id));
        }
        let slots = [512, 1024, 2048][round as usize % 3];
        bench.world.resize_cq(bench.left_cq, slots).unwrap();
    }
    seen.extend(bench.settle().iter().map(|(id, _)| *id));
    assert_eq!(seen, (0..next).collect::<Vec<_>>());
}

#[test]
fn a_completion_queue_is_not_made_smaller_than_what_waits_in_it() {
    let mut bench = Bench::new(&Settings::default());
    (0..10).for_each(|id| bench.write(id, 8));
    assert!(bench.world.settle(1000));
    assert_eq!(bench.world.resize_cq(bench.left_cq, 8), Err(NicError::TooSmall));
    bench.world.resize_cq(bench.left_cq, 16).unwrap();
    assert_eq!(bench.settle(), good(0..10));
    bench.world.resize_cq(bench.left_cq, 8).unwrap();
    (0..8).for_each(|id| bench.write(id, 8));
    assert_eq!(bench.settle(), good(0..8));
}

fn wakes(bench: &mut Bench) -> Vec<u32> {
    assert!(bench.world.settle(10_000));
    bench.world.with_nic(1, |nic, _| std::iter::from_fn(|| nic.wake()).collect())
}

fn notify(bench: &mut Bench, kind: Notify) {
    let number = bench.right_cq.number;
    bench.world.ask::<()>(1, Command::NotifyCq { cq: number, notify: kind }).unwrap();
}

#[test]
fn a_program_is_woken_once_by_any_completion_or_only_by_a_solicited_one() {
    let mut bench = Bench::new(&Settings::default());
    (0..10).for_each(|id| bench.receive(id, 100));
    let list = [bench.here.sge(0, 8)];
    let woken = [bench.right_cq.number];
    bench.send(1, 8);
    assert_eq!(wakes(&mut bench), [0; 0], "nobody asked");
    notify(&mut bench, Notify::Any);
    bench.send(2, 8);
    bench.send(3, 8);
    assert_eq!(wakes(&mut bench), woken, "once");
    notify(&mut bench, Notify::Solicited);
    bench.send(4, 8);
    assert_eq!(wakes(&mut bench), [0; 0]);
    bench.put(5, Operation::Send, &list, Flags { solicited: true, ..SIGNALED }).unwrap();
    bench.world.ring(bench.left);
    assert_eq!(wakes(&mut bench), woken);
    // An error counts like a solicited message. A request for any event is not weakened by a later one for
    // solicited events.
    notify(&mut bench, Notify::Solicited);
    bench.world.bring(bench.right, State::Err);
    assert_eq!(wakes(&mut bench), woken);
}

/// Regression: the wake-ups of a single completion queue could fill the queue of wake-ups.
#[test]
fn a_queue_whose_wake_up_waits_to_be_taken_takes_no_second_place() {
    let nic = remora_nic::Config { max_cqs: 4, ..Config::default().nic };
    let mut bench = Bench::over(&Config { nic, ..Config::default() }, &Settings::default());
    for id in 0..20 {
        notify(&mut bench, Notify::Any);
        bench.receive(id, 100);
        bench.send(id, 8);
        assert!(bench.world.settle(1000));
    }
    let woken = [bench.right_cq.number];
    assert_eq!(wakes(&mut bench), woken);
    notify(&mut bench, Notify::Any);
    bench.receive(30, 100);
    bench.send(30, 8);
    assert_eq!(wakes(&mut bench), woken, "and again after it was taken");
}

#[test]
fn what_does_not_fit_a_queue_is_refused_when_it_is_posted() {
    let mut bench =
        Bench::new(&Settings { max_sge: 16, max_inline: 100, receive_max_sge: 2, ..Settings::default() });
    let sge = bench.here.sge(0, 8);
    let remote = bench.there.remote(0);
    let mut refused = |operation, payload: Payload<'_>| {
        let request = WorkRequest { id: 0, operation, payload, flags: SIGNALED };
        bench.world.post(bench.left, &request)
    };
    let write = Operation::Write(remote);
    assert_eq!(refused(write, Payload::Sges(&[sge; 17])), Err(PostError::TooManySges));
    assert_eq!(refused(write, Payload::Sges(&[sge; 16])), Ok(()));
    assert_eq!(refused(write, Payload::Inline(&[0; 101])), Err(PostError::TooMuchInline));
    assert_eq!(refused(write, Payload::Inline(&[0; 100])), Ok(()));
    assert_eq!(refused(Operation::Read(remote), Payload::Inline(&[0; 8])), Err(PostError::BadPayload));
    let add = Operation::FetchAdd { remote, add: 1 };
    assert_eq!(refused(add, Payload::Sges(&[sge; 2])), Err(PostError::BadPayload));
    assert_eq!(refused(add, Payload::Sges(&[remora_nic::Sge { len: 4, ..sge }])), Err(PostError::BadPayload));
    let list = [bench.there.sge(0, 8); 3];
    assert_eq!(
        bench.world.post_receive(bench.right, &ReceiveRequest { id: 0, sges: &list }),
        Err(PostError::TooManySges)
    );
    assert_eq!(bench.settle(), good([0, 0]));
}

#[test]
fn a_wqe_that_makes_no_sense_is_a_local_operation_error_in_its_place() {
    let nonsense = [
        Wqe { header: 200 | 7 << 16, ..Wqe::default() },
        // More elements than any list, more inline bytes than the posted slots, an inline READ, an atomic of
        // 4 bytes.
        Wqe {
            header: u64::from(WqeOpcode::WRITE.0) | 7 << 16,
            compare: MAX_SGE as u64 + 1,
            ..Wqe::default()
        },
        Wqe {
            header: u64::from(WqeOpcode::SEND.0) | u64::from(flag::INLINE) << 8 | 7 << 16,
            len: 65,
            ..Wqe::default()
        },
        Wqe {
            header: u64::from(WqeOpcode::READ.0) | u64::from(flag::INLINE) << 8 | 7 << 16,
            ..Wqe::default()
        },
        Wqe { header: u64::from(WqeOpcode::FETCH_ADD.0) | 7 << 16, len: 4, ..Wqe::default() },
    ];
    for wqe in nonsense {
        let mut bench = Bench::new(&Settings::default());
        bench.write(1, 64);
        bench.world.post_slot(bench.left, &wqe.emit());
        bench.world.ring(bench.left);
        let mut expected = good([1]);
        expected.push((7, Status::LocalQpOperation));
        assert_eq!(bench.settle(), expected, "{wqe:?}");
        assert_eq!(bench.world.state(bench.left), Some(State::Err));
    }
}

/// Regression: a flushed WQE that states 2^60 elements kept the NIC busy forever.
#[test]
fn any_bytes_in_a_send_queue_end_in_completions_and_never_in_a_panic() {
    let mut random = remora_fault::Random::new(5);
    for _ in 0..1000 {
        let settings =
            Settings { send_slots: 8, timeout: 1, retry_cnt: 1, rnr_retry: 1, ..Settings::default() };
        let mut world = remora_fabric::World::new(&Config::default());
        let [(left, left_cq), _] = world.pair(0, 1, &settings);
        for _ in 0..random.between(1, 8) {
            let mut slot = [0; SLOT];
            random.fill(&mut slot);
            // Half of them have a valid opcode and mostly plausible lengths.
            if random.chance(0.5) {
                slot[0] %= 10;
                slot[18..24].fill(0);
                slot[41..48].fill(0);
            }
            world.post_slot(left, &slot);
        }
        world.ring(left);
        assert!(world.settle(1_000_000));
        let posted = world.posted(left);
        let consumed = world.send_ring(left).word(Word::Consumed);
        assert_eq!(consumed, posted, "everything ended");
        assert!(world.drain(left_cq).len() as u64 <= posted);
    }
}

#[test]
fn a_producer_index_that_lies_makes_nobody_read_beyond_the_ring() {
    const SLOTS: u64 = 16;
    let short = Settings { timeout: 1, retry_cnt: 1, rnr_retry: 1, ..Settings::default() };
    let mut bench = Bench::new(&Settings { send_slots: SLOTS as u32, ..short });
    let ring = bench.world.send_ring(bench.left);
    let slots = || {
        let mut slots = vec![[0; SLOT]; SLOTS as usize];
        (0..).zip(&mut slots).for_each(|(index, slot)| ring.load(index, slot));
        slots.concat()
    };
    let [before, here, there] = [slots(), bench.here.load(0, 4096), bench.there.load(0, 4096)];
    for doorbell in 0..3 {
        ring.set_word(Word::Produced, u64::MAX);
        bench.world.ring(bench.left);
        assert!(bench.world.settle(1_000_000), "it goes on without end");
        let consumed = ring.word(Word::Consumed);
        assert!(
            consumed > 0 && consumed <= SLOTS * (doorbell + 1),
            "{consumed} slots after {doorbell} others"
        );
        let ended = bench.world.drain(bench.left_cq).len() as u64;
        assert!(ended <= SLOTS, "{ended} completions of one doorbell");
    }
    assert!(slots() == before, "slots were written");
    assert!(bench.here.load(0, 4096) == here && bench.there.load(0, 4096) == there, "memory was written");
    assert_eq!(bench.world.counters(1).rx_write_requests, 0);
}

#[test]
fn a_receive_index_that_lies_is_flushed_once_round_the_ring_and_reset_survives_it() {
    for lie in [1 << 40, u64::MAX] {
        let mut bench = Bench::new(&Settings { receives: 8, ..Settings::default() });
        bench.world.receive_ring(bench.right).unwrap().set_word(Word::Produced, lie);
        bench.world.bring(bench.right, State::Err);
        let flushed = bench.world.drain(bench.right_cq);
        assert!(!flushed.is_empty() && flushed.len() <= 2 * 8 * 4, "{} were flushed", flushed.len());
        assert!(flushed.iter().all(|done| done.status == Status::WrFlushed));
        bench.world.send_ring(bench.right).set_word(Word::Produced, lie);
        bench.world.bring(bench.right, State::Reset);
        assert_eq!(bench.world.state(bench.right), Some(State::Reset));
    }
}

#[test]
fn limits_of_a_nic_are_refusals() {
    let nic = remora_nic::Config { max_qps: 3, max_cqs: 2, ..Config::default().nic };
    let mut world = remora_fabric::World::new(&Config { nic, ..Config::default() });
    let settings = Settings::default();
    let cq = world.create_cq(0, 16);
    let made: Vec<_> = (0..3).map(|_| world.create_qp(cq, cq, &settings).unwrap()).collect();
    assert_eq!(world.create_qp(cq, cq, &settings), Err(NicError::Full));
    world.create_cq(0, 16);
    let ring = world.hand(0, remora_nic::Ring::heap(16).unwrap());
    let command = Command::CreateCq { ring, flags: CqFlags::default() };
    assert_eq!(world.ask::<u32>(0, command), Err(NicError::Full));
    assert_eq!(world.ask::<()>(0, Command::DestroyCq { cq: cq.number }), Err(NicError::Busy));
    for qp in &made {
        world.ask::<()>(0, Command::DestroyQp(qp.number)).unwrap();
        assert_eq!(world.ask::<()>(0, Command::DestroyQp(qp.number)), Err(NicError::Unknown));
    }
    let again = world.create_qp(cq, cq, &settings).unwrap();
    assert!(made.iter().all(|qp| qp.number != again.number), "numbers are not reused at once");
    world.ask::<()>(0, Command::DestroyQp(again.number)).unwrap();
    assert_eq!(world.ask::<()>(0, Command::DestroyCq { cq: cq.number }), Ok(()));
    assert_eq!(world.ask::<()>(0, Command::DestroyCq { cq: cq.number }), Err(NicError::Unknown));
}
