//! Differences of PRISM over IRN to go-back-N: packets arrive early, and answers may use fewer sequence
//! numbers than were reserved, which are then acknowledged packet by packet.

use remora_fabric::Config;
use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{Address, Mode, Operand, Operands, Operation, SCRATCH, Verdict};
use remora_nic::{Flags, Payload, Remote, Status};
use remora_wire::Opcode;

use crate::bench::{Bench, all_done, allocate, arms, inline, read, swap, write};

fn bench() -> Bench {
    Bench::over(&Config::default(), &arms()[1])
}

/// Loses the first packet with one of these opcodes.
fn lose(bench: &mut Bench, opcodes: &[Opcode]) {
    let once = Rule::new(Action::Drop).only(opcodes).at_most(1);
    bench.world.set_rules(&Rules::of(vec![once]), 1);
}

#[test]
fn the_rest_of_a_chain_whose_first_packet_is_lost_is_asked_for_at_once() {
    let mut bench = bench();
    let list = bench.list(65536, 4096, 2);
    let value = [7; 500];
    lose(&mut bench, &[Opcode::RC_RDMA_WRITE_FIRST]);
    let chain = [
        bench.ask(0, allocate(&list, bench.there.key, inline(&value))),
        bench.ask(1, swap(Mode::Equal, Address::direct(bench.at(0)), 0, 1)),
        bench.ask(2, swap(Mode::Equal, Address::direct(bench.at(0)), 1, 2)),
    ];
    assert_eq!(bench.run(&chain), all_done(0..3));
    let counters = bench.world.counters(0);
    assert_eq!((bench.world.faults().dropped, counters.local_ack_timeout_err), (1, 0), "no timer was needed");
    // Every packet is retransmitted, but only once.
    assert_eq!(counters.retransmitted_pkts, 4);
}

/// Two chains: each puts a number into scratch memory and swaps it into its own cell.
#[test]
fn what_a_chain_has_in_scratch_memory_is_not_overwritten_by_a_plain_write_behind_it() {
    let mut bench = bench();
    let scratch = Remote { addr: SCRATCH, ..bench.at(0) };
    lose(&mut bench, &[Opcode::RC_COMPARE_SWAP]);
    for chain in 0..2u64 {
        let number = (chain + 1).to_le_bytes();
        let plain = remora_nic::WorkRequest {
            id: 2 * chain,
            operation: remora_nic::Operation::Write(scratch),
            payload: Payload::Inline(&number),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        bench.world.post_quietly(bench.left, &plain).unwrap();
        let whole = [u64::MAX, 0, 0, 0];
        let operands = Operands {
            mode: Mode::Equal,
            size: 8,
            compare_mask: whole,
            swap_mask: whole,
            compare: Operand::Immediate([0; 4]),
            swap_add: Operand::At(SCRATCH),
        };
        let address = Address::direct(bench.at(8 * chain as usize));
        bench.put(&bench.ask(2 * chain + 1, Operation::CompareSwap { at: address, operands }));
    }
    assert_eq!(bench.run(&[]), all_done(0..4));
    assert_eq!((bench.world.faults().dropped, bench.word(0), bench.word(8)), (1, 1, 2));
}

#[test]
fn a_plain_write_is_placed_before_an_operation_that_was_lost_and_a_fenced_one_is_not() {
    for fence in [false, true] {
        let mut bench = bench();
        lose(&mut bench, &[Opcode::RC_COMPARE_SWAP]);
        bench.put(&bench.ask(0, swap(Mode::Equal, Address::direct(bench.at(0)), 0, 1)));
        let plain = remora_nic::WorkRequest {
            id: 1,
            operation: remora_nic::Operation::Write(bench.at(0)),
            payload: Payload::Inline(&[9; 8]),
            flags: Flags { signaled: true, fence, ..Flags::default() },
        };
        bench.world.post_quietly(bench.left, &plain).unwrap();
        let conditional = remora_nic::prism::WorkRequest {
            conditional: true,
            ..bench.ask(2, write(Address::direct(bench.at(64)), b"on"))
        };
        let ended = bench.run_all(&[conditional]);
        assert!(ended.iter().all(|wc| wc.status == Status::Success), "{ended:?}");
        // A conditional operation depends on the plain verb before it, regardless of when that was placed.
        assert_eq!(bench.there.load(64, 2), b"on");
        let swapped = ended[0].outcome == Verdict::Done;
        assert_eq!((swapped, bench.there.load(0, 8)), (fence, vec![9; 8]));
    }
}

/// Each READ reserves 4096 sequence numbers, far more than either side records, and needs two; some packets
/// are lost.
#[test]
fn answers_shorter_than_what_was_asked_for_are_skipped_however_much_was_reserved() {
    for seed in 0..20 {
        let mut bench = bench();
        let value: Vec<u8> = (0..300).map(|index| index as u8).collect();
        bench.there.store(4096, &value);
        bench.set(0, &[bench.at(4096).addr, 300, bench.at(4096).addr, 40_000]);
        bench.there.store(4096 + 300, &[5; 40_000]);
        let bad = [Action::Drop, Action::Reorder { frames: 5 }, Action::Duplicate];
        let rules = bad.map(|action| Rule::chance(action, if seed == 0 { 0.0 } else { 0.05 }));
        bench.world.set_rules(&Rules::of(rules.to_vec()), seed);
        let into = [bench.here.sge(0, 1 << 20)];
        let mut requests = Vec::new();
        for id in 0..30 {
            requests.push(match id % 5 {
                4 => bench.ask(id, swap(Mode::Equal, Address::direct(bench.at(64)), id / 5, id / 5 + 1)),
                3 => bench.ask(id, read(Address::bounded(bench.at(16)), 1 << 20, &into)),
                _ => bench.ask(id, read(Address::bounded(bench.at(0)), 1 << 20, &into)),
            });
        }
        let ended = bench.run_all(&requests);
        assert_eq!(ended.len(), 30);
        for wc in ended {
            let len = [300, 300, 300, 40_000, 8][wc.id as usize % 5];
            let good = (wc.status, wc.outcome) == (Status::Success, Verdict::Done);
            assert!(good && (wc.byte_len == len || wc.id % 5 == 4), "{wc:?} with seed {seed}");
        }
        assert_eq!((bench.word(64), bench.here.load(0, 300)), (6, value), "seed {seed}");
    }
}
