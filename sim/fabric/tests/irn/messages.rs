//! Messages that consume receive work requests: bound to them on first sight, completed in order. Also RNR,
//! and errors that wait for their turn.

use crate::bench::{SIGNALED, ends, good};
use crate::{bench, nth, rules, settings};
use remora_fabric::{ALL, Config, World};
use remora_fault::{Action, Directions, Rule};
use remora_nic::{
    CompletionKind, Flags, Operation, Payload, ReceiveRequest, Service, Status, WorkCompletion, WorkRequest,
};
use remora_transport::state::State;
use remora_wire::Opcode;

#[test]
fn a_message_that_is_complete_too_early_completes_in_its_turn() {
    let mut bench = bench();
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_SEND_ONLY]), 0)]);
    for id in 0..3 {
        let list = [bench.there.sge(id as usize * 4096, 4096)];
        bench.world.post_receive(bench.right, &ReceiveRequest { id, sges: &list }).unwrap();
    }
    for (id, words) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
        bench.here.store(id as usize * 64, words);
        let list = [bench.here.sge(id as usize * 64, words.len())];
        bench.put(id, Operation::Send, &list, SIGNALED).unwrap();
    }
    bench.world.ring(bench.left);
    bench.world.run_for(2_000);
    // Each message is in its own buffer although the first is missing, and nothing is acknowledged.
    assert_eq!(bench.there.load(4096, 3), b"two");
    assert_eq!(bench.there.load(8192, 5), b"three");
    assert_eq!(bench.world.drain(bench.right_cq), []);
    assert_eq!(bench.settle(), good([1, 2, 3]));
    let received: Vec<WorkCompletion> = bench.world.drain(bench.right_cq);
    assert_eq!(received.iter().map(|wc| (wc.id, wc.byte_len)).collect::<Vec<_>>(), [(0, 3), (1, 3), (2, 5)]);
    assert_eq!(bench.there.load(0, 3), b"one");
}

#[test]
fn messages_of_every_kind_and_length_keep_their_order() {
    let mut bench = bench();
    rules(&mut bench, vec![Rule::every(Action::Drop, 6), Rule::every(Action::Reorder { frames: 3 }, 4)]);
    let mut expected = Vec::new();
    for id in 0..24u64 {
        let len = [0, 1, 256, 257, 700, 1024][id as usize % 6];
        let list = [bench.there.sge((2 << 20) + id as usize * 4096, 4096)];
        bench.world.post_receive(bench.right, &ReceiveRequest { id, sges: &list }).unwrap();
        let remote = bench.there.remote(id as usize * 4096);
        let (operation, kind, imm) = match id % 3 {
            0 => (Operation::Send, CompletionKind::Receive, None),
            1 => (Operation::SendImm(id as u32), CompletionKind::Receive, Some(id as u32)),
            _ => (Operation::WriteImm(remote, id as u32), CompletionKind::ReceiveWriteImm, Some(id as u32)),
        };
        let list = [bench.here.sge(0, len)];
        bench.put(id, operation, &list, SIGNALED).unwrap();
        expected.push((id, kind, len as u32, imm));
    }
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), good(0..24));
    let received = bench.world.drain(bench.right_cq);
    let received: Vec<_> = received.iter().map(|wc| (wc.id, wc.kind, wc.byte_len, wc.imm)).collect();
    assert_eq!(received, expected);
    for (id, kind, len, _) in expected {
        let base = if kind == CompletionKind::Receive { 2 << 20 } else { 0 };
        let offset = base + id as usize * 4096;
        assert_eq!(bench.there.load(offset, len as usize), bench.here.load(0, len as usize), "message {id}");
    }
    assert!(bench.world.counters(1).irn_ahead_pkts > 0);
}

#[test]
fn a_receiver_that_is_not_ready_says_so_in_order_and_drops_in_silence_what_comes_ahead() {
    let mut bench = bench();
    for id in 1..4 {
        bench.put(id, Operation::Send, &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    }
    bench.world.ring(bench.left);
    bench.world.run_for(5_000);
    let right = bench.world.counters(1);
    assert_eq!((right.send_rnr_err, right.out_of_buffer, right.irn_ahead_pkts), (1, 1, 0));
    for id in 0..3 {
        bench.receive(id, 64);
    }
    assert_eq!(bench.settle(), good([1, 2, 3]));
    assert_eq!(bench.right_ends(), good(0..3));
    // All three were retransmitted after the one RNR wait, without a timeout.
    let left = bench.world.counters(0);
    assert_eq!((left.rnr_nak_retry_err, left.local_ack_timeout_err, left.retransmitted_pkts), (1, 0, 3));
}

#[test]
fn rnr_retries_run_out_as_without_irn() {
    let mut bench = crate::bench::Bench::new(&remora_fabric::Settings { rnr_retry: 2, ..settings() });
    bench.send(1, 64);
    assert_eq!(bench.settle(), [(1, Status::RnrRetryExceeded)]);
    assert_eq!(bench.world.counters(1).send_rnr_err, 3);
}

#[test]
fn an_error_ahead_of_the_order_is_told_in_its_turn() {
    let mut bench = bench();
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_SEND_ONLY]), 0)]);
    bench.receive(7, 64);
    bench.put(1, Operation::Send, &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    let nowhere = remora_nic::Remote { addr: 1, rkey: remora_memory::Key::new(1) };
    bench.put(2, Operation::Write(nowhere), &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    bench.put(3, Operation::Write(bench.there.remote(0)), &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    bench.world.run_for(3_000);
    assert_eq!(bench.world.state(bench.right), Some(State::Rts), "nobody has been told of the bad key");
    let expected = [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::WrFlushed)];
    assert_eq!(bench.settle(), expected);
    let right = bench.world.drain(bench.right_cq);
    assert_eq!(ends(&right)[..1], good([7]));
    assert_eq!(bench.world.counters(1).resp_remote_access_errors, 1);
}

#[test]
fn a_message_too_long_for_its_receive_is_an_error_in_its_turn() {
    let mut bench = bench();
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_SEND_ONLY]), 0)]);
    bench.receive(7, 64);
    bench.receive(8, 64);
    bench.put(1, Operation::Send, &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    bench.put(2, Operation::Send, &[bench.here.sge(0, 65)], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    assert_eq!(bench.settle(), [(1, Status::Success), (2, Status::RemoteInvalidRequest)]);
    assert_eq!(bench.right_ends(), [(7, Status::Success), (8, Status::LocalLength)]);
}

#[test]
fn a_key_is_invalidated_in_the_order_of_its_message() {
    let mut bench = bench();
    rules(&mut bench, vec![nth(Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_ONLY]), 0)]);
    let region = bench.world.register(1, 64, ALL | remora_memory::Access::INVALIDATE);
    bench.receive(7, 64);
    // The WRITE that needs the key is lost and arrives after the SEND that invalidates the key.
    bench.put(1, Operation::Write(region.remote(0)), &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    bench.put(2, Operation::SendInv(region.key), &[bench.here.sge(0, 8)], SIGNALED).unwrap();
    bench.put(3, Operation::Write(region.remote(0)), &[bench.here.sge(0, 64)], SIGNALED).unwrap();
    bench.world.ring(bench.left);
    // The third is placed early, while the key is valid; its retransmission fails or does not happen.
    let left = bench.settle();
    assert_eq!(left[..2], good([1, 2]));
    let right = bench.world.drain(bench.right_cq);
    assert_eq!((right[0].id, right[0].invalidated), (7, Some(region.key)));
}

#[test]
fn entries_of_a_shared_receive_queue_are_bound_at_first_sight() {
    let mut world = World::new(&Config::default());
    let cqs = [world.create_cq(0, 512), world.create_cq(1, 512)];
    let srq = world.create_srq(1, 16, 2, None).unwrap();
    let source = world.register(0, 1 << 16, ALL);
    let sink = world.register(1, 1 << 16, ALL);
    let pairs = [0, 1].map(|_| {
        let left = world.create_qp(cqs[0], cqs[0], &settings()).unwrap();
        let right = world.create_qp_of(Service::Rc, cqs[1], cqs[1], Some(srq), &settings()).unwrap();
        world.connect(left, right, &settings());
        left
    });
    for id in 0..4u64 {
        // Two elements each, so that a work request occupies more than its first slot.
        let list = [sink.sge(id as usize * 4096, 100), sink.sge(id as usize * 4096 + 1000, 1000)];
        world.post_shared(srq, &ReceiveRequest { id, sges: &list }).unwrap();
    }
    // The first message of the first pair is lost. Its second message arrives first and takes two entries;
    // the messages of the other pair take the next two.
    let lose = nth(Rule::new(Action::Drop).towards(Directions::Send), 0);
    world.set_rules(&remora_fault::Rules::of(vec![lose]), 1);
    for (pair, id, offset) in [(0, 1, 0), (0, 2, 256), (1, 3, 512), (1, 4, 768)] {
        source.store(offset, &[id as u8; 200]);
        let list = [source.sge(offset, 200)];
        let request = WorkRequest {
            id,
            operation: Operation::Send,
            payload: Payload::Sges(&list),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        world.post(pairs[pair], &request).unwrap();
    }
    assert!(world.settle(1_000_000));
    assert_eq!(ends(&world.drain(cqs[0])).len(), 4);
    let received: Vec<(u64, u32)> = world.drain(cqs[1]).iter().map(|wc| (wc.id, wc.byte_len)).collect();
    assert_eq!(
        received,
        [(2, 200), (3, 200), (0, 200), (1, 200)],
        "by pair in order, entries as they were bound"
    );
    for (entry, message) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
        assert_eq!(sink.load(entry * 4096, 100), [message; 100]);
        assert_eq!(sink.load(entry * 4096 + 1000, 100), [message; 100]);
    }
}
