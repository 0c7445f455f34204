//! Operation lists of short operations, which are one packet in each direction: their results, losses,
//! repetitions and refusals, and operation lists that do not fit into one packet.

use remora_fabric::forge::{self, Forge};
use remora_fabric::{Config, Settings};
use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{Address, Mode, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest};
use remora_nic::{Remote, Status};
use remora_wire::aeth::Kind;
use remora_wire::prism::Flags;
use remora_wire::prism::bundle;
use remora_wire::prism::operation_list::{self, Target};
use remora_wire::{Extensions, NakCode, Opcode, atomic_eth, bth, icrc, packet, reth};

use crate::bench::{Bench, all_done, allocate, arms, inline, read, swap, write};

fn bench_with(change: impl FnOnce(&mut Settings)) -> Bench {
    let mut settings = Settings { mtu: 1024, ..arms()[0] };
    change(&mut settings);
    Bench::over(&Config::default(), &settings)
}

fn bench() -> Bench {
    bench_with(|_| {})
}

fn then(request: WorkRequest<'_>) -> WorkRequest<'_> {
    WorkRequest { conditional: true, ..request }
}

/// Returns the opcodes of the frames since `tap`, in order.
fn opcodes(bench: &mut Bench) -> Vec<Opcode> {
    let start = bench.world.start();
    let sent = bench.world.sent();
    sent.iter()
        .map(|sent| forge::transport(start, &sent.bytes).expect("a packet of ours").bth.opcode)
        .collect()
}

/// Returns a swap of `size` bytes without masks that expects zeros.
fn wide(bench: &Bench, offset: usize, size: u8) -> Operation<'static> {
    let operands = Operands {
        mode: Mode::Equal,
        size,
        compare_mask: [u64::MAX; 4],
        swap_mask: [u64::MAX; 4],
        compare: Operand::Immediate([0; 4]),
        swap_add: Operand::Immediate([1, 2, 3, 4]),
    };
    Operation::CompareSwap { at: Address::direct(bench.at(offset)), operands }
}

#[test]
fn each_kind_of_answer_comes_back_in_one_packet() {
    let mut bench = bench();
    let list = bench.list(65536, 512, 2);
    bench.set(0, &[5, 0, 0, 0, 7, 8]);
    bench.there.store(256, b"twenty bytes of text");
    let into = [bench.here.sge(0, 20)];
    let old = bench.at(512).addr;
    let steps = [
        bench.ask(0, allocate(&list, bench.there.key, inline(b"value"))),
        then(bench.ask(1, wide(&bench, 64, 16))),
        WorkRequest {
            redirect: Some(old),
            ..then(bench.ask(2, swap(Mode::Less, Address::direct(bench.at(0)), 4, 9)))
        },
        then(bench.ask(3, read(Address::direct(bench.at(256)), 20, &into))),
        then(bench.ask(4, write(Address::direct(bench.at(1024)), b"at the end"))),
        // 4 is not greater than 9, so the operations after it are skipped.
        then(bench.ask(5, swap(Mode::Greater, Address::direct(bench.at(0)), 4, 10))),
        then(bench.ask(6, write(Address::direct(bench.at(1024)), b"never"))),
    ];
    bench.world.tap();
    let ended = bench.run(&steps);
    assert_eq!(opcodes(&mut bench), [Opcode::OPERATION_LIST, Opcode::OPERATION_LIST_ANSWER]);
    assert_eq!(ended[..5], all_done(0..5));
    assert_eq!(ended[5..], [(5, Verdict::NotSwapped), (6, Verdict::Skipped)]);
    let [buffer, ..] = bench.result(0, 8);
    assert_eq!((bench.there.load((buffer - bench.there.address) as usize, 5)), b"value");
    assert_eq!((bench.result(1, 16)[..2].to_vec(), bench.there.load(64, 2)), (vec![0, 0], vec![1, 0]));
    assert_eq!((bench.result(2, 8)[0], bench.word(512), bench.word(0)), (8, 5, 9));
    assert_eq!(bench.here.load(0, 20), b"twenty bytes of text");
    assert_eq!((bench.result(4, 8)[0], bench.result(5, 8)[0]), (10, 9));
    assert_eq!(bench.there.load(1024, 10), b"at the end");
}

#[test]
fn what_is_too_much_for_one_packet_is_a_bundle() {
    let cell = |bench: &Bench| Address::direct(bench.at(0));
    let into = |bench: &Bench| [bench.here.sge(0, 33)];
    // A READ of which 33 bytes may return; answers of 4 times 36 bytes.
    let mut long = bench();
    let bytes = into(&long);
    let steps = [
        long.ask(0, swap(Mode::Equal, cell(&long), 0, 1)),
        then(long.ask(1, read(Address::direct(long.at(64)), 33, &bytes))),
    ];
    long.world.tap();
    assert_eq!(long.run(&steps), all_done(0..2));
    assert_eq!(opcodes(&mut long), [Opcode::BUNDLE; 2]);
    for (count, opcode) in [(3, Opcode::OPERATION_LIST), (4, Opcode::BUNDLE)] {
        let mut bench = bench();
        let steps: Vec<_> = (0..count)
            .map(|id| WorkRequest {
                conditional: id > 0,
                ..bench.ask(id, wide(&bench, 64 * id as usize, 32))
            })
            .collect();
        bench.world.tap();
        assert_eq!(bench.run(&steps), all_done(0..count));
        assert_eq!(opcodes(&mut bench)[0], opcode, "{count}");
    }
    // A plain WRITE, which has no answer, and ten answers of 12 bytes; then one more.
    for (count, opcode) in [(11, Opcode::OPERATION_LIST), (12, Opcode::BUNDLE)] {
        let mut bench = bench_with(|settings| {
            (settings.max_rd_atomic, settings.max_dest_rd_atomic) = (32, 32);
        });
        let steps: Vec<_> = (0..count)
            .map(|id| {
                let step = bench.ask(id, write(cell(&bench), b"8 bytes."));
                WorkRequest { conditional: id > 0, result: None, ..step }
            })
            .collect();
        bench.world.tap();
        assert_eq!(bench.run(&steps), all_done(0..count));
        assert_eq!(opcodes(&mut bench)[0], opcode, "{count}");
    }
}

#[test]
fn a_chain_is_executed_once_whatever_is_lost_repeated_or_late() {
    let both = [Opcode::OPERATION_LIST, Opcode::OPERATION_LIST_ANSWER];
    let actions = [Action::Drop, Action::Duplicate, Action::Reorder { frames: 2 }];
    for (action, after, at_most) in actions
        .into_iter()
        .flat_map(|action| [(0, 1), (1, 1), (0, 3)].map(|(after, most)| (action, after, most)))
    {
        let mut bench = bench();
        let list = bench.list(65536, 512, 6);
        let rule = Rule::new(action).after(after).at_most(at_most);
        bench.world.set_rules(&Rules::of(vec![rule.only(&both)]), 1);
        for turn in 0..3 {
            let value = [turn as u8; 40];
            let new = bench.ask(2 * turn, allocate(&list, bench.there.key, inline(&value)));
            let link =
                bench.ask(2 * turn + 1, swap(Mode::Equal, Address::direct(bench.at(0)), turn, turn + 1));
            let ended = bench.run(&[WorkRequest { redirect: Some(SCRATCH), ..new }, then(link)]);
            assert_eq!(ended, all_done(2 * turn..2 * turn + 2), "{action:?} {after} {at_most}");
        }
        assert_eq!((bench.word(0), bench.world.free_list_facts(&list).free), (3, 3), "{action:?} {after}");
    }
}

/// The first operation is sent alone, since the others are not posted yet. Its answer is lost, and so is the
/// operation list of the others. The retransmission is one operation list whose first operation was already
/// executed.
#[test]
fn of_a_chain_that_was_done_in_part_the_rest_is_done() {
    let mut bench = bench();
    let cell = Address::direct(bench.at(0));
    let rules = [Opcode::RC_ATOMIC_ACKNOWLEDGE, Opcode::OPERATION_LIST]
        .map(|opcode| Rule::new(Action::Drop).at_most(1).only(&[opcode]));
    bench.world.set_rules(&Rules::of(rules.to_vec()), 1);
    bench.world.tap();
    let first = bench.ask(0, swap(Mode::Equal, cell, 0, 1));
    bench.put(&first);
    bench.world.ring(bench.left);
    bench.world.run_for(10_000);
    let rest = [1, 2].map(|id| then(bench.ask(id, swap(Mode::Equal, cell, id, id + 1))));
    assert_eq!(bench.run(&rest), all_done(0..3));
    assert_eq!(bench.word(0), 3);
    assert_eq!([0, 1, 2].map(|id| bench.result(id, 8)[0]), [0, 1, 2]);
    let requests: Vec<_> = opcodes(&mut bench).into_iter().filter(|opcode| opcode.is_request()).collect();
    assert_eq!(requests, [Opcode::RC_COMPARE_SWAP, Opcode::OPERATION_LIST, Opcode::OPERATION_LIST]);
}

/// An operation of a completed operation list is requested by itself: the operation list's answer is
/// retransmitted, and nothing is executed.
#[test]
fn any_operation_of_a_chain_brings_its_answer_again() {
    let mut bench = bench();
    let cell = Address::direct(bench.at(0));
    let steps =
        [bench.ask(0, swap(Mode::Equal, cell, 0, 1)), then(bench.ask(1, swap(Mode::Equal, cell, 1, 2)))];
    steps.iter().for_each(|step| bench.put(step));
    bench.world.ring(bench.left);
    // Not after everything is quiet: then no client can ask, and the answer is forgotten.
    bench.world.run_for(10_000);
    assert_eq!(bench.world.drain(bench.left_cq).len(), 2);
    let forge = Forge::new(&bench.world, 0, bench.right);
    for psn in 0..2 {
        bench.world.tap();
        let resv7 = Flags::EXTENDED.and(Flags::CONDITIONAL).bits();
        let bth = bth::Repr { resv7, ..forge.bth(Opcode::RC_COMPARE_SWAP, psn) };
        let ext = Extensions { atomic: Some(swap_of(&bench, 0)), ..Extensions::default() };
        let frame = forge.frame(bth, ext, &OPERANDS);
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
        assert_eq!(opcodes(&mut bench), [Opcode::OPERATION_LIST_ANSWER], "{psn}");
    }
    assert_eq!(bench.word(0), 2);
}

/// Equality of 8 bytes, all of them compared and swapped.
const OPERANDS: [u8; 20] = {
    let mut bytes = [0xff; 20];
    (bytes[0], bytes[1], bytes[2], bytes[3]) = (0, 8, 0, 0);
    bytes
};

fn swap_of(bench: &Bench, compare: u64) -> atomic_eth::Repr {
    let Remote { addr, rkey } = bench.at(0);
    atomic_eth::Repr { va: addr, rkey: rkey.get(), swap_add: compare + 1, compare }
}

#[test]
fn what_is_refused_in_a_chain_fails_there_and_what_came_before_it_has_its_answer() {
    for index in 0..3 {
        let mut bench = bench();
        let guarded = bench.world.register(1, 4096, remora_fabric::ALL);
        let wrong = Address::direct(Remote { addr: guarded.address + 4096, rkey: guarded.key });
        let cell = Address::direct(bench.at(0));
        let steps: Vec<_> = (0..4)
            .map(|id| {
                let target = if id == index { wrong } else { cell };
                WorkRequest { conditional: id > 0, ..bench.ask(id, swap(Mode::Equal, target, id, id + 1)) }
            })
            .collect();
        bench.world.tap();
        let ended: Vec<Status> = bench.run_all(&steps).iter().map(|completion| completion.status).collect();
        let wanted: Vec<Status> = (0..4)
            .map(|id| match id {
                _ if id < index => Status::Success,
                _ if id == index => Status::RemoteAccess,
                _ => Status::WrFlushed,
            })
            .collect();
        assert_eq!((ended, bench.word(0)), (wanted, index));
        assert_eq!(opcodes(&mut bench)[0], Opcode::OPERATION_LIST);
    }
}

/// Returns a swap in an operation list that turns zero into one.
fn operation(bench: &Bench) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let target = Target::Atomic(swap_of(bench, 0));
    let flags = Flags::EXTENDED;
    let (body, len) =
        operation_list::emit(Opcode::RC_COMPARE_SWAP, flags, &target, OPERANDS.len(), &mut bytes).unwrap();
    body.copy_from_slice(&OPERANDS);
    bytes.truncate(len);
    bytes
}

/// Returns a swap in an operation list that increments `old`.
fn counting(bench: &Bench, old: u64) -> Vec<u8> {
    let mut bytes = operation(bench);
    let eth = swap_of(bench, old);
    eth.emit(&mut bytes[operation_list::HEAD..]);
    bytes
}

/// Returns a READ of `dma_len` bytes in an operation list.
fn reading(bench: &Bench, dma_len: u32) -> Vec<u8> {
    let Remote { addr, rkey } = bench.at(0);
    let target = Target::Range(reth::Repr { va: addr, rkey: rkey.get(), dma_len });
    let mut bytes = vec![0; 20];
    operation_list::emit(Opcode::RC_RDMA_READ_REQUEST, Flags::CONDITIONAL, &target, 0, &mut bytes).unwrap();
    bytes
}

/// Sends an operation list whose header states `count` operations. Returns the codes of the NAKs that follow.
fn forged(bench: &mut Bench, psn: u32, count: u8, payload: &[u8]) -> Vec<NakCode> {
    let forge = Forge::new(&bench.world, 0, bench.right);
    let bth = bth::Repr { resv7: count, ..forge.bth(Opcode::OPERATION_LIST, psn) };
    let frame = forge.frame(bth, Extensions::default(), payload);
    naks(bench, &frame)
}

fn naks(bench: &mut Bench, frame: &[u8]) -> Vec<NakCode> {
    bench.world.tap();
    Forge::new(&bench.world, 0, bench.right).send(&mut bench.world, frame);
    bench.world.run_for(10_000);
    let start = bench.world.start();
    let sent = bench.world.sent();
    let aeths = sent.iter().filter_map(|sent| forge::transport(start, &sent.bytes)?.ext.aeth);
    aeths
        .filter_map(|aeth| match aeth.syndrome.kind() {
            Kind::Nak(code) => Some(code),
            _ => None,
        })
        .collect()
}

#[test]
fn a_chain_that_makes_no_sense_is_refused_where_it_does_not() {
    type Payload = fn(&Bench) -> Vec<u8>;
    // Count in the header, operations in the payload, and true if the first one is executed.
    let cases: [(u8, Payload, bool); 7] = [
        (0, operation, false),
        (17, |bench| operation(bench).repeat(17), false),
        (2, operation, true),
        (1, |bench| operation(bench)[..40].to_vec(), false),
        (2, |bench| [operation(bench), vec![Opcode::RC_SEND_ONLY.0; 32]].concat(), true),
        (2, |bench| [operation(bench), reading(bench, 33)].concat(), true),
        // 12 bytes of answer, and four times 36.
        (5, |bench| [operation(bench), reading(bench, 32).repeat(4)].concat(), true),
    ];
    for (number, (count, payload, done)) in cases.into_iter().enumerate() {
        let mut bench = bench();
        let payload = payload(&bench);
        assert_eq!(forged(&mut bench, 0, count, &payload), [NakCode::INVALID_REQUEST], "{number}");
        assert_eq!(bench.word(0), u64::from(done), "{number}");
    }
    // 12 bytes and three times 36 fit; bytes beyond the count are ignored.
    for payload in [|bench: &Bench| reading(bench, 32).repeat(3), |_: &Bench| vec![0xff; 8]] {
        let mut bench = bench();
        let payload = [operation(&bench), payload(&bench)].concat();
        let count = if payload.len() > 100 { 4 } else { 1 };
        assert_eq!(forged(&mut bench, 0, count, &payload), []);
        assert_eq!(bench.word(0), 1);
    }
}

#[test]
fn a_chain_in_the_middle_of_a_write_is_refused() {
    let mut bench = bench();
    let forge = Forge::new(&bench.world, 0, bench.right);
    let Remote { addr, rkey } = bench.at(4096);
    let ext = Extensions {
        reth: Some(reth::Repr { va: addr, rkey: rkey.get(), dma_len: 2000 }),
        ..Extensions::default()
    };
    let first = forge.frame(forge.bth(Opcode::RC_RDMA_WRITE_FIRST, 0), ext, &[7; 1024]);
    assert_eq!(naks(&mut bench, &first), []);
    let payload = operation(&bench);
    assert_eq!(forged(&mut bench, 1, 1, &payload), [NakCode::INVALID_REQUEST]);
    assert_eq!(bench.word(0), 0);
}

/// The number of unanswered operation lists is limited like READs and atomics. These arrive in one frame, so
/// that no answer can have left.
#[test]
fn one_more_chain_than_may_be_unanswered_is_refused() {
    let most = u32::from(arms()[0].max_dest_rd_atomic);
    let mut bench = bench_with(|settings| settings.mtu = 4096);
    let forge = Forge::new(&bench.world, 0, bench.right);
    let chains = (0..most + 1).map(|psn| {
        let mut part = vec![0; bundle::HEAD];
        let bth = bth::Repr { resv7: 1, ..forge.bth(Opcode::OPERATION_LIST, psn) };
        let packet = packet::Packet::new(bth, Extensions::default(), &[]);
        let mut bytes = vec![0; packet.buffer_len() - icrc::LEN];
        packet.emit(&mut bytes);
        bytes.extend(counting(&bench, u64::from(psn)));
        bundle::emit_head(bytes.len(), &mut part);
        [part, bytes].concat()
    });
    let payload: Vec<u8> = chains.flatten().collect();
    let frame = forge.frame(forge.bth(Opcode::BUNDLE, 0), Extensions::default(), &payload);
    assert_eq!(naks(&mut bench, &frame), [NakCode::INVALID_REQUEST]);
    assert_eq!(bench.word(0), u64::from(most));
}

/// An operation list that consists of plain WRITEs is acknowledged, because it has no answers. A correct
/// client avoids such operation lists.
#[test]
fn a_chain_without_answers_is_acknowledged() {
    let mut bench = bench();
    let Remote { addr, rkey } = bench.at(0);
    let target = Target::Range(reth::Repr { va: addr, rkey: rkey.get(), dma_len: 8 });
    let mut bytes = vec![0; 28];
    let (body, _) =
        operation_list::emit(Opcode::RC_RDMA_WRITE_ONLY, Flags::NONE, &target, 8, &mut bytes).unwrap();
    body.copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    let forge = Forge::new(&bench.world, 0, bench.right);
    let bth = bth::Repr { resv7: 1, ..forge.bth(Opcode::OPERATION_LIST, 0) };
    let frame = forge.frame(bth, Extensions::default(), &bytes);
    bench.world.tap();
    forge.send(&mut bench.world, &frame);
    bench.world.run_for(10_000);
    assert_eq!((opcodes(&mut bench), bench.word(0)), (vec![Opcode::RC_ACKNOWLEDGE], 1));
}

/// Each operation was sent alone, and each answer is lost. They are retransmitted as one packet, and each
/// answer is sent again.
#[test]
fn what_was_done_one_by_one_is_answered_one_by_one_when_it_is_asked_for_together() {
    let mut bench = bench();
    let cell = Address::direct(bench.at(0));
    let lost = Rule::new(Action::Drop).at_most(2);
    bench.world.set_rules(&Rules::of(vec![lost.only(&[Opcode::RC_ATOMIC_ACKNOWLEDGE])]), 1);
    bench.world.tap();
    for id in 0..2 {
        let step = bench.ask(id, swap(Mode::Equal, cell, id, id + 1));
        bench.put(&WorkRequest { conditional: id > 0, ..step });
        bench.world.ring(bench.left);
        bench.world.run_for(10_000);
    }
    assert!(bench.world.settle(1_000_000));
    assert_eq!(bench.world.drain(bench.left_cq).len(), 2);
    let requests: Vec<_> = opcodes(&mut bench).into_iter().filter(|opcode| opcode.is_request()).collect();
    assert_eq!(requests, [Opcode::RC_COMPARE_SWAP, Opcode::RC_COMPARE_SWAP, Opcode::OPERATION_LIST]);
    assert_eq!(bench.word(0), 2);
}

#[test]
fn without_prism_and_over_irn_a_chain_is_dropped() {
    let irn = arms()[1];
    let plain = Settings { prism: false, ..arms()[0] };
    for settings in [irn, plain] {
        let mut bench = Bench::over(&Config::default(), &settings);
        let forge = Forge::new(&bench.world, 0, bench.right);
        let bth = bth::Repr { resv7: 1, ..forge.bth(Opcode::OPERATION_LIST, 0) };
        let frame = forge.frame(bth, Extensions::default(), &operation(&bench));
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
        let counters = bench.world.counters(1);
        assert_eq!((bench.word(0), counters.malformed_pkts + counters.unknown_qp), (0, 1));
    }
}

fn answer(verdict: Verdict, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; operation_list::answer_len(bytes.len())];
    operation_list::emit_answer(verdict, bytes, &mut out).unwrap();
    out
}

/// Returns the end of a client's request that the server never received, after a forged answer to an
/// operation list.
fn answered(
    bench: &mut Bench,
    steps: &[WorkRequest<'_>],
    count: u8,
    psn: u32,
    payload: &[u8],
) -> Vec<Status> {
    let requests = [Opcode::OPERATION_LIST, Opcode::RC_RDMA_READ_REQUEST, Opcode::RC_COMPARE_SWAP];
    let rule = Rule::new(Action::Drop).only(&requests);
    bench.world.set_rules(&Rules::of(vec![rule]), 1);
    steps.iter().for_each(|step| bench.put(step));
    bench.world.ring(bench.left);
    bench.world.run_for(1_000);
    let forge = Forge::new(&bench.world, 1, bench.left);
    let bth = bth::Repr { resv7: count, ..forge.bth(Opcode::OPERATION_LIST_ANSWER, psn) };
    let frame = forge.frame(bth, Extensions::default(), payload);
    forge.send(&mut bench.world, &frame);
    bench.world.run_for(10_000);
    let ended = bench.world.drain(bench.left_cq);
    ended.iter().map(|wc| wc.status).take_while(|status| *status != Status::WrFlushed).collect()
}

/// The answers that a peer could send to two swaps, of which the second is conditional.
#[test]
fn an_answer_to_a_chain_that_makes_no_sense_ends_it() {
    let good = answer(Verdict::Done, &[0; 8]);
    let short = answer(Verdict::Done, &[0; 4]);
    let done = Status::Success;
    let bad = Status::BadResponse;
    let cases: [(u8, u32, Vec<u8>, &[Status]); 7] = [
        (2, 1, [good.clone(), good.clone()].concat(), &[done, done]),
        (2, 1, good.clone(), &[done, bad]),
        (2, 1, vec![], &[bad]),
        (2, 1, [good.clone(), short].concat(), &[done, bad]),
        (2, 1, good.repeat(3), &[done, bad]),
        (1, 0, good.clone(), &[done]),
        // This answer acknowledges the answer after the first one, which must have been lost.
        (1, 1, good.clone(), &[]),
    ];
    for (number, (count, psn, payload, wanted)) in cases.into_iter().enumerate() {
        let mut bench = bench();
        let cell = Address::direct(bench.at(0));
        let steps =
            [bench.ask(0, swap(Mode::Equal, cell, 0, 1)), then(bench.ask(1, swap(Mode::Equal, cell, 1, 2)))];
        assert_eq!(answered(&mut bench, &steps, count, psn, &payload), wanted, "{number}");
    }
}

#[test]
fn an_answer_to_a_chain_brings_no_more_than_was_asked_for_and_answers_no_other_request() {
    let bad = [Status::BadResponse];
    let long = answer(Verdict::Done, &[0xee; 16]);
    let mut bench = bench();
    let into = [bench.here.sge(0, 8)];
    let asked = bench.ask(0, read(Address::indirect(bench.at(0)), 8, &into));
    assert_eq!(answered(&mut bench, &[asked], 1, 0, &long), bad);
    assert_eq!(bench.here.load(0, 16), [0; 16]);
    // A READ that takes two sequence numbers is never in an operation list.
    let mut bench = self::bench();
    let into = [bench.here.sge(0, 1500)];
    let asked = bench.ask(0, read(Address::indirect(bench.at(0)), 1500, &into));
    assert_eq!(answered(&mut bench, &[asked], 2, 1, &long), bad);
    // A plain READ is never in an operation list either.
    let mut bench = self::bench();
    let plain = bench.ask(0, read(Address::direct(bench.at(0)), 8, &[]));
    let into = [bench.here.sge(0, 8)];
    let plain = WorkRequest { operation: read(Address::direct(bench.at(0)), 8, &into), ..plain };
    assert_eq!(answered(&mut bench, &[plain], 1, 0, &answer(Verdict::Done, &[1; 8])), bad);
    // An operation that has not been sent yet cannot be answered.
    let mut bench = bench_with(|settings| settings.max_rd_atomic = 1);
    let cell = Address::direct(bench.at(0));
    let steps = [0, 1].map(|id| bench.ask(id, swap(Mode::Equal, cell, id, id + 1)));
    let both = answer(Verdict::Done, &[0; 8]).repeat(2);
    assert_eq!(answered(&mut bench, &steps, 2, 1, &both), []);
}
