//! The cost of registered memory on this machine: `cargo bench -p remora-memory [copies|checks|engine]`.
//!
//! Every line is a ratio to a baseline measured in the same round, and rounds are interleaved: absolute times
//! of a shared machine mean little. It prints the medians of all rounds and of the ratios.
#![allow(unsafe_code, reason = "the baseline is memcpy on raw memory")]

use remora_memory::{Access, Biased, Bytes, Config, Key, Pd, Range, Span, Table};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
/// Bytes that cold copies walk through: far more than the last-level cache holds.
const COLD_BYTES: usize = 256 << 20;
const ALL: Access = Access::from_bits(0xf).unwrap();

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (name, body) in [("copies", copies as fn()), ("checks", checks), ("engine", engine)] {
        if wanted.is_empty() || wanted.iter().any(|arg| arg == name) {
            println!("\n{name}");
            body();
        }
    }
}

/// A case to be measured: its name, and a body that runs it the given number of times.
type Case<'a> = (&'a str, Box<dyn FnMut(usize) + 'a>);

/// A case whose body is given the number of the turn.
fn case<'a, R>(name: &'a str, mut body: impl FnMut(usize) -> R + 'a) -> Case<'a> {
    let repeated = move |times| {
        for turn in 0..times {
            black_box(body(turn));
        }
    };
    (name, Box::new(repeated))
}

/// Runs the cases in turn, `ROUNDS` times; the first is the baseline.
fn compare(title: &str, times: usize, mut cases: Vec<Case<'_>>) {
    let mut rounds = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (at, (_, body)) in cases.iter_mut().enumerate() {
            let start = Instant::now();
            body(times);
            rounds[at].push(start.elapsed().as_nanos() as f64 / times as f64);
        }
    }
    print!("{title:>14}");
    for (at, (name, _)) in cases.iter().enumerate() {
        let ratios = rounds[at].iter().zip(&rounds[0]).map(|(this, base)| this / base).collect();
        print!(" | {name} {:.1} ns x{:.2}", median(rounds[at].clone()), median(ratios));
    }
    println!();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A table, an engine, and one region over `bytes` from address 0 on.
fn region(bytes: &Bytes) -> (Arc<Table>, Biased<u64>, Pd, Key) {
    let table = Arc::new(Table::new(Config { max_regions: 200_000, ..Config::default() }).unwrap());
    let engine = Biased::new(&table, 0);
    let pd = table.alloc_pd().unwrap();
    let key = table.register(pd, &[Range::at(bytes, 0)], ALL).unwrap();
    (table, engine, pd, key)
}

fn copies() {
    let bytes = Bytes::heap(COLD_BYTES + 8192).unwrap();
    let source = Bytes::heap(COLD_BYTES + 8192).unwrap();
    let (_table, engine, pd, key) = region(&bytes);
    let mut pass = engine.enter();
    let (_, mem) = pass.parts();
    let span = mem.check(pd, key, 0, bytes.len(), Access::LOCAL_WRITE).unwrap();
    for (from, to) in [(0, 0), (56, 0), (0, 4)] {
        println!("hot, source + {from}, destination + {to}");
        for shift in 3..=22 {
            hot_copy(span, &source, 1 << shift, from, to);
        }
        println!("cold, source + {from}, destination + {to}");
        for len in [1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20] {
            cold_copy(span, &source, len, from, to);
        }
    }
}

/// The source as a slice.
fn slice(source: &Bytes, at: usize, len: usize) -> &[u8] {
    assert!(at + len <= source.len());
    // SAFETY: within the block, which outlives the slice and is written by nobody while the benchmark runs.
    unsafe { std::slice::from_raw_parts(source.as_ptr().add(at), len) }
}

fn memcpy(to: Span<'_>, from: &[u8]) {
    // SAFETY: the span was checked, and nobody else uses it while the benchmark runs.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), to.len().min(from.len())) }
}

fn hot_copy(span: Span<'_>, source: &Bytes, len: usize, from: usize, to: usize) {
    let target = span.part(to, len).unwrap();
    let data = slice(source, from, len);
    let cases = vec![
        case("memcpy", |_| memcpy(black_box(target), black_box(data))),
        case("write", |_| black_box(target).write(black_box(data))),
    ];
    compare(&format!("{len} B"), (8_000_000 / len).clamp(4, 100_000), cases);
}

fn cold_copy(span: Span<'_>, source: &Bytes, len: usize, from: usize, to: usize) {
    let pieces = COLD_BYTES / len;
    // Each case continues where it stopped, far from the others, so that its bytes are not cached yet.
    let walk = |start: usize| {
        let mut at = start;
        move || {
            at = (at + 1) % pieces;
            (span.part(at * len + to, len).unwrap(), slice(source, at * len + from, len))
        }
    };
    let mut first = walk(0);
    let mut second = walk(pieces / 2);
    let cases = vec![
        case("memcpy", move |_| {
            let (target, data) = first();
            memcpy(target, data);
        }),
        case("write", move |_| {
            let (target, data) = second();
            target.write(data)
        }),
    ];
    compare(&format!("{len} B"), (pieces / 8).max(4), cases);
}

fn checks() {
    let bytes = Bytes::heap(1 << 20).unwrap();
    let (table, engine, pd, one) = region(&bytes);
    let range = |at: usize| Range { offset: at << 17, len: 1 << 17, ..Range::at(&bytes, (at as u64) << 20) };
    let several = table.register(pd, &(0..8).map(range).collect::<Vec<_>>(), ALL).unwrap();
    let many: Vec<Key> =
        (0..100_000).map(|_| table.register(pd, &[Range::at(&bytes, 0)], ALL).unwrap()).collect();
    let mut pass = engine.enter();
    let (_, mem) = pass.parts();
    let ask = |key: Key, va: u64| {
        mem.check(pd, black_box(key), black_box(va), 64, Access::REMOTE_WRITE).map_or(1, |span| span.len())
    };
    let mut last = 0;
    let mut a = random();
    let mut b = random();
    let cases = vec![
        case("nothing", |turn| turn),
        case("one range", |turn| ask(one, turn as u64 & 0xffff)),
        case("each awaiting the last", |_| {
            last = ask(one, last as u64 & 1);
            last
        }),
        case("8 ranges", |turn| ask(several, (turn as u64 & 7) << 20)),
        case("random number", |_| a()),
        case("random one of 100000 regions", |_| ask(many[b() % many.len()], 0)),
    ];
    compare("check", 1_000_000, cases);
}

fn random() -> impl FnMut() -> usize {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    }
}

fn engine() {
    let bytes = Bytes::heap(1 << 20).unwrap();
    let (table, engine, pd, key) = region(&bytes);
    let mutex = Mutex::new(0u64);
    let data = [7; 64];
    let cases = vec![
        case("mutex", |_| *mutex.lock().unwrap() += 1),
        case("biased, owner", |_| *engine.enter() += 1),
        case("with check and 64 B write", |_| {
            let mut pass = engine.enter();
            let (_, mem) = pass.parts();
            mem.check(pd, black_box(key), 64, 64, Access::REMOTE_WRITE).map_or(0, |span| span.write(&data))
        }),
    ];
    compare("uncontended", 1_000_000, cases);
    beside("a sleeper", &table, |_| std::thread::sleep(Duration::from_millis(1)));
    beside("a poller", &table, |engine| *engine.enter() += 1);
}

/// Measures the cost of entering and leaving for the rare side, while another thread runs `other`.
fn beside(title: &str, table: &Arc<Table>, other: impl Fn(&Biased<u64>) + Sync) {
    let stop = AtomicBool::new(false);
    let engine = Biased::new(table, 0);
    let bytes = Bytes::heap(4096).unwrap();
    let pd = table.alloc_pd().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                other(&engine);
            }
        });
        let cases = vec![
            case("register and deregister", |_| {
                let key = table.register(pd, &[Range::whole(&bytes)], Access::LOCAL_WRITE).unwrap();
                table.deregister(key).unwrap();
            }),
            case("try_enter", |_| engine.try_enter().map(|mut state| *state += 1)),
            case("enter", |_| *engine.enter() += 1),
        ];
        compare(title, 1000, cases);
        stop.store(true, Ordering::Relaxed);
    });
}
