use super::*;

type Copy = unsafe fn(*mut u8, *const u8, usize) -> bool;

/// Lengths around every boundary between methods of copying.
const LENGTHS: [usize; 40] = [
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 191, 255, 256,
    257, 287, 288, 300, 383, 384, 385, 511, 1000, 4095, 4096, 4097, 5000, 9000,
];

/// Copies every length at many alignments of both sides, and checks that exactly the right bytes change.
fn exact(copy: Copy, shortest: usize, longest: usize) {
    const MARGIN: usize = 96;
    let size = if cfg!(miri) { 300u32 } else { 16_000 };
    let source: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut target = vec![0xa5u8; size as usize];
    let offsets: &[usize] = if cfg!(miri) { &[0, 3] } else { &[0, 1, 4, 8, 15, 31, 32, 33, 56, 63] };
    // Miri is a thousand times slower than the machine.
    let longest = if cfg!(miri) { longest.min(33) } else { longest };
    for &len in LENGTHS.iter().filter(|len| (shortest..=longest).contains(len)) {
        for (&from, &to) in offsets.iter().flat_map(|from| offsets.iter().map(move |to| (from, to))) {
            let to = MARGIN + to;
            // SAFETY: both sides lie within their vectors, which are longer than the longest length and
            // offsets.
            let copied = unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
            assert!(copied);
            assert_eq!(target[to..to + len], source[from..from + len], "{len} bytes from {from} to {to}");
            let around = target[..to].iter().chain(&target[to + len..to + len + MARGIN]);
            assert!(
                around.clone().all(|byte| *byte == 0xa5),
                "{len} bytes from {from} to {to} wrote outside"
            );
            target[to..to + len].fill(0xa5);
        }
    }
}

#[test]
fn every_length_and_alignment_arrives_exactly() {
    exact(place, 0, usize::MAX);
    exact(fetch, 0, usize::MAX);
    exact(transfer, 0, usize::MAX);
}

#[test]
#[cfg_attr(miri, ignore = "under Miri the test before this one is the same")]
fn the_portable_copy_arrives_exactly() {
    exact(portable::place, 0, usize::MAX);
    exact(portable::fetch, 0, usize::MAX);
    exact(portable::transfer, 0, usize::MAX);
}

#[test]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn either_way_of_scattering_places_two_lines_and_nothing_beside_them() {
    #[repr(C, align(64))]
    struct Buffer([u8; 3 * SCATTERED]);
    let source = Buffer(std::array::from_fn(|at| at as u8));
    let scatters = [x86_64::scatter_narrow, x86_64::scatter_wide];
    let known = if std::is_x86_feature_detected!("avx") { 2 } else { 1 };
    for scatter in &scatters[..known] {
        for to in [0, 32, SCATTERED, 2 * SCATTERED] {
            let mut target = Buffer([0xa5; 3 * SCATTERED]);
            // SAFETY: within both, and aligned.
            assert!(unsafe { scatter(target.0.as_mut_ptr().add(to), source.0.as_ptr().add(64)) });
            settle();
            let mut wanted = [0xa5; 3 * SCATTERED];
            wanted[to..to + SCATTERED].copy_from_slice(&source.0[64..64 + SCATTERED]);
            assert_eq!(target.0, wanted, "{to}");
        }
    }
}

/// Includes the copy methods that this machine would not choose by itself.
#[test]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn every_way_arrives_exactly() {
    exact(x86_64::copy_narrow, 65, usize::MAX);
    exact(x86_64::copy_string, 65, usize::MAX);
    if std::is_x86_feature_detected!("avx") {
        exact(x86_64::copy_wide_shortest, 64, 128);
        exact(x86_64::copy_wide_short, 128, 256);
        exact(x86_64::copy_wide, 256, usize::MAX);
    }
}

/// A poller that waits for the last byte of a message must then see all of it.
#[test]
#[cfg_attr(miri, ignore = "thousands of turns of two spinning threads take Miri minutes")]
fn the_last_byte_becomes_visible_last() {
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    for len in [3usize, 12, 40, 64, 100, 200, 1000, 4096, 10_000] {
        let buffer: Vec<AtomicU8> = (0..len).map(|_| AtomicU8::new(0)).collect();
        let torn = AtomicBool::new(false);
        let turn = AtomicU8::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in (1..=255u8).cycle().take(if len > 1000 { 100 } else { 300 }) {
                    let message = vec![value; len];
                    // SAFETY: the buffer is `len` atomics of a byte each.
                    assert!(unsafe { place(buffer.as_ptr().cast_mut().cast(), message.as_ptr(), len) });
                    while turn.load(Ordering::Acquire) != value {
                        std::thread::yield_now();
                    }
                }
                turn.store(0, Ordering::Release);
                buffer[len - 1].store(0, Ordering::Release);
            });
            scope.spawn(|| {
                let mut last = 0;
                loop {
                    let seen = buffer[len - 1].load(Ordering::Acquire);
                    if seen == last {
                        std::hint::spin_loop();
                        std::thread::yield_now();
                        continue;
                    }
                    if seen == 0 {
                        break;
                    }
                    if buffer.iter().any(|byte| byte.load(Ordering::Relaxed) != seen) {
                        torn.store(true, Ordering::Relaxed);
                    }
                    last = seen;
                    turn.store(seen, Ordering::Release);
                }
            });
        });
        assert!(!torn.load(Ordering::Relaxed), "{len} bytes");
    }
}

/// Number of turns that a reader and a writer take in the tests of memory order.
const TURNS: u8 = if cfg!(miri) { 12 } else { 250 };

/// Regression: on machines that reorder loads a copy could read the words between the two versions of a line
/// before or after both versions, so that a torn line passed for whole (`farm` of remora-store).
#[test]
fn equal_versions_at_both_ends_of_a_line_that_was_fetched_prove_it_whole() {
    use std::sync::atomic::{AtomicU8, Ordering, fence};
    #[repr(align(64))]
    struct Line([AtomicU8; 64]);
    const LOCKED: u8 = 0;
    let line = Line([const { AtomicU8::new(LOCKED) }; 64]);
    let set = |bytes: &[AtomicU8], value| bytes.iter().for_each(|byte| byte.store(value, Ordering::Relaxed));
    let set_versions = |version| {
        fence(Ordering::Release);
        set(&line.0[..1], version);
        set(&line.0[63..], version);
        fence(Ordering::Release);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..=TURNS {
                set_versions(LOCKED);
                set(&line.0[1..63], version);
                set_versions(version);
            }
        });
        let mut seen = [LOCKED; 64];
        while seen[0] != TURNS || seen[63] != TURNS {
            // SAFETY: the line is 64 atomics of a byte each.
            assert!(unsafe { fetch(seen.as_mut_ptr(), line.0.as_ptr().cast(), 64) });
            if seen[0] == seen[63] && seen[0] != LOCKED {
                assert_eq!(seen, [seen[0]; 64], "a torn line has equal versions");
            }
        }
    });
}

/// Regression: on machines that reorder stores, a program that polled a flag in the middle of a message could
/// see the flag before the bytes in front of it.
#[test]
fn bytes_are_placed_in_rising_order() {
    use std::sync::atomic::{AtomicU8, Ordering};
    const LEN: usize = if cfg!(miri) { 40 } else { 1000 };
    #[repr(align(64))]
    struct Buffer([AtomicU8; LEN]);
    let buffer = Buffer([const { AtomicU8::new(0) }; LEN]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                // SAFETY: the buffer is `LEN` atomics of a byte each.
                assert!(unsafe { place(buffer.0.as_ptr().cast_mut().cast(), [turn; LEN].as_ptr(), LEN) });
            }
        });
        let mut last = 0;
        while last != TURNS {
            last = buffer.0[LEN - 1].load(Ordering::Acquire);
            let mut newest = last;
            // Each byte is loaded after the one behind it.
            for byte in buffer.0.iter().rev() {
                let turn = byte.load(Ordering::Acquire);
                assert!(turn >= newest, "a byte of turn {newest} was visible before one in front of it");
                newest = turn;
            }
        }
    });
}
