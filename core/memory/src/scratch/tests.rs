use crate::table::tests::{ALL, Bench};
use crate::*;
use std::collections::BTreeSet;

fn with<R>(bench: &Bench, scratch: &Scratch, body: impl FnOnce(Span<'_>) -> R) -> R {
    let mut pass = bench.engine.enter();
    body(pass.parts().1.scratch(scratch))
}

fn seen(bench: &Bench, scratch: &Scratch) -> [u8; 32] {
    with(bench, scratch, |span| {
        let mut out = [0xee; 32];
        assert_eq!(span.read(&mut out), 32);
        out
    })
}

/// Returns a bench with 256 KiB and its number of connections (8192); less under Miri, which is slow.
fn bench() -> (Bench, usize) {
    let on_nic_bytes = if cfg!(miri) { 1024 } else { Config::default().on_nic_bytes };
    (Bench::new(Config { on_nic_bytes, ..Config::small() }), on_nic_bytes / 32)
}

#[test]
fn on_nic_memory_is_scratch_for_8192_connections_and_no_more() {
    let (bench, count) = bench();
    assert!(cfg!(miri) || count == 8192);
    let mut lent: Vec<Scratch> = (0..count).map(|_| bench.table.lend_scratch().unwrap()).collect();
    let places: BTreeSet<usize> =
        lent.iter().map(|scratch| with(&bench, scratch, |span| span.as_ptr() as usize)).collect();
    assert_eq!(places.len(), count);
    assert!(places.iter().all(|place| place % 32 == 0));
    assert_eq!(
        places.last().unwrap() - places.first().unwrap(),
        (count - 1) * 32,
        "the places do not overlap"
    );
    assert_eq!(bench.table.lend_scratch().err(), Some(Error::Full));
    assert_eq!(bench.table.on_nic(1).err(), Some(Error::Full));
    // Every returned piece can be lent once more; two adjacent pieces form a line for a program.
    drop(lent.swap_remove(7));
    lent.push(bench.table.lend_scratch().unwrap());
    assert_eq!(bench.table.lend_scratch().err(), Some(Error::Full));
    lent.clear();
    let all = bench.table.on_nic(count * 32).unwrap();
    assert_eq!(bench.table.lend_scratch().err(), Some(Error::Full));
    drop(all);
    assert!(bench.table.lend_scratch().is_ok());
}

#[test]
fn programs_and_connections_share_one_memory() {
    let bench = Bench::new(Config { on_nic_bytes: 192, ..Config::small() });
    let first = bench.table.lend_scratch().unwrap();
    let program = bench.table.on_nic(64).unwrap();
    assert_eq!(program.address() % 64, 0, "programs get lines of their own");
    let rest: Vec<Scratch> = (0..3).map(|_| bench.table.lend_scratch().unwrap()).collect();
    assert_eq!(bench.table.lend_scratch().err(), Some(Error::Full));
    program.write(0, &[7; 64]).unwrap();
    for scratch in rest.iter().chain([&first]) {
        assert_eq!(with(&bench, scratch, |span| span.write(&[9; 64])), 32);
    }
    let mut out = [0; 64];
    program.read(0, &mut out).unwrap();
    assert_eq!(out, [7; 64]);
    drop(program);
    drop(first);
    drop(rest);
    assert!(bench.table.on_nic(192).is_ok(), "the holes are joined");
}

#[test]
fn scratch_is_zero_when_lent() {
    let bench = Bench::new(Config { on_nic_bytes: 64, ..Config::small() });
    let a = bench.table.lend_scratch().unwrap();
    let b = bench.table.lend_scratch().unwrap();
    with(&bench, &a, |span| span.write(&[0xaa; 32]));
    with(&bench, &b, |span| span.write(&[0xbb; 32]));
    drop(a);
    let a = bench.table.lend_scratch().unwrap();
    assert_eq!((seen(&bench, &a), seen(&bench, &b)), ([0; 32], [0xbb; 32]));
}

#[test]
fn scratch_is_on_the_nic() {
    let bench = Bench::small();
    let scratch = bench.table.lend_scratch().unwrap();
    let mut pass = bench.engine.enter();
    let (_, mem) = pass.parts();
    assert!(mem.is_on_nic(&mem.scratch(&scratch)));
    assert_eq!(mem.scratch(&scratch).len(), Scratch::LEN);
}

/// The span of a pass must not show bytes of the next connection that gets the memory.
#[test]
fn scratch_given_back_in_a_pass_is_not_lent_before_the_pass_ends() {
    let bench = Bench::new(Config { on_nic_bytes: 64, ..Config::small() });
    let a = bench.table.lend_scratch().unwrap();
    let b = bench.table.lend_scratch().unwrap();
    {
        let mut pass = bench.engine.enter();
        let (_, mem) = pass.parts();
        let span = mem.scratch(&a);
        assert_ne!(span.write(&[5; 32]), 0);
        drop(a);
        assert_eq!(bench.table.lend_scratch().err(), Some(Error::Full), "the pass is under way");
        assert_eq!(bench.table.on_nic(1).err(), Some(Error::Full));
        let mut out = [0; 32];
        assert_ne!(span.read(&mut out), 0);
        assert_eq!(out, [5; 32]);
    }
    let again = bench.table.lend_scratch().unwrap();
    assert_eq!((seen(&bench, &again), seen(&bench, &b)), ([0; 32], [0; 32]));
}

/// Another thread that needs the bytes waits for the pass.
#[test]
fn who_needs_resting_scratch_waits_for_the_pass() {
    use std::sync::mpsc::channel;
    let bench = Bench::new(Config { on_nic_bytes: 32, ..Config::small() });
    // Rounded up to a line.
    let scratch = [bench.table.lend_scratch().unwrap(), bench.table.lend_scratch().unwrap()];
    let (given, is_given) = channel();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bench = &bench;
        let over = &over;
        scope.spawn(move || {
            let pass = bench.engine.enter();
            drop(scratch);
            given.send(()).unwrap();
            for _ in 0..50 {
                std::thread::yield_now();
            }
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(pass);
        });
        is_given.recv().unwrap();
        let again = bench.table.lend_scratch();
        assert!(over.load(std::sync::atomic::Ordering::SeqCst), "lent while the pass was under way");
        assert_eq!(seen(bench, &again.unwrap()), [0; 32]);
    });
}

#[test]
fn scratch_of_another_table_opens_nothing() {
    let bench = Bench::small();
    let other = Bench::small();
    let scratch = other.table.lend_scratch().unwrap();
    assert_eq!(with(&bench, &scratch, |span| span.len()), 0);
    drop(other);
    assert_eq!(with(&bench, &scratch, |span| span.len()), 0);
    drop(scratch);
}

#[test]
fn no_memory_on_the_nic_is_no_scratch() {
    let bench = Bench::new(Config { on_nic_bytes: 0, ..Config::small() });
    assert_eq!(bench.table.lend_scratch().err(), Some(Error::Full));
}

/// A write beyond the end of a program's memory is refused before it reaches a neighbour's scratch.
#[test]
fn no_key_leads_to_scratch() {
    let bench = Bench::new(Config { on_nic_bytes: 128, ..Config::small() });
    let program = bench.table.on_nic(64).unwrap();
    let scratch = bench.table.lend_scratch().unwrap();
    let key = bench.table.register(bench.pd, &[Range::at(&program, 0)], ALL).unwrap();
    assert_eq!(bench.probe(key, 64, 1, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(bench.probe(key, 33, 32, ALL), Err(AccessError::OutOfBounds));
    assert_eq!(seen(&bench, &scratch), [0; 32]);
}
