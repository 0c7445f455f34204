//! WAIT and ENABLE.

use crate::bench::{Bench, SIGNALED, SILENT};
use remora_fabric::Settings;
use remora_nic::chain::LoopbackInit;
use remora_nic::{
    Command, CqFlags, Fetching, Flags, NicError, Operation, Payload, ReceiveRequest, Ring, Status,
    WorkRequest,
};
use remora_transport::state::State;

#[test]
fn a_wait_holds_its_queue_until_the_count_is_there() {
    let mut bench = Bench::new();
    let first = bench.chain(Fetching::Posted);
    let second = bench.chain(Fetching::Posted);
    let list = [bench.data.sge(0, 8)];
    bench.set_word(0, 7);
    bench.put(&second, first.wait(2), &[], SILENT);
    let target = bench.data.remote(8);
    bench.put(&second, Operation::Write(target), &list, SIGNALED);
    bench.ring(&second);
    assert_eq!((bench.settle(&second).len(), bench.word(8)), (0, 0));
    bench.put(&first, Operation::Nop, &[], SIGNALED);
    bench.put(&first, Operation::Nop, &[], SILENT);
    bench.ring(&first);
    assert_eq!((bench.settle(&second).len(), bench.word(8)), (0, 0), "what is not signaled does not count");
    bench.put(&first, Operation::Nop, &[], SIGNALED);
    bench.ring(&first);
    assert_eq!((bench.settle(&second).len(), bench.word(8)), (1, 7));
}

#[test]
fn many_wait_for_one_count_and_each_for_its_own() {
    let mut bench = Bench::new();
    let first = bench.chain(Fetching::Posted);
    let others: Vec<_> = (0..8).map(|_| bench.chain(Fetching::Posted)).collect();
    for (index, other) in others.iter().enumerate() {
        bench.put(other, first.wait(1 + index as u64 / 2), &[], SIGNALED);
        bench.ring(other);
    }
    for step in 0..4 {
        bench.put(&first, Operation::Nop, &[], SIGNALED);
        bench.ring(&first);
        bench.settle(&first);
        let over = others.iter().filter(|other| bench.count(other) == 1).count();
        assert_eq!(over, 2 * (step + 1));
    }
}

/// As on hardware, where a WAIT compares with the number of entries written to the completion queue.
#[test]
fn a_wait_counts_what_ended_in_error_and_what_was_flushed() {
    let mut bench = Bench::new();
    let first = bench.chain(Fetching::Posted);
    let second = bench.chain(Fetching::Posted);
    for count in [1, 2, 3] {
        bench.put(&second, first.wait(count), &[], SIGNALED);
    }
    bench.ring(&second);
    let beyond = bench.data.remote(1 << 16);
    bench.put(&first, Operation::Write(beyond), &[bench.data.sge(0, 8)], SILENT);
    bench.put(&first, Operation::Nop, &[], SILENT);
    bench.ring(&first);
    let statuses: Vec<_> = bench.settle(&first).iter().map(|end| end.status).collect();
    assert_eq!(statuses, [Status::RemoteAccess, Status::WrFlushed]);
    assert_eq!(bench.count(&second), 2, "one for each, and the third still waits");
}

/// Regression: receives of a recycled queue were flushed twice each when their connection ended, so a chain
/// that waited for them ran twice as often.
#[test]
fn receives_that_go_round_are_flushed_once_each() {
    let mut bench = Bench::new();
    let settings = Settings { receives: 4, receive_max_sge: 1, ..Settings::default() };
    let cq = bench.world.create_counted_cq(0, 16);
    let qp = bench.world.create_loopback(cq, cq, &settings).unwrap();
    for id in 0..4 {
        let sges = [bench.data.sge(8 * id as usize, 8)];
        bench.world.post_receive(qp, &ReceiveRequest { id, sges: &sges }).unwrap();
    }
    bench.world.receive_ring(qp).unwrap().recycle();
    bench.world.bring(qp, State::Err);
    let flushed: Vec<_> = bench.world.drain(cq).iter().map(|end| (end.id, end.status)).collect();
    assert_eq!(flushed, [0, 1, 2, 3].map(|id| (id, Status::WrFlushed)));
}

#[test]
fn an_enable_lets_a_queue_of_the_same_domain_be_fetched_so_far() {
    let mut bench = Bench::new();
    let main = bench.chain(Fetching::Posted);
    let managed = bench.chain(Fetching::Enabled);
    for _ in 0..8 {
        bench.put(&managed, Operation::Nop, &[], SIGNALED);
    }
    bench.ring(&managed);
    assert_eq!(bench.settle(&managed).len(), 0);
    for count in [3, 2, 100] {
        bench.put(&main, managed.enable(count), &[], SIGNALED);
    }
    let mut ends = Vec::new();
    for _ in 0..3 {
        bench.ring(&main);
        ends.push(bench.settle(&managed).len());
    }
    assert_eq!(ends.iter().sum::<usize>(), 8, "as far as it was posted");
    assert_eq!(bench.count(&main), 3);
}

#[test]
fn what_has_been_enabled_stays_so() {
    let mut bench = Bench::new();
    let main = bench.chain(Fetching::Posted);
    let managed = bench.chain(Fetching::Enabled);
    for count in [3, 1] {
        bench.put(&main, managed.enable(count), &[], SIGNALED);
    }
    bench.ring(&main);
    bench.settle(&main);
    for _ in 0..4 {
        bench.put(&managed, Operation::Nop, &[], SIGNALED);
    }
    bench.ring(&managed);
    assert_eq!(bench.settle(&managed).len(), 3);
}

#[test]
fn a_fence_holds_an_enable_until_what_is_read_over_a_connection_is_there() {
    let mut bench = Bench::new();
    let managed = bench.chain(Fetching::Enabled);
    let target = bench.data.remote(16);
    bench.put(&managed, Operation::Write(target), &[bench.data.sge(8, 8)], SIGNALED);
    bench.ring(&managed);
    let [(reader, _), _] = bench.world.pair(0, 1, &Settings::default());
    let there = bench.world.register(1, 64, remora_fabric::ALL);
    there.store(0, &7_u64.to_le_bytes());
    let list = [bench.data.sge(8, 8)];
    let read = Operation::Read(there.remote(0));
    for (operation, list) in [(read, &list[..]), (managed.enable(1), &[])] {
        let flags = Flags { fence: true, ..SILENT };
        let request = WorkRequest { id: 0, operation, payload: Payload::Sges(list), flags };
        bench.world.post_quietly(reader, &request).unwrap();
    }
    bench.world.ring(reader);
    assert_eq!((bench.settle(&managed).len(), bench.word(16)), (1, 7));
}

#[test]
fn what_was_enabled_before_a_reset_is_not_enabled_behind_it() {
    let mut bench = Bench::new();
    let settings = Settings { fetching: Fetching::Enabled, ..Settings::default() };
    let [(left, cq), (right, _)] = bench.world.pair(0, 1, &settings);
    bench.world.ask::<()>(0, Command::Enable { qp: left.number, count: 5 }).unwrap();
    [left, right].into_iter().for_each(|qp| bench.world.bring(qp, State::Reset));
    bench.world.connect(left, right, &settings);
    let request =
        WorkRequest { id: 0, operation: Operation::Nop, payload: Payload::Sges(&[]), flags: SIGNALED };
    bench.world.post(left, &request).unwrap();
    assert!(bench.world.settle(1000));
    assert_eq!(bench.world.drain(cq), []);
}

#[test]
fn a_posted_queue_that_enables_itself_ends() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    bench.put(&chain, chain.enable(1), &[], SILENT);
    bench.ring(&chain);
    let statuses: Vec<_> = bench.settle(&chain).iter().map(|end| end.status).collect();
    assert_eq!(statuses, [Status::LocalQpOperation]);
}

#[test]
fn a_recycled_queue_can_be_posted_to_when_it_has_gone_round() {
    let mut bench = Bench::new();
    let main = bench.chain(Fetching::Posted);
    let ring = bench.chain_of(Fetching::Recycled, 4);
    bench.put(&ring, Operation::Nop, &[], SIGNALED);
    bench.ring(&ring);
    bench.put(&main, ring.enable(8), &[], SILENT);
    bench.ring(&main);
    assert_eq!(bench.settle(&ring).len(), 2, "in two rounds");
    bench.put(&ring, Operation::Nop, &[], SIGNALED);
    bench.put(&main, ring.enable(12), &[], SILENT);
    bench.ring(&main);
    assert_eq!(bench.settle(&ring).len(), 2, "both of the third");
}

#[test]
fn what_cannot_be_waited_for_or_enabled_ends_the_queue() {
    let refused = |operation: fn(&mut Bench) -> Operation| {
        let mut bench = Bench::new();
        let operation = operation(&mut bench);
        let chain = bench.chain(Fetching::Posted);
        bench.put_as(&chain, 5, operation, &[], SILENT);
        bench.put_as(&chain, 6, Operation::Nop, &[], SILENT);
        bench.ring(&chain);
        let ends = bench.settle(&chain);
        assert_eq!(bench.world.state(chain.qp), Some(State::Err));
        ends.iter().map(|wc| (wc.id, wc.status)).collect::<Vec<_>>()
    };
    let as_said = |status| vec![(5, status), (6, Status::WrFlushed)];
    let unknown = refused(|_| Operation::Wait { cq: 4000, count: 1 });
    assert_eq!(unknown, as_said(Status::LocalQpOperation));
    assert_eq!(refused(|_| Operation::Wait { cq: u32::MAX, count: 1 }), as_said(Status::LocalQpOperation));
    let gone = refused(|_| Operation::Enable { qp: remora_wire::Qpn::new(0x00ab_cdef), count: 1 });
    assert_eq!(gone, as_said(Status::LocalQpOperation));
    let free = refused(|bench| bench.chain(Fetching::Posted).enable(1));
    assert_eq!(free, as_said(Status::LocalQpOperation), "it needs nobody's leave");
    let foreign = refused(|bench| Operation::Enable { qp: stranger(bench).qp, count: 1 });
    assert_eq!(foreign, as_said(Status::LocalProtection), "another domain's");
    let foreign = refused(|bench| Operation::Wait { cq: stranger(bench).cq, count: 0 });
    assert_eq!(foreign, as_said(Status::LocalProtection), "nobody of its domain completes there");
}

/// A managed loopback queue pair in another protection domain, and its completion queue.
struct Stranger {
    qp: remora_wire::Qpn,
    cq: u32,
}

fn stranger(bench: &mut Bench) -> Stranger {
    let pd = bench.world.table(0).alloc_pd().unwrap();
    let ring = |world: &mut remora_fabric::World| world.hand(0, Ring::heap(4).unwrap());
    let flags = CqFlags::default();
    let completions = ring(&mut bench.world);
    let cq = bench.world.ask(0, Command::CreateCq { ring: completions, flags }).unwrap();
    let init = LoopbackInit {
        pd,
        send_ring: ring(&mut bench.world),
        receive_ring: ring(&mut bench.world),
        receive_max_sge: 1,
        send_cq: cq,
        receive_cq: cq,
        fetching: Fetching::Enabled,
    };
    Stranger { qp: bench.world.ask(0, Command::CreateLoopback(init)).unwrap(), cq }
}

#[test]
fn an_answer_on_a_connection_waits_and_is_enabled_like_any_other() {
    let mut bench = Bench::new();
    let main = bench.chain(Fetching::Posted);
    for irn in [None, Some(64)] {
        let settings = Settings { fetching: Fetching::Enabled, irn, ..Settings::default() };
        let [(answers, _), _] = bench.world.pair(0, 1, &settings);
        let there = bench.world.register(1, 64, remora_fabric::ALL);
        let before = bench.count(&main);
        let list = [bench.data.sge(0, 8)];
        let put = |bench: &mut Bench, operation, list: &[remora_nic::Sge]| {
            let request = WorkRequest { id: 0, operation, payload: Payload::Sges(list), flags: SILENT };
            bench.world.post_quietly(answers, &request).unwrap();
        };
        put(&mut bench, main.wait(before + 2), &[]);
        put(&mut bench, Operation::Write(there.remote(0)), &list);
        bench.world.ring(answers);
        bench.set_word(0, 0xfeed);
        bench.settle(&main);
        let enable = Operation::Enable { qp: answers.number, count: 2 };
        bench.put(&main, enable, &[], SIGNALED);
        bench.ring(&main);
        bench.settle(&main);
        assert_eq!(there.load(0, 8), [0; 8], "it waits");
        bench.put(&main, Operation::Nop, &[], SIGNALED);
        bench.ring(&main);
        bench.settle(&main);
        assert_eq!(there.load(0, 8), 0xfeed_u64.to_le_bytes());
    }
}

#[test]
fn a_queue_pair_that_goes_while_it_waits_leaves_the_line() {
    let mut bench = Bench::new();
    let first = bench.chain(Fetching::Posted);
    let waiting: Vec<_> = (0..3).map(|_| bench.chain(Fetching::Posted)).collect();
    for chain in &waiting {
        bench.put(chain, first.wait(1), &[], SIGNALED);
        bench.ring(chain);
    }
    bench.settle(&first);
    let gone = waiting[1].qp.number;
    bench.world.ask::<()>(0, Command::DestroyQp(gone)).unwrap();
    assert_eq!(bench.world.ask::<()>(0, Command::DestroyQp(gone)), Err(NicError::Unknown));
    bench.put(&first, Operation::Nop, &[], SIGNALED);
    bench.ring(&first);
    bench.settle(&first);
    let counts: Vec<_> = waiting.iter().map(|chain| bench.count(chain)).collect();
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn who_waits_for_a_completion_queue_that_goes_ends() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    let gone = bench.world.create_counted_cq(0, 4);
    bench.put_as(&chain, 9, Operation::Wait { cq: gone.number, count: 1 }, &[], SILENT);
    bench.ring(&chain);
    assert_eq!(bench.settle(&chain), []);
    bench.world.ask::<()>(0, Command::DestroyCq { cq: gone.number }).unwrap();
    let ends = bench.settle(&chain);
    assert_eq!(ends.iter().map(|wc| (wc.id, wc.status)).collect::<Vec<_>>(), [(9, Status::LocalQpOperation)]);
}
