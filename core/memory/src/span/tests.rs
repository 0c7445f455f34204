use crate::*;
use std::sync::Arc;

/// Runs `body` with a span over all of `bytes`.
fn over<R>(bytes: &Bytes, body: impl FnOnce(Span<'_>) -> R) -> R {
    let table = Arc::new(Table::new(Config { on_nic_bytes: 0, ..Config::small() }).unwrap());
    let pd = table.alloc_pd().unwrap();
    let engine = Biased::new(&table, ());
    let key = table.register(pd, &[Range::at(bytes, 0)], Access::LOCAL_WRITE).unwrap();
    let mut pass = engine.enter();
    let (_, mem) = pass.parts();
    body(mem.check(pd, key, 0, bytes.len(), Access::LOCAL_WRITE).unwrap())
}

#[test]
fn atomics_do_what_their_names_say() {
    let bytes = Bytes::heap(64).unwrap();
    over(&bytes, |span| {
        let word = span.part(8, 8).unwrap();
        assert_eq!(word.store64(5), Ok(()));
        assert_eq!(word.compare_swap64(4, 9), Ok(5));
        assert_eq!(word.load64(), Ok(5), "the value was not swapped");
        assert_eq!(word.compare_swap64(5, u64::MAX), Ok(5));
        assert_eq!(word.fetch_add64(2), Ok(u64::MAX));
        assert_eq!(bytes.word(8).unwrap().load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(
            bytes.word(0).unwrap().load(std::sync::atomic::Ordering::Relaxed),
            0,
            "its neighbour is untouched"
        );
    });
}

#[test]
fn misaligned_and_short_atomics_are_refused() {
    let bytes = Bytes::heap(64).unwrap();
    over(&bytes, |span| {
        for at in [1, 2, 4, 7, 9] {
            let part = span.part(at, 16).unwrap();
            assert_eq!(part.fetch_add64(1), Err(AccessError::Misaligned));
            assert_eq!(part.compare_swap64(0, 1), Err(AccessError::Misaligned));
            assert_eq!(part.load64(), Err(AccessError::Misaligned));
            assert_eq!(part.store64(1), Err(AccessError::Misaligned));
        }
        assert_eq!(span.part(0, 7).unwrap().fetch_add64(1), Err(AccessError::OutOfBounds));
    });
    let mut seen = [1; 64];
    bytes.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 64]);
}

/// Two engines, and a CPU thread beside them, count in one word.
#[test]
fn atomics_of_two_engines_and_of_a_cpu_lose_nothing() {
    let turns: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let table = Arc::new(Table::new(Config::small()).unwrap());
    let pd = table.alloc_pd().unwrap();
    let bytes = Bytes::heap(64).unwrap();
    let all = Access::from_bits(0xf).unwrap();
    let key = table.register(pd, &[Range::at(&bytes, 0)], all).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let engine = Biased::new(&table, ());
                for _ in 0..turns {
                    let mut pass = engine.enter();
                    let (_, mem) = pass.parts();
                    let span = mem.check(pd, key, 0, 64, Access::REMOTE_ATOMIC).unwrap();
                    span.fetch_add64(1).unwrap();
                }
            });
        }
        for _ in 0..turns {
            bytes.word(0).unwrap().fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert_eq!(bytes.word(0).unwrap().load(std::sync::atomic::Ordering::Relaxed), 3 * turns);
}

#[test]
fn lines_arrive_whole_wherever_they_go_and_however_much_there_is_room_for() {
    let bytes = Bytes::heap(4096).unwrap();
    let lines = Lines(std::array::from_fn(|at| at as u8 + 1));
    over(&bytes, |span| {
        for (offset, len) in [(0, 128), (64, 128), (128 + 8, 128), (3, 128), (256, 100), (256, 200), (0, 0)] {
            assert_ne!(span.write(&[0; 1024]), 0);
            assert_eq!(span.part(offset, len).unwrap().scatter(&lines), len.min(128));
            settle();
            let mut wanted = [0; 1024];
            wanted[offset..offset + len.min(128)].copy_from_slice(&lines.0[..len.min(128)]);
            let mut there = [9; 1024];
            assert_ne!(span.read(&mut there), 0);
            assert_eq!(there, wanted, "{len} bytes at {offset}");
        }
    });
}
