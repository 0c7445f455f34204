//! Tests of modules as kernels between simulated NICs: the templates compared with the native kernel, and
//! misbehaving modules.

#[path = "../../../sim/fabric/tests/strom/bench.rs"]
#[allow(dead_code, reason = "each binary uses a part of it")]
mod bench;
#[path = "../../../sim/fabric/tests/seeds/mod.rs"]
#[allow(dead_code, reason = "each binary uses a part of it")]
mod seeds;
#[allow(dead_code, reason = "each binary uses a part of it")]
mod text;

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::{Answer, Bench, OPCODE, arms, bad_links};
use remora_fault::Random;
use remora_nic::kernel::{Get, Kernel, Lookup, Slot, Status};
use remora_sandbox::{Limits, Module, SandboxError};

/// A temporary folder, deleted on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds a copy of a template by the command in its documentation.
fn built(template: &str, command: &[&str], result: &str) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("remora-{}-{template}", std::process::id()));
    let folder = Temporary(folder);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("template").join(template);
    let run = |command: &mut Command| {
        let done = command.output().unwrap_or_else(|error| panic!("{command:?} (`make setup`): {error}"));
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run(Command::new("cp").arg("-r").arg(here).arg(&folder.0));
    // The build must not use the target folder of this test's own build.
    let (first, rest) = command.split_first().unwrap();
    run(Command::new(first).args(rest).current_dir(&folder.0).env_remove("CARGO_TARGET_DIR"));
    std::fs::read(folder.0.join(result)).unwrap()
}

fn in_rust() -> Vec<u8> {
    let command = ["cargo", "build", "--release", "--target", "wasm32-unknown-unknown"];
    built("rust", &command, "target/wasm32-unknown-unknown/release/kernel.wasm")
}

fn in_c() -> Vec<u8> {
    built("c", &["make"], "kernel.wasm")
}

fn lanes(wasm: &[u8], count: usize) -> Vec<Box<dyn Kernel>> {
    Module::new(wasm, Limits::default()).unwrap().lanes(count).unwrap()
}

/// Runs GETs of existing and missing keys over lossy links, and returns the answers of a table of random
/// slots.
fn gets(seed: u64, over_irn: bool, kernels: Vec<Box<dyn Kernel>>) -> Vec<(u32, Answer)> {
    let mut bench = Bench::new(seed, &arms()[usize::from(over_irn)]);
    bench.deploy(kernels);
    let mut random = Random::new(seed);
    for number in 0..8 {
        let mut slot = Slot::default();
        for bucket in 0..3 {
            let offset = 4096 + (number * 3 + bucket) * 2048;
            let len = random.below(2048) as usize;
            bench.there.store(offset, &(0..len).map(|_| random.below(256) as u8).collect::<Vec<u8>>());
            (slot.keys[bucket], slot.lens[bucket]) = (random.below(4), len as u32);
            slot.values[bucket] = if random.below(4) == 0 { 0 } else { bench.there.remote(offset).addr };
        }
        bench.there.store(number * Slot::LEN, &slot.emit());
    }
    bench.world.set_rules(&bad_links(seed), seed);
    let mut all = Vec::new();
    for _ in 0..4 {
        for tag in 0..16 {
            // Includes slots outside the table, to which the kernel has no access right.
            let slot = bench.there.remote(random.below(9) as usize * Slot::LEN).addr;
            let slot = if random.below(10) == 0 { 64 } else { slot };
            bench.rpc(OPCODE, tag, &Lookup { slot, key: random.below(4) }.emit());
        }
        bench.rpc(OPCODE, 16, &[1, 2, 3]);
        bench.rpc_write(OPCODE, 17, &[0; 600]);
        all.extend(bench.run());
    }
    assert!(bench.is_at_rest(0), "seed {seed}");
    all
}

fn answers_as_the_native_one(wasm: &[u8]) {
    let mut seen = [0; 3];
    for seed in 0..10 {
        for irn in [false, true] {
            let native: Vec<Box<dyn Kernel>> = vec![Box::<Get>::default()];
            let wanted = gets(seed, irn, native);
            assert_eq!(gets(seed, irn, lanes(wasm, 1)), wanted, "seed {seed}, IRN {irn}");
            for (place, status) in [Status::DONE, Status::MISS, Status::ACCESS].into_iter().enumerate() {
                seen[place] += wanted.iter().filter(|(_, answer)| answer.status == status).count();
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "found, missed, without a right: {seen:?}");
}

#[test]
fn the_template_in_rust_answers_as_the_native_kernel_does() {
    answers_as_the_native_one(&in_rust());
}

#[test]
fn the_template_in_c_answers_as_the_native_kernel_does() {
    answers_as_the_native_one(&in_c());
}

/// Returns a module with this step.
fn module(step: &str) -> Vec<u8> {
    text::module("(global $steps (mut i32) (i32.const 0))", step)
}

/// Sends a request that must fail with `wanted`, and then one that succeeds; other queue pairs are served
/// throughout.
fn fails(step: &str, wanted: Status) {
    for mut bench in Bench::arms() {
        bench.deploy(lanes(&module(step), 1));
        let other = bench.init(Some(7), vec![Box::<Get>::default()]);
        bench.try_deploy(other).unwrap();
        bench.there.store(0, &Slot { keys: [5; 3], values: [0; 3], lens: [0; 3] }.emit());
        let lookup = Lookup { slot: bench.there.remote(0).addr, key: 5 }.emit();
        for round in 0..3 {
            bench.rpc(OPCODE, 1, b"bad");
            bench.rpc(7, 2, &lookup);
            bench.rpc(OPCODE, 3, b"g");
            let answers = bench.run();
            let statuses = [1, 2, 3].map(|tag| answers[&tag].status);
            assert_eq!(statuses, [wanted, Status::MISS, Status::DONE], "round {round}");
        }
        let facts = bench.facts();
        assert_eq!((facts[0].failures, facts[1].failures), (3, 0));
        assert!(bench.is_at_rest(0));
    }
}

#[test]
fn an_endless_loop_ends_with_an_error_to_its_caller_and_hurts_nobody_else() {
    fails("(loop (br 0)) i32.const 0", Status::TOO_LONG);
}

#[test]
fn a_trap_ends_with_an_error_to_its_caller_and_hurts_nobody_else() {
    fails("unreachable", Status::FAILED);
    // The call stack is limited too.
    fails("(call 2)", Status::FAILED);
}

#[test]
fn more_memory_than_the_limit_is_not_given() {
    // 16 MiB are 256 pages, so the first `memory.grow` fails and the kernel traps.
    fails(
        "(if (i32.eq (memory.grow (i32.const 256)) (i32.const -1)) (then unreachable)) i32.const 0",
        Status::FAILED,
    );
    // Growing up to that size succeeds.
    let wasm = module(
        "(if (i32.eq (memory.grow (i32.const 8)) (i32.const -1)) (then unreachable)) (i32.store (i32.const 72) (i32.const 1)) i32.const 0",
    );
    let mut bench = Bench::new(1, &arms()[0]);
    bench.deploy(lanes(&wasm, 1));
    bench.rpc(OPCODE, 1, b"good");
    assert_eq!(bench.run()[&1].status, Status::DONE);
}

#[test]
fn nonsense_in_the_mailbox_is_a_failure_of_the_kernel() {
    let store = |address: u32, value: u32| format!("(i32.store (i32.const {address}) (i32.const {value}))");
    let answer = store(72, 1);
    let ends = "i32.const 0";
    // Unknown message, unknown command, too much data, too many writes, a write that is too long.
    let bad = [
        store(72, 4),
        format!("{answer} {}", store(108, 3)),
        format!("{answer} {} {}", store(80, 5000), store(100, 4097)),
        format!("{answer} {}", store(124, 65)),
        format!("{answer} {} {}", store(124, 1), store(12424, 8193)),
        // More bytes than the answer has; forwarded bytes that were not read.
        format!("{answer} {}", store(100, 8)),
        format!("{answer} {} {}", store(80, 8), store(96, 8)),
        // A read longer than one command allows.
        format!("{answer} {} {}", store(108, 1), store(120, 4097)),
    ];
    for step in bad {
        fails(&format!("{step} {ends}"), Status::FAILED);
    }
    fails(&format!("{answer} i32.const 3"), Status::FAILED);
    // The step ends without the answer that it owes.
    fails(ends, Status::FAILED);
    // Memory without access right, and memory that does not exist.
    fails(&format!("{} {} {ends}", store(108, 1), store(120, 8)), Status::ACCESS);
    fails(&format!("{answer} {} {} {ends}", store(124, 1), store(12424, 8)), Status::ACCESS);
}

#[test]
fn what_is_no_kernel_is_refused_with_words() {
    let why = |text: &str| {
        Module::new(&wat::parse_str(text).unwrap(), Limits::default())
            .and_then(|module| module.lanes(1))
            .err()
    };
    assert!(matches!(Module::new(b"not", Limits::default()), Err(SandboxError::NotWasm(_))));
    let imports = why(r#"(module (import "env" "now" (func)))"#);
    assert_eq!(imports, Some(SandboxError::Imports("env.now".to_owned())));
    assert_eq!(why("(module)"), Some(SandboxError::Lacks("memory")));
    let with = |rest: &str| why(&format!(r#"(module (memory (export "memory") 1) {rest})"#));
    assert_eq!(with(""), Some(SandboxError::Lacks("mailbox")));
    let mailbox_at = |place: u32| {
        format!(
            r#"(func (export "mailbox") (result i32) i32.const {place}) (func (export "step") (result i32) i32.const 0) (func (export "reset"))"#
        )
    };
    assert_eq!(with(&mailbox_at(65536)), Some(SandboxError::Mailbox));
    assert_eq!(with(&mailbox_at(65536 - 21631)), Some(SandboxError::Mailbox));
    assert_eq!(with(&mailbox_at(65536 - 21632)), Some(SandboxError::Version(0)));
    assert_eq!(
        with(r#"(func (export "mailbox") (result i32) i32.const 0)"#),
        Some(SandboxError::Lacks("step"))
    );
    let endless = with(&format!("(func $f (loop (br 0))) (start $f) {}", mailbox_at(0)));
    assert!(matches!(endless, Some(SandboxError::Failed(_))), "{endless:?}");
    let large = why(r#"(module (memory (export "memory") 257))"#);
    assert!(matches!(large, Some(SandboxError::TooMuch { .. })), "{large:?}");
    for error in [imports, endless].into_iter().flatten() {
        assert!(error.to_string().len() > 20);
    }
}
