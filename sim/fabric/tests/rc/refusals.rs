//! Refusals by the peer or by the own NIC: the status at the requester, the NAK, and unchanged memory.

use crate::bench::{Bench, SIGNALED, good};
use remora_fabric::{ALL, Settings, forge};
use remora_fault::{Action, Rule, Rules};
use remora_memory::{Access, Key};
use remora_nic::{Operation, ReceiveRequest, Remote, Sge, Status};
use remora_transport::state::State;
use remora_wire::aeth::Kind;
use remora_wire::{NakCode, Opcode};

/// Posts a request that must end with this status on both sides. Returns the NAK that was sent.
fn refused(bench: &mut Bench, operation: Operation, list: &[Sge], status: Status) -> Option<NakCode> {
    bench.world.sent();
    bench.post(1, operation, list);
    assert_eq!(bench.settle(), [(1, status)], "{operation:?}");
    assert_eq!(bench.world.state(bench.left), Some(State::Err));
    bench.frames(1).iter().find_map(|sent| {
        match forge::transport(bench.world.start(), &sent.bytes)?.ext.aeth?.syndrome.kind() {
            Kind::Nak(code) => Some(code),
            _ => None,
        }
    })
}

/// Returns WRITE, READ and both atomics at a remote address.
fn one_sided(remote: Remote) -> [Operation; 4] {
    [
        Operation::Write(remote),
        Operation::Read(remote),
        Operation::CompareSwap { remote, compare: 0, swap: 1 },
        Operation::FetchAdd { remote, add: 1 },
    ]
}

#[test]
fn wrong_keys_ranges_and_rights_are_remote_access_errors_and_nothing_changes() {
    let len = 4u64 << 20;
    let cases = |bench: &mut Bench| {
        let key = bench.there.key;
        let start = bench.there.address;
        let nothing = bench.world.register(1, 4096, Access::LOCAL_WRITE);
        let elsewhere = bench.world.table(1).alloc_pd().unwrap();
        let other = bench
            .world
            .table(1)
            .register(elsewhere, &[remora_memory::Range::at(&nothing.bytes, 0)], ALL)
            .unwrap();
        [
            ("key of nothing", Remote { addr: start, rkey: Key::new(0x1234_5678) }),
            ("key 0", Remote { addr: start, rkey: Key::new(0) }),
            ("no right", nothing.remote(0)),
            ("other domain", Remote { addr: 0, rkey: other }),
            ("before the start", Remote { addr: start - 8, rkey: key }),
            ("over the end", Remote { addr: start + len, rkey: key }),
            ("around the end of addresses", Remote { addr: u64::MAX - 7, rkey: key }),
        ]
    };
    for case in 0..7 {
        for verb in 0..4 {
            let mut bench = Bench::new(&Settings::default());
            let (name, remote) = cases(&mut bench)[case];
            let list = [bench.here.sge(0, 8)];
            let nak = refused(&mut bench, one_sided(remote)[verb], &list, Status::RemoteAccess);
            assert_eq!(nak, Some(NakCode::REMOTE_ACCESS_ERROR), "{name}");
            assert_eq!(bench.there.load(0, len as usize), vec![0; len as usize], "{name}");
            assert_eq!(bench.world.state(bench.right), Some(State::Err), "{name}");
            let left = bench.world.counters(0);
            let right = bench.world.counters(1);
            assert_eq!((left.req_remote_access_errors, right.resp_remote_access_errors), (1, 1));
        }
    }
}

#[test]
fn a_long_write_whose_end_lies_outside_touches_nothing() {
    let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
    let list = [bench.here.sge(0, 2000)];
    let remote = bench.there.remote((4 << 20) - 1999);
    refused(&mut bench, Operation::Write(remote), &list, Status::RemoteAccess);
    assert_eq!(bench.there.load((4 << 20) - 1999, 1999), vec![0; 1999]);
}

#[test]
fn what_the_queue_pair_does_not_allow_is_an_invalid_request() {
    let cases = [
        (Access::REMOTE_READ | Access::REMOTE_ATOMIC, 0),
        (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC, 1),
        (Access::REMOTE_WRITE | Access::REMOTE_READ, 3),
    ];
    for (access, verb) in cases {
        let mut bench = Bench::new(&Settings { access, ..Settings::default() });
        let remote = bench.there.remote(0);
        let list = [bench.here.sge(0, 8)];
        let nak = refused(&mut bench, one_sided(remote)[verb], &list, Status::RemoteInvalidRequest);
        assert_eq!(nak, Some(NakCode::INVALID_REQUEST), "{access:?}");
    }
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    for off in 1..8 {
        for verb in [2, 3] {
            let mut bench = Bench::new(&Settings::default());
            let remote = bench.there.remote(off);
            let list = [bench.here.sge(0, 8)];
            let nak = refused(&mut bench, one_sided(remote)[verb], &list, Status::RemoteInvalidRequest);
            assert_eq!(nak, Some(NakCode::INVALID_REQUEST));
            assert_eq!(bench.there.load(0, 16), vec![0; 16]);
        }
    }
}

#[test]
fn a_message_longer_than_its_receive_is_an_error_on_both_sides() {
    for (len, capacity) in [(1, 0), (100, 99), (5000, 4999), (5000, 1)] {
        let mut bench = Bench::new(&Settings::default());
        let list = [bench.here.sge(0, len)];
        let receive = [bench.there.sge(0, capacity)];
        bench.world.post_receive(bench.right, &ReceiveRequest { id: 5, sges: &receive }).unwrap();
        bench.world.post_receive(bench.right, &ReceiveRequest { id: 6, sges: &receive }).unwrap();
        let nak = refused(&mut bench, Operation::Send, &list, Status::RemoteInvalidRequest);
        assert_eq!(nak, Some(NakCode::INVALID_REQUEST));
        assert_eq!(bench.right_ends(), [(5, Status::LocalLength), (6, Status::WrFlushed)]);
        assert_eq!(bench.there.load(capacity, 5000), vec![0; 5000], "nothing beyond its list");
    }
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_is_a_remote_operation_error() {
    let mut bench = Bench::new(&Settings::default());
    let sealed = bench.world.register(1, 4096, Access::NONE);
    let cases = [
        sealed.sge(0, 100),
        Sge { lkey: Key::new(99), ..bench.there.sge(0, 100) },
        bench.there.sge((4 << 20) - 10, 100),
    ];
    for receive in cases {
        let mut bench = Bench::new(&Settings::default());
        let other = bench.world.register(1, 4096, Access::NONE);
        assert_eq!(other.key, sealed.key, "one seed, one sequence of keys");
        let list = [bench.here.sge(0, 64)];
        bench.world.post_receive(bench.right, &ReceiveRequest { id: 5, sges: &[receive] }).unwrap();
        let nak = refused(&mut bench, Operation::Send, &list, Status::RemoteOperation);
        assert_eq!(nak, Some(NakCode::REMOTE_OPERATIONAL_ERROR));
        assert_eq!(bench.right_ends(), [(5, Status::LocalProtection)]);
    }
}

#[test]
fn wrong_local_keys_ranges_and_rights_are_local_protection_errors() {
    let bad = |bench: &mut Bench| {
        let sealed = bench.world.register(0, 4096, Access::NONE);
        let right = bench.here.sge(0, 64);
        [
            Sge { lkey: Key::new(99), ..right },
            Sge { lkey: Key::new(0), ..right },
            Sge { addr: right.addr - 1, ..right },
            bench.here.sge((4 << 20) - 63, 64),
            Sge { addr: u64::MAX - 7, ..right },
            sealed.sge(0, 64),
        ]
    };
    for case in 0..6 {
        for write in [true, false] {
            let mut bench = Bench::new(&Settings::default());
            let list = [bad(&mut bench)[case]];
            let remote = bench.there.remote(0);
            if case == 5 && write {
                // The source of a WRITE is only read, which needs no access right.
                bench.post(1, Operation::Write(remote), &list);
                assert_eq!(bench.settle(), good([1]));
                continue;
            }
            let operation = if write { Operation::Write(remote) } else { Operation::Read(remote) };
            refused(&mut bench, operation, &list, Status::LocalProtection);
        }
    }
}

#[test]
fn a_message_longer_than_two_gib_is_a_local_length_error() {
    let mut bench = Bench::new(&Settings::default());
    let list = [Sge { len: u32::MAX, ..bench.here.sge(0, 0) }];
    let remote = bench.there.remote(0);
    refused(&mut bench, Operation::Write(remote), &list, Status::LocalLength);
}

#[test]
fn a_read_without_any_read_allowed_is_a_local_operation_error() {
    let mut bench = Bench::new(&Settings { max_rd_atomic: 0, ..Settings::default() });
    let remote = bench.there.remote(0);
    let list = [bench.here.sge(0, 8)];
    refused(&mut bench, Operation::Read(remote), &list, Status::LocalQpOperation);
}

#[test]
fn deregistration_under_load_ends_the_traffic_and_touches_nothing_more() {
    for write in [true, false] {
        let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
        let doomed = bench.world.register(1, 1 << 20, ALL);
        let list = [bench.here.sge(0, 1 << 20)];
        let remote = doomed.remote(0);
        bench.post(1, if write { Operation::Write(remote) } else { Operation::Read(remote) }, &list);
        bench.world.run_for(20_000);
        bench.world.deregister(&doomed);
        let there = doomed.load(0, 1 << 20);
        assert!(!write || there[0] != 0 || there[1] != 0, "it was under way");
        assert_eq!(bench.settle(), [(1, Status::RemoteAccess)]);
        assert_eq!(doomed.load(0, 1 << 20), there, "nothing was touched after it returned");
        assert_eq!(bench.world.counters(1).resp_remote_access_errors, 1);
    }
}

#[test]
fn deregistration_of_local_memory_ends_the_work_that_uses_it() {
    for write in [true, false] {
        let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
        let doomed = bench.world.register(0, 1 << 20, ALL);
        let remote = bench.there.remote(0);
        let list = [doomed.sge(0, 1 << 20)];
        bench.post(1, if write { Operation::Write(remote) } else { Operation::Read(remote) }, &list);
        bench.world.run_for(20_000);
        bench.world.deregister(&doomed);
        let before = doomed.load(0, 1 << 20);
        assert_eq!(bench.settle(), [(1, Status::LocalProtection)]);
        assert_eq!(doomed.load(0, 1 << 20), before);
    }
}

#[test]
fn work_before_a_refused_request_succeeds_and_work_behind_it_is_flushed() {
    let mut bench = Bench::new(&Settings::default());
    let list = [bench.here.sge(0, 64)];
    let good_place = bench.there.remote(0);
    let bad_place = Remote { addr: 0, rkey: Key::new(77) };
    for id in 0..9 {
        let remote = if id == 4 { bad_place } else { good_place };
        bench.put(id, Operation::Write(remote), &list, SIGNALED).unwrap();
    }
    bench.world.ring(bench.left);
    let mut expected = good(0..4);
    expected.push((4, Status::RemoteAccess));
    expected.extend((5..9).map(|id| (id, Status::WrFlushed)));
    assert_eq!(bench.settle(), expected);
}

#[test]
fn a_lost_fatal_nak_ends_in_retries_exhausted() {
    let mut bench = Bench::new(&Settings::default());
    let rule = Rule::new(Action::Drop).only(&[Opcode::RC_ACKNOWLEDGE]);
    bench.world.set_rules(&Rules::of(vec![rule]), 0);
    let list = [bench.here.sge(0, 64)];
    bench.post(1, Operation::Write(Remote { addr: 0, rkey: Key::new(77) }), &list);
    assert_eq!(bench.settle(), [(1, Status::RetryExceeded)]);
    assert_eq!(bench.world.state(bench.right), Some(State::Err));
}
