//! Acknowledgements that the responder delays.

use remora_fabric::{Config, LinkConfig, Sent, Settings};
use remora_fault::{Action, Rule, Rules};
use remora_nic::kernel::{DELAYED_ACK_NS, Kernel, Status};
use remora_nic::{Flags, Operation, Payload, WorkRequest};
use remora_wire::Opcode;

use crate::bench::{Bench, Journal, OPCODE, arms};

/// Number of requests, one after the other.
const ASKED: usize = 256;

/// Returns a bench with go-back-N and this timeout.
fn with_timeout(timeout: u8) -> Bench {
    let mut bench = Bench::new(1, &Settings { timeout, ..arms()[0] });
    deploy(&mut bench);
    bench.world.tap();
    bench
}

fn deploy(bench: &mut Bench) {
    let kernel = Journal { position: bench.there.remote(0).addr };
    bench.deploy(vec![Box::new(kernel) as Box<dyn Kernel>]);
}

/// Posts a request without a completion.
fn ask(bench: &mut Bench, tag: u32) {
    let bytes = [&bench.place(tag).emit()[..], &b"48 bytes".repeat(6)].concat();
    let operation = Operation::Rpc { opcode: OPCODE, tag };
    let payload = Payload::Inline(&bytes);
    let request = WorkRequest { id: 0, operation, payload, flags: Flags::default() };
    bench.world.post(bench.left, &request).unwrap();
}

fn transport(bench: &Bench, sent: &Sent) -> remora_wire::bth::Repr {
    remora_fabric::forge::transport(bench.world.start(), &sent.bytes).unwrap().bth
}

/// Returns the number of acknowledgements that a node has sent since the last call, and of those that were
/// requested.
fn spoken(bench: &mut Bench, node: usize, sent: &[Sent]) -> (usize, usize) {
    let packets: Vec<_> =
        sent.iter().filter(|sent| sent.from == node).map(|sent| transport(bench, sent)).collect();
    let acknowledged = packets.iter().filter(|bth| bth.opcode == Opcode::RC_ACKNOWLEDGE).count();
    (acknowledged, packets.iter().filter(|bth| bth.ack_req).count())
}

#[test]
fn one_request_after_the_other_asks_for_few_acknowledgements() {
    let mut bench = with_timeout(14);
    for tag in 0..ASKED as u32 {
        ask(&mut bench, tag);
        bench.world.run_for(10_000);
        assert_eq!(bench.answers().len(), 1, "request {tag}");
    }
    let sent = bench.world.sent();
    let [here, there] = [0, 1].map(|node| spoken(&mut bench, node, &sent));
    for ((acknowledged, _), (_, asked)) in [(here, there), (there, here)] {
        // Half of the queue's capacity: a request takes three of the client's 128 slots.
        assert!(asked <= ASKED / 20, "{asked} are asked for");
        assert!(
            acknowledged <= asked + ASKED * 10_000 / DELAYED_ACK_NS as usize,
            "{acknowledged} of {asked}"
        );
    }
    assert_eq!(bench.run(), Default::default());
    assert!(bench.is_at_rest(1));
    assert_eq!((0..2).map(|node| bench.world.counters(node).retransmitted_pkts).sum::<u64>(), 0);
}

/// Everything posted after a request completes with it, even though nothing more is sent.
#[test]
fn local_work_beside_a_request_ends_at_once() {
    let mut bench = with_timeout(14);
    bench.world.set_rules(&Rules::of(vec![Rule::chance(Action::Drop, 1.0)]), 1);
    let nop = WorkRequest {
        id: 7,
        operation: Operation::Nop,
        payload: Payload::Sges(&[]),
        flags: Flags { signaled: true, ..Flags::default() },
    };
    bench.world.post(bench.left, &nop).unwrap();
    ask(&mut bench, 1);
    bench.world.run_for(10_000);
    let ended: Vec<u64> = bench.world.drain(bench.left_cq).iter().map(|done| done.id).collect();
    assert_eq!(ended, [7]);
    assert_eq!(bench.world.sent().len(), 1);
}

#[test]
fn what_was_not_asked_for_leaves_in_time() {
    let mut bench = with_timeout(14);
    ask(&mut bench, 1);
    bench.world.run_for(DELAYED_ACK_NS - 10_000);
    let sent = bench.world.sent();
    assert_eq!([0, 1].map(|node| spoken(&mut bench, node, &sent)), [(0, 0); 2]);
    assert_eq!(bench.answers()[&1].status, Status::DONE);
    bench.world.run_for(20_000);
    let sent = bench.world.sent();
    assert_eq!([0, 1].map(|node| spoken(&mut bench, node, &sent)), [(1, 0); 2]);
    assert!(bench.is_at_rest(1));
    assert_eq!(bench.run(), Default::default());
    assert!(bench.world.sent().is_empty(), "nothing is said twice");
}

#[test]
fn whoever_wants_a_completion_or_has_little_patience_asks_at_once() {
    let mut bench = with_timeout(14);
    bench.rpc(OPCODE, 1, b"");
    bench.run();
    let sent = bench.world.sent();
    assert_eq!(spoken(&mut bench, 0, &sent).1, 1, "it is signaled");

    let mut bench = with_timeout(10);
    ask(&mut bench, 1);
    bench.run();
    let sent = bench.world.sent();
    assert_eq!([0, 1].map(|node| spoken(&mut bench, node, &sent)), [(1, 1); 2]);
}

#[test]
fn where_few_messages_or_answers_have_room_acknowledgements_are_asked_for_sooner() {
    let mut bench = Bench::new(1, &Settings { timeout: 14, send_slots: 16, ..arms()[0] });
    deploy(&mut bench);
    bench.world.tap();
    // Three slots each, none of which waits for a delayed acknowledgement.
    for tag in 0..32 {
        ask(&mut bench, tag);
        bench.world.run_for(4_000);
        assert_eq!(bench.answers().len(), 1, "request {tag}");
    }
    let sent = bench.world.sent();
    let (_, asked) = spoken(&mut bench, 0, &sent);
    assert!((1..=16).contains(&asked), "{asked}");

    let mut bench = Bench::new(1, &Settings { timeout: 14, ..arms()[0] });
    let kernel = Journal { position: bench.there.remote(0).addr };
    let init = bench.init(Some(OPCODE), vec![Box::new(kernel)]);
    bench.try_deploy(remora_nic::kernel::KernelInit { answers: 4, ..init }).unwrap();
    bench.rpc(OPCODE, 0, b"");
    bench.run();
    bench.world.tap();
    for tag in 0..16 {
        bench.rpc_write(OPCODE, tag, &[1; 8]);
        bench.world.run_for(4_000);
        assert_eq!(bench.answers().len(), 1, "request {tag}");
    }
    let sent = bench.world.sent();
    let (_, asked) = spoken(&mut bench, 1, &sent);
    assert!((5..=8).contains(&asked), "the third of four buffers, then all of them: {asked}");
}

/// A port with space for one frame at a time, and answers that could occupy all of it.
#[test]
fn what_is_asked_for_leaves_between_answers_where_a_port_has_little_room() {
    let link = LinkConfig { queue: 1, rate: 10_000_000_000, ..LinkConfig::default() };
    let config = Config { seed: 1, link, ..Config::default() };
    let mut bench = Bench::within(&config, &Settings { timeout: 14, ..arms()[0] });
    let source = bench.there.sge(0, 1 << 16);
    let target = bench.here.remote(0);
    let list = [source];
    let write = WorkRequest {
        id: 1,
        operation: Operation::Write(target),
        payload: Payload::Sges(&list),
        flags: Flags { signaled: true, ..Flags::default() },
    };
    bench.world.post(bench.right, &write).unwrap();
    bench.world.run_for(2_000);
    bench.post(Operation::Write(bench.there.remote(0)), 2, &[7; 8]);
    bench.world.run_for(8_000);
    assert_eq!(bench.world.drain(bench.left_cq).len(), 1, "what was written is acknowledged");
    assert_eq!(bench.world.drain(bench.right_cq).len(), 0, "while 256 packets go the other way");
    assert!(bench.world.settle(20_000_000));
    assert_eq!(bench.world.drain(bench.right_cq).len(), 1);
}
