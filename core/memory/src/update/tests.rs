use crate::table::tests::{ALL, Bench};
use crate::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WIDTHS: [Width; 3] = [Width::Eight, Width::Sixteen, Width::ThirtyTwo];

/// Runs `body` with a span over all of `bytes`.
fn over<R>(bytes: &Bytes, body: impl FnOnce(Span<'_>) -> R) -> R {
    let bench = Bench::small();
    let key = bench.table.register(bench.pd, &[Range::at(bytes, 0)], ALL).unwrap();
    bench.with(key, 0, bytes.len(), body)
}

/// Fills the block word by word, because Miri forbids atomics of two widths at one address.
fn fill(bytes: &Bytes, content: &[u8]) {
    for (at, word) in content.chunks_exact(8).enumerate() {
        let value = u64::from_ne_bytes(word.try_into().unwrap());
        bytes.word(8 * at).unwrap().store(value, Ordering::Relaxed);
    }
}

fn content(bytes: &Bytes) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    bytes.read(0, &mut out).unwrap();
    out
}

#[test]
fn a_value_is_one_little_endian_integer_of_its_width() {
    let before: Vec<u8> = (0..96).collect();
    let limbs = [0x2726_2524_2322_2120, 0x2f2e_2d2c_2b2a_2928, 0x3736_3534_3332_3130, 0x3f3e_3d3c_3b3a_3938];
    let new = [0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728, 0x3132_3334_3536_3738];
    for width in WIDTHS {
        let bytes = Bytes::heap(96).unwrap();
        fill(&bytes, &before);
        let was = over(&bytes, |span| span.part(32, 64).unwrap().update(width, |_| Some(new))).unwrap();
        let used = width.bytes() / 8;
        assert_eq!(was[..used], limbs[..used], "{width:?}");
        assert_eq!(was[used..], [0; 4][used..], "{width:?}: unused limbs are zero");
        let written = b"\x08\x07\x06\x05\x04\x03\x02\x01\x18\x17\x16\x15\x14\x13\x12\x11\
            \x28\x27\x26\x25\x24\x23\x22\x21\x38\x37\x36\x35\x34\x33\x32\x31";
        let mut want = before.clone();
        want[32..32 + width.bytes()].copy_from_slice(&written[..width.bytes()]);
        assert_eq!(content(&bytes), want, "{width:?}: its neighbours are untouched");
    }
}

#[test]
fn none_leaves_the_value_and_says_it() {
    let bytes = Bytes::heap(64).unwrap();
    fill(&bytes, &[0x5a; 64]);
    for width in WIDTHS {
        let mut asked = Vec::new();
        let was = over(&bytes, |span| {
            span.update(width, |value| {
                asked.push(value);
                None
            })
        });
        assert_eq!(asked, [was.unwrap()]);
        assert_eq!(content(&bytes), [0x5a; 64]);
    }
}

#[test]
fn updates_that_are_misaligned_or_leave_the_span_are_refused() {
    let bytes = Bytes::heap(128).unwrap();
    over(&bytes, |span| {
        for width in WIDTHS {
            let len = width.bytes();
            let update = |at, len| {
                span.part(at, len).unwrap().update(width, |_| panic!("the update function was called"))
            };
            for at in (1..len).chain(len + 1..2 * len) {
                assert_eq!(update(at, len), Err(AccessError::Misaligned), "{width:?} at {at}");
            }
            assert_eq!(update(0, len - 1), Err(AccessError::OutOfBounds));
            assert_eq!(update(len, 0), Err(AccessError::OutOfBounds));
            assert!(span.part(len, len).unwrap().update(width, |_| None).is_ok());
        }
    });
    assert_eq!(content(&bytes), [0; 128]);
}

#[test]
fn widths_have_their_sizes() {
    for bytes in 0..=65 {
        let width = Width::from_bytes(bytes);
        assert_eq!(width.map(Width::bytes), [8, 16, 32].contains(&bytes).then_some(bytes));
    }
}

#[test]
fn words_are_written_wherever_there_is_room_for_all_of_them() {
    let words = [0x0102_0304_0506_0708, 0x1112_1314_1516_1718];
    for at in 0..9 {
        let bytes = Bytes::heap(40).unwrap();
        fill(&bytes, &[0x5a; 40]);
        assert!(over(&bytes, |span| span.part(at, 16).unwrap().write_words(&words)));
        let mut want = [0x5a; 40];
        want[at..at + 8].copy_from_slice(&words[0].to_ne_bytes());
        want[at + 8..at + 16].copy_from_slice(&words[1].to_ne_bytes());
        assert_eq!(content(&bytes), want, "at {at}");
        assert!(!over(&bytes, |span| span.part(at, 15).unwrap().write_words(&words)));
        assert_eq!(content(&bytes), want, "a word too many changes nothing");
    }
}

#[test]
fn wholes_have_bounds() {
    let bytes = Bytes::heap(64).unwrap();
    over(&bytes, |span| {
        let mut out = [1; 32];
        assert_eq!(span.read_whole(&mut out, 33), Err(AccessError::OutOfBounds));
        assert_eq!(span.write_whole(&out, 33), Err(AccessError::OutOfBounds));
        let short = span.part(0, 31).unwrap();
        assert_eq!(short.read_whole(&mut out, 32), Err(AccessError::OutOfBounds));
        assert_eq!(short.write_whole(&out, 32), Err(AccessError::OutOfBounds));
        assert_eq!(Span::empty().read_whole(&mut out, 0), Ok(()));
        assert_eq!(Span::empty().write_whole(&out, 0), Ok(()));
        assert_eq!(out, [1; 32]);
    });
    assert_eq!(content(&bytes), [0; 64]);
}

/// A multiplicative generator; good enough to choose cases.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }
}

/// Applies one operation to the engine's bytes and to the model's, which are plain slices.
fn random_step(random: &mut Random, span: &Span<'_>, model: &mut [u8]) {
    let data: [u8; 32] = std::array::from_fn(|_| random.next() as u8);
    // As in `fill`.
    let grain = if cfg!(miri) { !7 } else { !0 };
    let at = random.below(model.len() + 1) & grain;
    let len = random.below(33).min(model.len() - at) & grain;
    let part = span.part(at, len).unwrap();
    match random.below(3) {
        0 => {
            let mut out = [0xcc; 32];
            part.read_whole(&mut out, len).unwrap();
            assert_eq!(out[..len], model[at..at + len]);
            assert_eq!(out[len..], [0xcc; 32][len..]);
        }
        1 => {
            part.write_whole(&data, len).unwrap();
            model[at..at + len].copy_from_slice(&data[..len]);
        }
        _ => {
            let width = WIDTHS[random.below(3)];
            let at = if random.below(4) > 0 { at & !(width.bytes() - 1) } else { at };
            let wide = span.part(at, model.len() - at).unwrap();
            let limb = |bytes: &[u8], at: usize| {
                bytes.get(8 * at..8 * at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()))
            };
            let new = random.below(4).gt(&0).then(|| std::array::from_fn(|at| limb(&data, at)));
            let was = wide.update(width, |_| new);
            if model.len() - at < width.bytes() {
                assert_eq!(was, Err(AccessError::OutOfBounds));
            } else if at % width.bytes() != 0 {
                assert_eq!(was, Err(AccessError::Misaligned));
            } else {
                let target = &mut model[at..at + width.bytes()];
                assert_eq!(was.unwrap(), std::array::from_fn(|at| limb(target, at)));
                if new.is_some() {
                    target.copy_from_slice(&data[..width.bytes()]);
                }
            }
        }
    }
}

/// Runs with one engine, and with two, where every operation takes its locks.
///
/// Regression: the compare-and-swap of 16 bytes could be given rbx, which it exchanges first, as the
/// register of its address.
#[test]
fn random_updates_and_wholes_agree_with_a_plain_model() {
    for second in [false, true] {
        let bench = Bench::small();
        bench.table.use_wide().unwrap();
        let _second = second.then(|| Biased::new(&bench.table, ()));
        let bytes = Bytes::heap(160).unwrap();
        let key = bench.table.register(bench.pd, &[Range::at(&bytes, 0)], ALL).unwrap();
        let mut model = [0u8; 160];
        let mut random = Random(7);
        bench.with(key, 0, 160, |span| {
            for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
                random_step(&mut random, &span, &mut model);
            }
        });
        assert_eq!(content(&bytes), model);
    }
}

/// Adds one to every limb. Wrapping, so the words are sums of their own.
fn count(value: [u64; 4]) -> Option<[u64; 4]> {
    Some(value.map(|limb| limb.wrapping_add(1)))
}

/// Runs two engines, each on its own thread, whose counting operations overlap. No count may be lost.
fn hammer(table: &Arc<Table>, pd: Pd, key: Key, turns: u64, begin: impl Fn() + Sync) {
    let engines = [Biased::new(table, ()), Biased::new(table, ())];
    let together = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for engine in &engines {
            scope.spawn(|| {
                together.wait();
                for turn in 0..turns {
                    // Lets the other engine interleave now and then, even if both share a core.
                    let count = |value| {
                        if turn % 16 == 0 {
                            std::thread::yield_now();
                        }
                        count(value)
                    };
                    if turn == turns / 4 {
                        begin();
                    }
                    let mut pass = engine.enter();
                    let (_, mem) = pass.parts();
                    let span = mem.check(pd, key, 32, 32, ALL).unwrap();
                    let part = |at, len| span.part(at, len).unwrap();
                    part(0, 8).update(Width::Eight, count).unwrap();
                    part(16, 16).update(Width::Sixteen, count).unwrap();
                    part(24, 8).fetch_add64(1).unwrap();
                    if turn >= turns / 4 {
                        span.update(Width::ThirtyTwo, count).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn updates_of_all_widths_by_two_engines_lose_nothing() {
    let turns = if cfg!(miri) { 40 } else { 40_000 };
    let table = Arc::new(Table::new(Config::small()).unwrap());
    let pd = table.alloc_pd().unwrap();
    let bytes = Bytes::heap(96).unwrap();
    let key = table.register(pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    // Wide updates are enabled while both engines run: each calls `use_wide` before its first one.
    hammer(&table, pd, key, turns, || table.use_wide().unwrap());
    let word = |at| bytes.word(at).unwrap().load(Ordering::Relaxed);
    let all = 2 * turns;
    let wide = 2 * (turns - turns / 4);
    assert_eq!([word(32), word(40), word(48), word(56)], [all + wide, wide, all + wide, 2 * all + wide]);
    assert_eq!((word(24), word(64)), (0, 0));
}

/// All 32 bytes are equal in every view: the whole, halves, words, and an odd range.
#[test]
fn no_engine_sees_half_of_an_update() {
    let turns = if cfg!(miri) { 30 } else { 100_000 };
    let table = Arc::new(Table::new(Config::small()).unwrap());
    let pd = table.alloc_pd().unwrap();
    let bytes = Bytes::heap(64).unwrap();
    let key = table.register(pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    table.use_wide().unwrap();
    let writer = Biased::new(&table, ());
    let reader = Biased::new(&table, ());
    let done = AtomicBool::new(false);
    let together = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            together.wait();
            for turn in 0..turns {
                let mut pass = writer.enter();
                let span = pass.parts().1.check(pd, key, 32, 32, ALL).unwrap();
                let next = (turn as u8).wrapping_add(1);
                if turn % 2 == 0 {
                    span.update(Width::ThirtyTwo, |_| Some([u64::from_ne_bytes([next; 8]); 4])).unwrap();
                } else {
                    span.write_whole(&[next; 32], 32).unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
        together.wait();
        while !done.load(Ordering::Acquire) {
            let mut pass = reader.enter();
            let span = pass.parts().1.check(pd, key, 32, 32, ALL).unwrap();
            for (at, len) in [(0, 32), (0, 16), (16, 16), (8, 24), (8, 16), (3, 26)] {
                let mut out = [0; 32];
                span.part(at, len).unwrap().read_whole(&mut out, len).unwrap();
                assert!(out[..len].iter().all(|byte| *byte == out[0]), "{at}, {len}: {out:?}");
            }
            let value = span.update(Width::ThirtyTwo, |_| None).unwrap();
            assert!(value.iter().all(|limb| *limb == value[0]), "{value:x?}");
        }
    });
}

/// Words of one update that are read one after the other: once the first is new, so is the second.
#[test]
fn words_read_one_after_the_other_are_never_older() {
    let turns: u64 = if cfg!(miri) { 30 } else { 30_000 };
    let table = Arc::new(Table::new(Config::small()).unwrap());
    let pd = table.alloc_pd().unwrap();
    let bytes = Bytes::heap(64).unwrap();
    let key = table.register(pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    table.use_wide().unwrap();
    let writer = Biased::new(&table, ());
    let reader = Biased::new(&table, ());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..turns {
                let mut pass = writer.enter();
                let span = pass.parts().1.check(pd, key, 0, 32, ALL).unwrap();
                span.update(Width::ThirtyTwo, count).unwrap();
            }
        });
        let mut last = 0;
        while last < turns {
            let mut pass = reader.enter();
            let span = pass.parts().1.check(pd, key, 0, 32, ALL).unwrap();
            for at in [0, 24, 8, 16, 0] {
                let mut out = [0; 32];
                span.part(at, 8).unwrap().read_whole(&mut out, 8).unwrap();
                let now = u64::from_ne_bytes(out[..8].try_into().unwrap());
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        }
    });
}

/// 8 and 16 bytes are atomic against a CPU that takes no lock.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn small_updates_and_a_cpu_lose_nothing() {
    let turns = 40_000;
    let bytes = Bytes::heap(64).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..turns {
                bytes.word(0).unwrap().fetch_add(1, Ordering::Relaxed);
                bytes.word(24).unwrap().fetch_add(1, Ordering::Relaxed);
            }
        });
        over(&bytes, |span| {
            for _ in 0..turns {
                span.update(Width::Eight, count).unwrap();
                span.part(16, 16).unwrap().update(Width::Sixteen, count).unwrap();
            }
        });
    });
    let word = |at| bytes.word(at).unwrap().load(Ordering::Relaxed);
    assert_eq!((word(0), word(16), word(24)), (2 * turns, turns, 2 * turns));
}

#[test]
fn wide_updates_do_not_come_into_use_inside_a_pass() {
    let bench = Bench::small();
    let pass = bench.engine.enter();
    assert_eq!(bench.table.use_wide(), Err(Error::InsidePass));
    drop(pass);
    assert_eq!((bench.table.use_wide(), bench.table.use_wide()), (Ok(()), Ok(())));
}

#[test]
#[should_panic = "an engine was created inside a pass of another engine"]
fn no_engine_is_made_inside_a_pass() {
    let bench = Bench::small();
    let _pass = bench.engine.enter();
    drop(Biased::new(&bench.table, ()));
}
