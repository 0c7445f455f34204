//! Loopback queue pairs: every verb on the memory of their own protection domain, with the checks of a
//! connection.

use crate::bench::{Bench, Chain, SIGNALED, SILENT};
use remora_fabric::Settings;
use remora_memory::Access;
use remora_nic::{
    Calculation, Command, CompletionKind, Fetching, Flags, Modify, Operation, Payload, ReceiveRequest,
    Status, WorkRequest,
};
use remora_transport::state::State;

fn ends(completions: &[remora_nic::WorkCompletion]) -> Vec<(CompletionKind, Status)> {
    completions.iter().map(|wc| (wc.kind, wc.status)).collect()
}

#[test]
fn bytes_go_from_place_to_place() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    let pattern: Vec<u8> = (0..5000u32).map(|index| (index * 7) as u8).collect();
    bench.data.store(0, &pattern);
    let source = bench.data.remote(0);
    let destination = bench.data.remote(8192);
    bench.put(&chain, Operation::Write(destination), &[bench.data.sge(0, 5000)], SIGNALED);
    let pieces = [bench.data.sge(16384, 10), bench.data.sge(20000, 0), bench.data.sge(24000, 4990)];
    bench.put(&chain, Operation::Read(source), &pieces, SIGNALED);
    bench.ring(&chain);
    let kinds = [CompletionKind::Write, CompletionKind::Read].map(|kind| (kind, Status::Success));
    assert_eq!(ends(&bench.settle(&chain)), kinds);
    assert_eq!(bench.data.load(8192, 5000), pattern);
    assert_eq!(bench.data.load(16384, 10), pattern[..10]);
    assert_eq!(bench.data.load(24000, 4990), pattern[10..]);
    // From several elements, and inline.
    let pieces = [bench.data.sge(4000, 5), bench.data.sge(0, 5)];
    let target = bench.data.remote(30000);
    bench.put(&chain, Operation::Write(target), &pieces, SIGNALED);
    let operation = Operation::Write(bench.data.remote(30010));
    let payload = Payload::Inline(b"inline");
    let request = WorkRequest { id: 0, operation, payload, flags: SIGNALED };
    bench.world.post_quietly(chain.qp, &request).unwrap();
    bench.ring(&chain);
    assert_eq!(bench.settle(&chain).len(), 2);
    let expected = [&pattern[4000..4005], &pattern[..5], b"inline"].concat();
    assert_eq!(bench.data.load(30000, 16), expected);
}

#[test]
fn atomics_and_calculations_change_a_word_and_bring_the_old_one_back() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    let remote = bench.data.remote(8);
    let swap = Operation::CompareSwap { remote, compare: 5, swap: 9 };
    let lost = Operation::CompareSwap { remote, compare: 5, swap: 10 };
    let mut all = vec![(swap, 5, 9), (lost, 9, 9), (Operation::FetchAdd { remote, add: 3 }, 9, 12)];
    let mut word = 12;
    for calculation in Calculation::ALL {
        for operand in [0, 7, 100] {
            let result = calculation.result(word, operand);
            all.push((Operation::Calculate { calculation, remote, operand }, word, result));
            word = result;
        }
    }
    bench.set_word(8, 5);
    for (operation, old, new) in all {
        bench.put(&chain, operation, &[bench.data.sge(0, 8)], SIGNALED);
        bench.ring(&chain);
        let done = bench.settle(&chain);
        assert_eq!((done[0].status, done[0].byte_len), (Status::Success, 8), "{operation:?}");
        assert_eq!((bench.word(0), bench.word(8)), (old, new), "{operation:?}");
    }
}

#[test]
fn a_message_to_itself_takes_a_receive() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    bench.data.store(0, &[7; 3000]);
    // Sixteen elements, the number to which the arguments of a chain are scattered.
    let pieces: Vec<_> = (0..16).map(|number| bench.data.sge(4096 + 256 * number, 200)).collect();
    bench.world.post_receive(chain.qp, &ReceiveRequest { id: 3, sges: &pieces }).unwrap();
    bench.put(&chain, Operation::SendImm(77), &[bench.data.sge(0, 3000)], SILENT);
    bench.ring(&chain);
    let done = bench.settle(&chain);
    assert_eq!(ends(&done), [(CompletionKind::Receive, Status::Success)]);
    assert_eq!((done[0].id, done[0].byte_len, done[0].imm), (3, 3000, Some(77)));
    assert_eq!(bench.data.load(4096 + 256 * 14, 201), [vec![7; 200], vec![0]].concat());
    bench.world.post_receive(chain.qp, &ReceiveRequest { id: 4, sges: &[] }).unwrap();
    let target = bench.data.remote(9000);
    bench.put(&chain, Operation::WriteImm(target, 5), &[bench.data.sge(0, 8)], SIGNALED);
    bench.ring(&chain);
    let done = bench.settle(&chain);
    let kinds = [CompletionKind::ReceiveWriteImm, CompletionKind::Write].map(|kind| (kind, Status::Success));
    assert_eq!(ends(&done), kinds);
    assert_eq!((done[0].imm, bench.data.load(9000, 8)), (Some(5), vec![7; 8]));
}

/// A loopback queue pair refuses what a connection refuses, with the same status.
#[test]
fn rights_are_those_of_a_connection() {
    let mut bench = Bench::new();
    let mute = bench.world.register(0, 64, Access::NONE);
    let fine = bench.data.remote(0);
    let list = [bench.data.sge(0, 8)];
    let beyond = bench.data.remote((1 << 16) - 4);
    let odd = remora_nic::Remote { addr: fine.addr + 4, ..fine };
    let add = |remote| Operation::FetchAdd { remote, add: 1 };
    let max = |remote| Operation::Calculate { calculation: Calculation::Max, remote, operand: 1 };
    let short = [bench.data.sge(0, 8), bench.data.sge((1 << 16) - 4, 8)];
    let cases: [(Operation, &[remora_nic::Sge], Status); 12] = [
        (Operation::Write(mute.remote(0)), &list, Status::RemoteAccess),
        (Operation::Read(mute.remote(0)), &list, Status::RemoteAccess),
        (add(mute.remote(0)), &list, Status::RemoteAccess),
        (max(mute.remote(0)), &list, Status::RemoteAccess),
        (Operation::Write(beyond), &list, Status::RemoteAccess),
        (add(odd), &list, Status::RemoteInvalidRequest),
        (max(odd), &list, Status::RemoteInvalidRequest),
        (Operation::Read(fine), &[mute.sge(0, 8)], Status::LocalProtection),
        (max(fine), &[mute.sge(0, 8)], Status::LocalProtection),
        (Operation::Write(fine), &short, Status::LocalProtection),
        (Operation::Send, &list, Status::RnrRetryExceeded),
        (Operation::WriteImm(fine, 1), &list, Status::RnrRetryExceeded),
    ];
    for (operation, list, status) in cases {
        let chain = bench.chain(Fetching::Posted);
        bench.put(&chain, operation, list, SILENT);
        bench.ring(&chain);
        let done = bench.settle(&chain);
        assert_eq!(done.iter().map(|wc| wc.status).collect::<Vec<_>>(), [status], "{operation:?}");
        assert_eq!(bench.world.state(chain.qp), Some(remora_transport::state::State::Err));
    }
    assert_eq!(bench.word(0), 1, "only the calculation whose answer had no place was done");
}

#[test]
fn an_atomic_needs_a_right_of_its_own_and_brings_one_word_back() {
    let mut bench = Bench::new();
    let written = bench.world.register(0, 64, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let max = |remote| Operation::Calculate { calculation: Calculation::Max, remote, operand: 1 };
    let cases = [
        (Operation::FetchAdd { remote: written.remote(0), add: 1 }, 8, Status::RemoteAccess),
        (max(written.remote(0)), 8, Status::RemoteAccess),
        (max(bench.data.remote(8)), 16, Status::LocalQpOperation),
    ];
    for (operation, len, status) in cases {
        let chain = bench.chain(Fetching::Posted);
        let slot = bench.put(&chain, operation, &[bench.data.sge(0, 8)], SILENT);
        chain.code.store(64 + 64 * slot as usize + 16, &[len]);
        bench.ring(&chain);
        let done: Vec<_> = bench.settle(&chain).iter().map(|wc| wc.status).collect();
        assert_eq!(done, [status], "{operation:?}");
    }
    assert_eq!((written.load(0, 8), bench.word(8)), (vec![0; 8], 0));
}

#[test]
fn of_a_list_with_a_wrong_element_nothing_is_filled() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    let mute = bench.world.register(0, 64, Access::NONE);
    bench.set_word(0, 7);
    let source = bench.data.remote(0);
    let list = [bench.data.sge(4096, 4), mute.sge(0, 4)];
    bench.put(&chain, Operation::Read(source), &list, SILENT);
    bench.ring(&chain);
    let statuses: Vec<_> = bench.settle(&chain).iter().map(|end| end.status).collect();
    assert_eq!((statuses, bench.word(4096)), (vec![Status::LocalProtection], 0));
}

#[test]
fn what_moves_much_gives_others_their_turns_sooner() {
    let mut bench = Bench::new();
    let cq = bench.world.create_counted_cq(0, 64);
    let queues = [0; 2].map(|_| bench.world.create_loopback(cq, cq, &Settings::default()).unwrap());
    let half = [bench.data.sge(0, 1 << 15)];
    let target = bench.data.remote(1 << 15);
    for _ in 0..10 {
        let request = WorkRequest {
            id: 0,
            operation: Operation::Write(target),
            payload: Payload::Sges(&half),
            flags: SIGNALED,
        };
        bench.world.post_quietly(queues[0], &request).unwrap();
    }
    let request =
        WorkRequest { id: 1, operation: Operation::Nop, payload: Payload::Sges(&[]), flags: SIGNALED };
    bench.world.post_quietly(queues[1], &request).unwrap();
    queues.iter().for_each(|queue| bench.world.ring(*queue));
    assert!(bench.world.settle(1000));
    let ids: Vec<_> = bench.world.drain(cq).iter().map(|end| end.id).collect();
    assert_eq!(ids.iter().position(|id| *id == 1), Some(2), "behind 64 KiB: {ids:?}");
    assert_eq!(ids.len(), 11);
}

#[test]
fn a_message_too_long_for_its_receive_ends_both() {
    let mut bench = Bench::new();
    let chain = bench.chain(Fetching::Posted);
    let small = [bench.data.sge(4096, 4)];
    bench.world.post_receive(chain.qp, &ReceiveRequest { id: 1, sges: &small }).unwrap();
    bench.put(&chain, Operation::Send, &[bench.data.sge(0, 8)], Flags { solicited: true, ..SILENT });
    bench.ring(&chain);
    let statuses: Vec<_> = bench.settle(&chain).iter().map(|wc| wc.status).collect();
    assert_eq!(statuses, [Status::LocalLength, Status::RemoteInvalidRequest]);
}

/// Creates an endless chain of NOPs. [`executed`] counts the NOPs that it executes in a time.
fn endless(bench: &mut Bench) -> Chain {
    let wild = bench.chain_of(Fetching::Recycled, 16);
    (0..16).for_each(|_| {
        bench.put(&wild, Operation::Nop, &[], SILENT);
    });
    let number = wild.qp.number;
    let limit = Modify { rate_limit: Some(512_000_000), ..Modify::default() };
    bench.world.modify(wild.qp, &limit).unwrap();
    bench.ring(&wild);
    bench.world.ask::<()>(0, Command::Enable { qp: number, count: u64::MAX }).unwrap();
    wild
}

fn executed(bench: &mut Bench, ns: u64) -> u64 {
    let before = bench.world.counters(0).wqes_executed;
    bench.world.run_for(ns);
    bench.world.counters(0).wqes_executed - before
}

#[test]
fn a_chain_runs_at_the_rate_that_its_queue_is_limited_to_until_it_is_ended() {
    let mut bench = Bench::new();
    let wild = endless(&mut bench);
    // 64 bytes each at 512 Mb/s: a million per second, in turns of 64.
    let first = executed(&mut bench, 10_000_000);
    assert!((9_800..10_200).contains(&first), "{first}");
    let faster = Modify { rate_limit: Some(2_048_000_000), ..Modify::default() };
    bench.world.modify(wild.qp, &faster).unwrap();
    let second = executed(&mut bench, 10_000_000);
    assert!((39_000..41_000).contains(&second), "{second}");
    // The rate also counts the moved bytes: 512 bytes plus 64 of the work request, at 2048 Mb/s.
    let copier = bench.chain(Fetching::Posted);
    bench.world.modify(copier.qp, &faster).unwrap();
    bench.world.bring(wild.qp, State::Err);
    let target = bench.data.remote(8192);
    (0..40).for_each(|_| {
        bench.put(&copier, Operation::Write(target), &[bench.data.sge(0, 512)], SILENT);
    });
    bench.put(&copier, Operation::Nop, &[], SIGNALED);
    bench.ring(&copier);
    let began = bench.world.now().0;
    assert_eq!(bench.settle(&copier).len(), 1);
    assert!(bench.world.now().0 - began < 200_000, "the one that ended took nothing more");
    assert_eq!(executed(&mut bench, 10_000_000), 0);
}

/// Creates an endless chain of signaled NOPs without any limit.
fn wild(bench: &mut Bench) -> Chain {
    let wild = bench.chain_of(Fetching::Recycled, 16);
    (0..16).for_each(|_| {
        bench.put(&wild, Operation::Nop, &[], SIGNALED);
    });
    bench.ring(&wild);
    let number = wild.qp.number;
    bench.world.ask::<()>(0, Command::Enable { qp: number, count: u64::MAX }).unwrap();
    wild
}

#[test]
fn a_chain_that_never_ends_leaves_others_their_turns_and_ends_when_it_is_destroyed() {
    let mut bench = Bench::new();
    let wild = wild(&mut bench);
    let number = wild.qp.number;
    let other = bench.chain(Fetching::Posted);
    bench.put(&other, Operation::Nop, &[], SIGNALED);
    bench.ring(&other);
    assert!(!bench.world.settle(200), "an endless chain never comes to rest");
    assert_eq!(bench.count(&other), 1);
    assert!(bench.count(&wild) > 64, "and goes on beyond what was posted");
    bench.world.ask::<()>(0, Command::DestroyQp(number)).unwrap();
    assert!(bench.world.settle(200));
}

#[test]
fn chains_that_never_end_leave_another_party_its_share() {
    let mut bench = Bench::new();
    let chains: Vec<Chain> = (0..16).map(|_| wild(&mut bench)).collect();
    for (index, chain) in chains.iter().enumerate() {
        let party = if index < 15 { 1 } else { 2 };
        bench.world.ask::<()>(0, Command::SetTenant { qp: chain.qp.number, tenant: party }).unwrap();
    }
    assert!(!bench.world.settle(200));
    let counts: Vec<u64> = chains.iter().map(|chain| bench.count(chain)).collect();
    let alone = counts[15];
    let others = counts[..15].iter().sum::<u64>();
    assert!(alone > 10_000 && alone.abs_diff(others) * 20 < others, "{counts:?}");
    // Its share is what the other tenants do not use.
    for chain in &chains[..15] {
        bench.world.ask::<()>(0, Command::DestroyQp(chain.qp.number)).unwrap();
    }
    bench.world.settle(200);
    assert!(bench.count(&chains[15]) > alone + others);
}
