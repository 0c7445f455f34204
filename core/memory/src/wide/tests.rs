use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C, align(16))]
struct Pair([AtomicU64; 2]);

impl Pair {
    fn new() -> Pair {
        Pair([const { AtomicU64::new(0) }; 2])
    }

    fn pointer(&self) -> *mut u128 {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// Returns a value whose words in memory are these.
fn value(words: [u64; 2]) -> u128 {
    // SAFETY: both types are 16 bytes, of which every value is valid.
    unsafe { std::mem::transmute(words) }
}

const TURNS: u64 = 20_000;

/// Regression: on ARM64 a compare-and-swap of 16 bytes lost what the program had changed
/// between its load and its stores.
#[test]
#[cfg_attr(miri, ignore = "the portable operations are not atomic against the program")]
fn a_compare_and_swap_loses_no_addition_of_the_program() {
    let pair = Pair::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..TURNS {
                pair.0[1].fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..TURNS {
            loop {
                // SAFETY: the pair is 16 aligned bytes of atomics; so below.
                let was = unsafe { load_writable(pair.pointer()) }.unwrap();
                // SAFETY: as in `value`.
                let [first, second]: [u64; 2] = unsafe { std::mem::transmute(was) };
                // SAFETY: as above.
                let swapped = unsafe { compare_swap(pair.pointer(), was, value([first + 1, second])) };
                if swapped == Some(was) {
                    break;
                }
            }
        }
    });
    assert_eq!(pair.0.each_ref().map(|word| word.load(Ordering::SeqCst)), [TURNS, TURNS]);
}

#[test]
fn values_keep_the_order_of_their_bytes() {
    let pair = Pair::new();
    let old = value([1, 2]);
    // SAFETY: as above.
    unsafe {
        assert!(store(pair.pointer(), old));
        assert_eq!(pair.0.each_ref().map(|word| word.load(Ordering::SeqCst)), [1, 2]);
        assert_eq!([load(pair.pointer()), load_writable(pair.pointer())], [Some(old); 2]);
        for other in [[1, 3], [3, 2]] {
            assert_eq!(compare_swap(pair.pointer(), value(other), 7), Some(old), "one half differs");
        }
        assert_eq!(compare_swap(pair.pointer(), old, value([8, 9])), Some(old));
    }
    assert_eq!(pair.0.each_ref().map(|word| word.load(Ordering::SeqCst)), [8, 9]);
}
