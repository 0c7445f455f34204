//! Each verb with its opcodes and its effect, over a clean link.

use crate::bench::{Bench, SIGNALED, good};
use remora_fabric::{ALL, Settings};
use remora_memory::Access;
use remora_nic::{CompletionKind, Operation, Payload, ReceiveRequest, Status, WorkRequest};
use remora_wire::Opcode;

/// Regression: the ICRC of a frame was checked with the wrong UDP port if the receiver sends from another
/// port.
#[test]
fn each_path_mtu_cuts_messages_into_first_middle_last_and_only() {
    for mtu in [256usize, 512, 1024, 2048, 4096] {
        let mut bench = Bench::new(&Settings { mtu: mtu as u32, ..Settings::default() });
        use Opcode as O;
        let cases = [
            (mtu, vec![O::RC_RDMA_WRITE_ONLY]),
            (mtu + 1, vec![O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_WRITE_LAST]),
            (3 * mtu, vec![O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_WRITE_MIDDLE, O::RC_RDMA_WRITE_LAST]),
        ];
        for (len, expected) in cases {
            bench.write(1, len);
            assert_eq!(bench.settle(), good([1]));
            assert_eq!(bench.opcodes()[0], expected, "{len} bytes at {mtu}");
            assert_eq!(bench.there.load(0, len), bench.here.load(0, len));
        }
        bench.read(2, 2 * mtu + 5);
        assert_eq!(bench.settle(), good([2]));
        assert_eq!(bench.here.load(1 << 20, 2 * mtu + 5), bench.here.load(0, 2 * mtu + 5));
        let responses = bench.opcodes()[1].clone();
        let expected =
            [O::RC_RDMA_READ_RESPONSE_FIRST, O::RC_RDMA_READ_RESPONSE_MIDDLE, O::RC_RDMA_READ_RESPONSE_LAST];
        assert_eq!(responses, expected);
    }
}

#[test]
fn messages_bring_immediate_data_and_take_keys_away() {
    let mut bench = Bench::new(&Settings::default());
    let doomed = bench.world.register(1, 64, ALL | Access::INVALIDATE);
    let list = [bench.here.sge(0, 100)];
    let operations = [
        Operation::Send,
        Operation::SendImm(0xdead_beef),
        Operation::WriteImm(bench.there.remote(64), 7),
        Operation::SendInv(doomed.key),
    ];
    for (id, operation) in operations.into_iter().enumerate() {
        bench.receive(100 + id as u64, 4096);
        bench.post(id as u64, operation, &list);
    }
    assert_eq!(bench.settle(), good(0..4));
    let got = bench.world.drain(bench.right_cq);
    let facts: Vec<_> = got.iter().map(|wc| (wc.id, wc.kind, wc.byte_len, wc.imm, wc.invalidated)).collect();
    let receive = CompletionKind::Receive;
    let expected = [
        (100, receive, 100, None, None),
        (101, receive, 100, Some(0xdead_beef), None),
        (102, CompletionKind::ReceiveWriteImm, 100, Some(7), None),
        (103, receive, 100, None, Some(doomed.key)),
    ];
    assert_eq!(facts, expected);
    assert_eq!(bench.there.load(64, 100), bench.here.load(0, 100));
    bench.post(9, Operation::Write(doomed.remote(0)), &list[..1]);
    assert_eq!(bench.settle(), [(9, Status::RemoteAccess)], "the key is dead");
}

#[test]
fn atomics_bring_the_old_value_and_a_failed_compare_changes_nothing() {
    let mut bench = Bench::new(&Settings::default());
    bench.there.store(64, &41u64.to_ne_bytes());
    let remote = bench.there.remote(64);
    let old = |bench: &Bench| u64::from_ne_bytes(bench.here.load(8, 8).try_into().unwrap());
    let now = |bench: &Bench| u64::from_ne_bytes(bench.there.load(64, 8).try_into().unwrap());
    let list = [bench.here.sge(8, 8)];
    let steps = [
        (Operation::FetchAdd { remote, add: 1 }, 41, 42),
        (Operation::CompareSwap { remote, compare: 42, swap: 7 }, 42, 7),
        (Operation::CompareSwap { remote, compare: 42, swap: 9 }, 7, 7),
        (Operation::FetchAdd { remote, add: u64::MAX }, 7, 6),
    ];
    for (operation, before, after) in steps {
        bench.post(1, operation, &list);
        assert_eq!(bench.settle(), good([1]));
        assert_eq!((old(&bench), now(&bench)), (before, after), "{operation:?}");
    }
}

#[test]
fn no_bytes_at_all_go_through_every_verb() {
    let mut bench = Bench::new(&Settings::default());
    // Nothing is accessed, so no key is checked: these name nothing.
    let nowhere = remora_nic::Remote { addr: 0, rkey: remora_memory::Key::new(1) };
    let operations = [
        Operation::Send,
        Operation::SendImm(1),
        Operation::Write(nowhere),
        Operation::WriteImm(nowhere, 2),
        Operation::Read(nowhere),
        Operation::Nop,
    ];
    for (id, operation) in operations.into_iter().enumerate() {
        bench.world.post_receive(bench.right, &ReceiveRequest { id: 9, sges: &[] }).unwrap();
        bench.post(id as u64, operation, &[]);
    }
    let empty =
        WorkRequest { id: 6, operation: Operation::Send, payload: Payload::Inline(&[]), flags: SIGNALED };
    bench.world.post(bench.left, &empty).unwrap();
    let list = [bench.here.sge(0, 0), bench.here.sge(5, 0)];
    bench.post(7, Operation::Read(nowhere), &list);
    assert_eq!(bench.settle(), good(0..8));
    let lens: Vec<u32> = bench.world.drain(bench.right_cq).iter().map(|wc| wc.byte_len).collect();
    assert_eq!(lens, [0; 4]);
    assert_eq!(bench.there.load(0, 4096), vec![0; 4096]);
}

#[test]
fn lists_of_one_to_thirty_elements_gather_and_scatter() {
    let mut bench = Bench::new(&Settings { max_sge: 30, receive_max_sge: 30, ..Settings::default() });
    for pieces in [1usize, 2, 3, 16, 17, 30] {
        // Every third element is empty; the others differ in length and are not adjacent.
        let list: Vec<_> = (0..pieces)
            .map(|index| bench.here.sge(index * 1000, if index % 3 == 1 { 0 } else { 100 + index }))
            .collect();
        let bytes: Vec<u8> = list
            .iter()
            .flat_map(|sge| bench.here.load((sge.addr - bench.here.address) as usize, sge.len as usize))
            .collect();
        bench.post(1, Operation::Write(bench.there.remote(10)), &list);
        assert_eq!(bench.settle(), good([1]));
        assert_eq!(bench.there.load(10, bytes.len()), bytes, "{pieces} elements");

        let landing: Vec<_> =
            list.iter().map(|sge| remora_nic::Sge { addr: sge.addr + (1 << 20), ..*sge }).collect();
        bench.post(2, Operation::Read(bench.there.remote(10)), &landing);
        assert_eq!(bench.settle(), good([2]));
        for sge in &list {
            let offset = (sge.addr - bench.here.address) as usize;
            assert_eq!(
                bench.here.load(offset + (1 << 20), sge.len as usize),
                bench.here.load(offset, sge.len as usize)
            );
        }

        let there = landing.iter().map(|sge| sge.addr - bench.here.address);
        let receive: Vec<_> = there
            .zip(&list)
            .map(|(offset, sge)| bench.there.sge(offset as usize, sge.len as usize))
            .collect();
        bench.world.post_receive(bench.right, &ReceiveRequest { id: 3, sges: &receive }).unwrap();
        bench.post(3, Operation::Send, &list);
        assert_eq!(bench.settle(), good([3]));
        assert_eq!(bench.right_ends(), good([3]));
        for sge in &list {
            let offset = (sge.addr - bench.here.address) as usize;
            assert_eq!(
                bench.there.load(offset + (1 << 20), sge.len as usize),
                bench.here.load(offset, sge.len as usize)
            );
        }
    }
}

#[test]
fn inline_bytes_are_free_when_the_call_returns() {
    let mut bench = Bench::new(&Settings { max_inline: 960, ..Settings::default() });
    for len in [1usize, 63, 64, 65, 500, 960] {
        let mut bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
        let request = WorkRequest {
            id: 1,
            operation: Operation::Write(bench.there.remote(0)),
            payload: Payload::Inline(&bytes),
            flags: SIGNALED,
        };
        bench.world.post(bench.left, &request).unwrap();
        let expected = bytes.clone();
        bytes.fill(0xff);
        assert_eq!(bench.settle(), good([1]));
        assert_eq!(bench.there.load(0, len), expected);
    }
}

#[test]
fn unsignaled_work_makes_no_completion_and_gives_its_slots_back() {
    let mut bench = Bench::new(&Settings { send_slots: 16, ..Settings::default() });
    for round in 0..20 {
        for id in 0..16 {
            let remote = bench.there.remote(id * 8);
            let list = [bench.here.sge(round, 8)];
            bench.put(id as u64, Operation::Write(remote), &list, crate::bench::SILENT).unwrap();
        }
        bench.world.ring(bench.left);
        assert_eq!(bench.settle(), []);
    }
    bench.write(99, 8);
    assert_eq!(bench.settle(), good([99]));
}
