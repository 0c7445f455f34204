//! Tests of the limits of a kernel: memory, tables, address space, time of a step, and the compiler's time
//! and memory.

#[path = "../../../sim/fabric/tests/strom/bench.rs"]
#[allow(dead_code, reason = "each binary uses a part of it")]
mod bench;
#[path = "../../../sim/fabric/tests/seeds/mod.rs"]
#[allow(dead_code, reason = "each binary uses a part of it")]
mod seeds;
mod text;

use std::fmt::Write as _;
use std::process::Command;

use bench::{Bench, OPCODE, arms};
use remora_nic::kernel::Status;
use remora_sandbox::{Limits, Module};
use text::module;

/// A step that answers.
const DONE: &str = "(i32.store (i32.const 72) (i32.const 1)) i32.const 0";

fn deployed(fields: &str, step: &str, limits: Limits) -> Bench {
    let module = Module::new(&module(fields, step), limits).unwrap();
    let mut bench = Bench::new(1, &arms()[0]);
    bench.deploy(module.lanes(1).unwrap());
    bench
}

/// Returns the status with which a step ends.
fn ends(fields: &str, step: &str) -> Status {
    let mut bench = deployed(fields, step, Limits::default());
    bench.rpc(OPCODE, 1, b"step");
    bench.run()[&1].status
}

/// Returns the resident memory of this process in bytes, as reported by the operating system.
fn resident() -> usize {
    let book = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status is readable");
    let line = book
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("/proc/self/status has a line VmRSS");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("VmRSS is a number") << 10
}

/// Regression: a kernel's table grew beyond its limit, and each step that grew it took the engine 0.2 to
/// 0.4 s.
#[test]
fn a_step_that_grows_a_table_each_time_stays_within_the_limit() {
    let grow = format!("(drop (table.grow (ref.null func) (i32.const 100000))) {DONE}");
    let mut bench = deployed("(table 1 funcref)", &grow, Limits::default());
    let mut ask = |times: usize| {
        for _ in 0..times / 16 {
            (0..16).for_each(|tag| bench.rpc(OPCODE, tag, b"grow"));
            assert!(bench.run().values().all(|answer| answer.status == Status::DONE));
        }
    };
    ask(16);
    let before = resident();
    ask(3000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[test]
fn a_table_that_is_declared_with_more_than_a_kernel_may_have_is_refused() {
    let words = refused(&module("(table 60000000 funcref)", "i32.const 0"));
    let wanted = "the module has 60000000 elements in a table, and a kernel may have 65536: declare what its functions need";
    assert_eq!(words, wanted);
}

#[test]
fn memory_and_table_are_bounded_together() {
    let limits = Limits { memory: 2 << 20, ..Limits::default() };
    // 32 pages minus the existing page and 16 pages for the table.
    let step = |pages: u32| {
        let full = format!(
            "(if (i32.eq (table.grow (ref.null func) (i32.const 65535)) (i32.const -1)) (then unreachable))
             (if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable)) {DONE}"
        );
        let mut bench = deployed("(table 1 funcref)", &full, limits);
        bench.rpc(OPCODE, 1, b"step");
        bench.run()[&1].status
    };
    assert_eq!((step(15), step(16)), (Status::DONE, Status::FAILED));
    // Declared in the module instead of grown.
    let why = |pages: u32| {
        let text = format!(r#"(module (memory (export "memory") {pages}) (table 65536 funcref))"#);
        Module::new(&wat::parse_str(text).unwrap(), limits).err()
    };
    assert_eq!(why(16), None);
    let words = why(17).expect("17 pages exceed the limit").to_string();
    assert!(
        words.contains("2162688 bytes of memory and table") && words.contains("`Limits::memory`"),
        "{words}"
    );
}

/// Checks that instructions use fuel according to their size, so that fuel limits the amount of work
/// exactly.
#[test]
fn an_instruction_that_does_a_lot_of_work_is_too_long_for_a_step() {
    let fields = r#"(table $t 65536 funcref) (elem $e func $f) (func $f)
        (data $d "01234567") (func $pages (drop (memory.grow (i32.const 15))))"#;
    let with = |step: &str| ends(fields, &format!("(call $pages) {step} {DONE}"));
    let most = 200_000;
    let more = 270_000;
    for (name, arguments) in
        [("fill", "(i32.const 100) (i32.const 0)"), ("copy", "(i32.const 100) (i32.const 200)")]
    {
        let memory = |len: u32| with(&format!("(memory.{name} {arguments} (i32.const {len}))"));
        assert_eq!((memory(most), memory(more)), (Status::DONE, Status::TOO_LONG), "memory.{name}");
    }
    // Other instructions, repeated in a loop.
    let again = |instruction: &str| format!("(loop $again {instruction} (br $again))");
    for instruction in [
        "(memory.init $d (i32.const 30000) (i32.const 0) (i32.const 8))",
        "(table.fill $t (i32.const 0) (ref.null func) (i32.const 65536))",
        "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 65535))",
        "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))",
        "(drop (memory.grow (i32.const 0)))",
        "(drop (memory.grow (i32.const 65536)))",
        "(drop (table.grow $t (ref.null func) (i32.const 0)))",
        "(drop (table.grow $t (ref.null func) (i32.const -1)))",
        "(return_call $tail)",
    ] {
        let fields = format!("{fields} (func $tail (result i32) (return_call $tail))");
        assert_eq!(
            ends(&fields, &format!("{} {DONE}", again(instruction))),
            Status::TOO_LONG,
            "{instruction}"
        );
    }
    // Growing costs as much as some hundreds of other instructions.
    let grown = |times: u32| {
        let count = format!(
            "(global.set $n (i32.const {times}))
             (loop $again (drop (memory.grow (i32.const 0)))
                (global.set $n (i32.sub (global.get $n) (i32.const 1))) (br_if $again (global.get $n)))"
        );
        ends("(global $n (mut i32) (i32.const 0))", &format!("{count} {DONE}"))
    };
    assert_eq!((grown(900), grown(1100)), (Status::DONE, Status::TOO_LONG));
}

/// Returns the error message, which must be one line.
fn refused(wasm: &[u8]) -> String {
    let error = Module::new(wasm, Limits::default()).and_then(|module| module.lanes(1)).err();
    let words = error.expect("the module is refused").to_string();
    assert!(!words.contains('\n') && words.len() > 20, "{words}");
    words
}

#[test]
fn what_the_limits_do_not_bound_is_refused_with_words() {
    for field in [
        r#"(memory (export "memory") 1 2 shared)"#,
        r#"(memory (export "memory") i64 1)"#,
        "(tag $t)",
        "(type $s (struct (field i32)))",
        r#"(memory (export "memory") 1) (table 1 externref)"#,
    ] {
        let words = refused(&wat::parse_str(format!("(module {field})")).unwrap());
        assert!(words.ends_with(": build it as program/sandbox/template does"), "{words}");
    }
}

/// Returns `count` copies of a text.
fn times(count: usize, text: &str) -> String {
    text.repeat(count)
}

/// Returns modules at a bound, or `beyond` it: name of the size, its value, and the fields of the module.
fn sizes(beyond: usize) -> Vec<(&'static str, usize, String)> {
    let params = |count: usize| times(count, "i32 ");
    let mut exports = String::from("(func $e)");
    (0..1020 + beyond).for_each(|index| write!(exports, r#"(export "e{index}" (func $e))"#).unwrap());
    let blocks = times(1024 + beyond, "block ");
    let ends = times(1024 + beyond, "end ");
    vec![
        (
            "types",
            1024,
            (0..1022 + beyond).fold(String::new(), |all, index| {
                // Each type is different; two types are those of the exported functions.
                let params: String =
                    (0..10).map(|bit| if index >> bit & 1 == 0 { "i32 " } else { "i64 " }).collect();
                all + &format!("(type (func (param {params})))")
            }),
        ),
        ("parameters of one function", 64, format!("(func (param {}))", params(64 + beyond))),
        (
            "results of one function or block",
            16,
            format!("(func (result {}) unreachable)", params(16 + beyond)),
        ),
        ("functions", 4096, times(4093 + beyond, "(func)")),
        ("bytes in one function", 64 << 10, format!("(func {})", times((64 << 10) - 2 + beyond, "nop "))),
        ("locals in one function", 4096, format!("(func (local {}))", params(4096 + beyond))),
        ("blocks within each other", 1024, format!("(func {blocks} {ends})")),
        ("globals", 1024, times(1024 + beyond, "(global i32 (i32.const 0))")),
        ("exports", 1024, exports),
        ("data segments", 1024, times(1023 + beyond, r#"(data "x")"#)),
        ("element segments", 1024, times(1024 + beyond, "(elem func)")),
        (
            "elements in its segments",
            64 << 10,
            format!("(func $f) (elem func {}) (elem func $f)", times((64 << 10) - 1 + beyond, "$f ")),
        ),
        ("memories", 1, times(beyond, "(memory 0)")),
        ("tables", 1, times(1 + beyond, "(table 1 funcref)")),
        ("elements in a table", 64 << 10, format!("(table {} funcref)", (64 << 10) + beyond)),
    ]
}

#[test]
fn a_module_may_have_so_much_of_everything_and_no_more() {
    for ((name, most, text), (_, _, beyond)) in sizes(0).into_iter().zip(sizes(1)) {
        let within = Module::new(&module(&text, "i32.const 0"), Limits::default());
        assert_eq!(within.err(), None, "{name}");
        let words = refused(&module(&beyond, "i32.const 0"));
        let wanted = format!("the module has {} {name}, and a kernel may have {most}: ", most + 1);
        assert!(words.starts_with(&wanted), "{words}");
    }
    let code = times(17, &format!("(func {})", times(62 << 10, "nop ")));
    assert!(refused(&module(&code, "i32.const 0")).contains(" bytes of code, "));
    let debug = format!(r#"(@custom "x" "{}")"#, times(16 << 20, "."));
    let words = refused(&module(&debug, "i32.const 0"));
    assert!(words.contains(" bytes, and a kernel may have 16777216: strip "), "{words}");
}

/// Returns a function with loops and locals that all loops may change, for which the compiler's work is
/// their product.
fn loops(count: usize, locals: usize) -> String {
    let declared = times(locals, "i32 ");
    let used = (0..locals).fold(String::new(), |all, index| all + &format!("local.get {index} drop "));
    format!("(func (local {declared}) {} {used})", times(count, "loop i32.const 0 br_if 0 end "))
}

#[test]
fn branches_times_locals_and_loops_are_bounded() {
    for beyond in [loops(600, 4000), loops(4000, 0)] {
        let words = refused(&module(&beyond, "i32.const 0"));
        assert!(words.contains(" branches times locals and loops, of all functions, "), "{words}");
    }
    // A function that declares four billion locals in five bytes.
    let mut wasm = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x0a\x01\x08\x01".to_vec();
    wasm.extend(b"\xff\xff\xff\xff\x0f\x7f\x0b");
    assert!(refused(&wasm).contains("4294967295 locals in one function"));
}

/// Reruns a test of this file in a process limited to 4 GB of address space.
///
/// Calls `body` in that process.
fn confined(name: &str, body: impl FnOnce()) {
    const INSIDE: &str = "REMORA_TEST_FEW_ADDRESSES";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let script = "ulimit -v 4000000 && exec \"$0\" --exact \"$1\" --test-threads 1";
    let me = std::env::current_exe().unwrap();
    let ran = Command::new("sh").arg("-c").arg(script).arg(me).arg(name).env(INSIDE, "1").output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && out.contains("1 passed"),
        "{out}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn many_small_kernels_run_where_addresses_are_few() {
    confined("many_small_kernels_run_where_addresses_are_few", || {
        // Memories of 64 KiB that may grow, and that may not.
        for (memory, count) in [("1", 64), ("1 1", 2000)] {
            let wasm = text::with_memory(memory, "", DONE);
            let module = Module::new(&wasm, Limits::default()).unwrap();
            let mut lanes = module.lanes(count).unwrap();
            let mut bench = Bench::new(1, &arms()[0]);
            bench.deploy(lanes.split_off(count - 1));
            bench.rpc(OPCODE, 1, b"step");
            assert_eq!(bench.run()[&1].status, Status::DONE);
        }
    });
}

#[test]
fn hostile_modules_are_compiled_where_addresses_are_few() {
    confined("hostile_modules_are_compiled_where_addresses_are_few", || {
        for (name, fields) in hostile() {
            let compiled = Module::new(&module(&fields, "i32.const 0"), Limits::default());
            assert_eq!(compiled.err(), None, "{name}");
        }
    });
}

/// Returns modules within all bounds that need much compilation time.
fn hostile() -> Vec<(&'static str, String)> {
    let nested = format!("(func {} {})", times(1000, "loop "), times(1000, "i32.const 0 br_if 0 end "));
    let blocks = times(1000, "block ");
    let ends = times(1000, "end ");
    let branches =
        format!("(func (param i32) {blocks} local.get 0 br_table {} {ends})", times(3000, "0 999 "));
    let loads = times(7000, "i32.const 8 i32.load ");
    let live =
        format!("(func {loads} {} {})", times(2000, "loop i32.const 0 br_if 0 end "), times(7000, "drop "));
    let params = times(64, "i64 ");
    let results = times(16, "i64 ");
    let gets =
        |count: usize| (0..count).fold(String::new(), |all, index| all + &format!("local.get {index} "));
    let calls = times(240, &format!("call $c {}", gets(48)));
    let calls = format!(
        "(func $c (param {params}) (result {results}) unreachable)
         (func (param {params}) (result {results}) {} {calls} call $c)",
        gets(64)
    );
    vec![
        ("loops times locals", loops(500, 4000)),
        ("loops within loops", nested),
        ("tables of branches", times(16, &branches)),
        ("values that live across loops", live),
        ("calls with many parameters", calls),
        (
            "many functions",
            times(4000, "(func (param i32) (result i32) local.get 0 i32.load i32.const 3 i32.add)"),
        ),
        (
            "long functions",
            times(4, &format!("(func (param i32) {})", times(9000, "local.get 0 i32.load drop "))),
        ),
    ]
}
