//! A work request does not change after it was fetched (RedN, §3.1): only an ENABLE after a WAIT gives
//! doorbell order.

use crate::bench::{Bench, SIGNALED, SILENT, header};
use remora_nic::wqe::WqeOpcode;
use remora_nic::{Fetching, Operation};

/// Runs a chain that turns a later NOP of its queue into a WRITE. Returns true if the WRITE was executed.
fn rewrites(fetching: Fetching, barrier: bool) -> bool {
    let mut bench = Bench::new();
    let main = bench.chain(Fetching::Posted);
    let answer = bench.chain(fetching);
    bench.set_word(0, 1);
    // The answer: a WRITE of 1 whose opcode is still NOP.
    let target = bench.data.remote(8);
    let slot = bench.put(&answer, Operation::Write(target), &[bench.data.sge(0, 8)], SIGNALED);
    answer.code.store(64 + 64 * slot as usize, &header(WqeOpcode::NOP, true, 0).to_le_bytes());
    let mut early = None;
    if !barrier {
        // Enabled, and hence fetched, before it is rewritten. A WAIT ahead of it delays its execution.
        early = Some(bench.put(&main, answer.enable(1), &[], SILENT));
    }
    let compare = header(WqeOpcode::NOP, true, 0);
    let swap = header(WqeOpcode::WRITE, true, 0);
    let change = Operation::CompareSwap { remote: answer.field(slot, 0), compare, swap };
    bench.put(&main, change, &[bench.data.sge(16, 8)], SIGNALED);
    if early.is_none() {
        bench.put(&main, main.wait(1), &[], SILENT);
        bench.put(&main, answer.enable(1), &[], SILENT);
    }
    bench.ring(&answer);
    bench.settle(&answer);
    bench.ring(&main);
    bench.settle(&answer);
    assert_eq!(bench.count(&answer), 1);
    bench.word(8) == 1
}

#[test]
fn behind_a_wait_and_an_enable_the_change_is_seen() {
    assert!(rewrites(Fetching::Enabled, true));
}

/// In one queue, work requests of the same batch are always fetched before the change, and those of the next
/// batch after it.
#[test]
fn without_a_barrier_a_change_in_the_same_batch_is_never_seen_and_in_the_next_one_always() {
    for distance in [1, 7, 15, 16, 30] {
        let mut bench = Bench::new();
        let chain = bench.chain(Fetching::Posted);
        bench.set_word(0, 1);
        let change = Operation::CompareSwap {
            remote: chain.field(distance, 0),
            compare: header(WqeOpcode::NOP, false, 0),
            swap: header(WqeOpcode::WRITE, false, 0),
        };
        bench.put(&chain, change, &[bench.data.sge(16, 8)], SILENT);
        for _ in 1..distance {
            bench.put(&chain, Operation::Nop, &[], SILENT);
        }
        let target = bench.data.remote(8);
        bench.put(&chain, Operation::Write(target), &[bench.data.sge(0, 8)], SILENT);
        let nop = header(WqeOpcode::NOP, false, 0).to_le_bytes();
        chain.code.store(64 + 64 * distance as usize, &nop);
        bench.ring(&chain);
        bench.settle(&chain);
        assert_eq!(bench.word(8) == 1, distance >= 16, "{distance} behind");
    }
}
