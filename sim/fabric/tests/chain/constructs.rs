//! RedN's constructs (§3.3, §3.4), each with as many work requests as Table 2 of the paper counts.

use crate::bench::{Bench, Chain, SIGNALED, SILENT, header};
use remora_nic::wqe::{SLOT, Wqe, WqeOpcode};
use remora_nic::{Command, Fetching, Operation};

/// Offset of the 48-bit id in a slot: bytes 2 to 7, the operand of comparisons.
const ID: usize = 2;
/// Offset of the count of a WAIT or ENABLE.
const COUNT: usize = 48;

/// Counts copies, atomics, and WAITs and ENABLEs among the first `count` slots.
fn kinds(chain: &Chain, count: usize) -> [usize; 3] {
    let opcode_of = |slot: usize| {
        let bytes: [u8; SLOT] = chain.code.load(SLOT + SLOT * slot, SLOT).try_into().unwrap();
        Wqe::parse(&bytes).opcode()
    };
    let all: Vec<_> = (0..count).map(opcode_of).collect();
    let number = |wanted: &[WqeOpcode]| all.iter().filter(|opcode| wanted.contains(opcode)).count();
    [
        number(&[WqeOpcode::READ, WqeOpcode::WRITE]),
        number(&[WqeOpcode::COMPARE_SWAP, WqeOpcode::FETCH_ADD]),
        number(&[WqeOpcode::WAIT, WqeOpcode::ENABLE]),
    ]
}

/// Runs `if x == y { answer = 1 }`, with x and y in the data region.
fn decide(x: u64, y: u64) -> u64 {
    let mut bench = Bench::new();
    let main = bench.chain(Fetching::Posted);
    let then = bench.chain(Fetching::Enabled);
    bench.set_word(0, x);
    bench.set_word(8, 1);
    let answer = bench.data.remote(16);
    bench.put(&then, Operation::Write(answer), &[bench.data.sge(8, 8)], SIGNALED);
    then.code.store(64, &header(WqeOpcode::NOP, true, 0).to_le_bytes());
    bench.ring(&then);
    let source = bench.data.remote(0);
    bench.put(&main, Operation::Read(source), &[then.element(0, ID, 6)], SIGNALED);
    bench.put(&main, main.wait(1), &[], SILENT);
    let compare = header(WqeOpcode::NOP, true, y);
    let swap = header(WqeOpcode::WRITE, true, y);
    let test = Operation::CompareSwap { remote: then.field(0, 0), compare, swap };
    bench.put(&main, test, &[bench.data.sge(24, 8)], SIGNALED);
    bench.put(&main, main.wait(2), &[], SILENT);
    bench.put(&main, then.enable(1), &[], SILENT);
    assert_eq!(kinds(&main, 5), [1, 1, 3], "Table 2");
    bench.ring(&main);
    bench.settle(&main);
    bench.word(16)
}

#[test]
fn an_if_is_a_copy_an_atomic_and_three_barriers() {
    let most = (1 << 48) - 1;
    for (x, y) in [(0, 0), (1, 1), (most, most), (0, 1), (most, 0), (0x1234_5678_9abc, 0x1234_5678_9abd)] {
        assert_eq!(decide(x, y), u64::from(x == y), "{x:#x} and {y:#x}");
    }
}

/// Runs `while i != n { i += 1 }`: a queue that enables itself until a break removes the completion that it
/// waits for.
fn count_to(n: u64) -> (u64, u64) {
    let mut bench = Bench::new();
    let main = bench.chain_of(Fetching::Recycled, 32);
    let test = bench.chain_of(Fetching::Recycled, 1);
    // The break: overwrites the header that the tail waits for by one without SIGNALED.
    bench.set_word(8, header(WqeOpcode::NOP, false, 0));
    let last = main.field(16, 0);
    bench.put(&test, Operation::Write(last), &[bench.data.sge(8, 8)], SIGNALED);
    test.code.store(64, &header(WqeOpcode::NOP, true, 0).to_le_bytes());
    bench.ring(&test);

    let i = bench.data.remote(0);
    let scrap = bench.data.sge(24, 8);
    let add = |remote, add| Operation::FetchAdd { remote, add };
    bench.put(&main, add(i, 1), &[scrap], SILENT);
    bench.put(&main, Operation::Read(i), &[test.element(0, ID, 6)], SILENT);
    let compare = header(WqeOpcode::NOP, true, n);
    let swap = header(WqeOpcode::WRITE, true, n);
    let equal = Operation::CompareSwap { remote: test.field(0, 0), compare, swap };
    bench.put(&main, equal, &[scrap], SILENT);
    let enable = bench.put(&main, test.enable(1), &[], SILENT);
    let wait = bench.put(&main, test.wait(1), &[], SILENT);
    bench.put(&main, add(main.field(enable, COUNT), 1), &[scrap], SILENT);
    bench.put(&main, add(main.field(wait, COUNT), 1), &[scrap], SILENT);
    while bench.put(&main, Operation::Nop, &[], SILENT) < 15 {}
    // The next batch, which is fetched after the test.
    bench.put(&main, Operation::Nop, &[], SIGNALED);
    let wait = bench.put(&main, main.wait(1), &[], SILENT);
    bench.put(&main, add(main.field(wait, COUNT), 1), &[scrap], SILENT);
    bench.put(&main, add(main.field(wait + 3, COUNT), 32), &[scrap], SILENT);
    bench.put(&main, main.enable(64), &[], SILENT);
    while bench.put(&main, Operation::Nop, &[], SILENT) < 31 {}
    bench.ring(&main);
    let number = main.qp.number;
    bench.world.ask::<()>(0, Command::Enable { qp: number, count: 32 }).unwrap();
    bench.settle(&main);
    (bench.word(0), bench.world.counters(0).wqes_executed)
}

#[test]
fn a_recycled_loop_runs_without_any_program_until_its_break() {
    for n in [1, 2, 50] {
        let (i, executed) = count_to(n);
        assert_eq!(i, n);
        // 33 work requests per round: 32 and the test. The last round ends at the WAIT.
        assert_eq!(executed, n * 33 - 15);
    }
}
