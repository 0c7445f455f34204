//! Pages whose mapping is being replaced. They are read-only meanwhile, and a thread that writes to them
//! waits in the signal handler.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of ranges, the last that were moved, in which a fault may be a late one: the thread faulted while
/// the pages were read-only, and its handler runs when they are writable.
const REMEMBERED: usize = 64;
/// Number of times that a thread may fault at one address before the fault counts as the program's own.
const RETRIES: usize = 1000;

/// The first address and the end of a range.
struct AtomicRange {
    first: AtomicUsize,
    end: AtomicUsize,
}

impl AtomicRange {
    const fn empty() -> AtomicRange {
        AtomicRange { first: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn set(&self, first: usize, end: usize) {
        // Between these stores the range is empty.
        self.end.store(0, Ordering::SeqCst);
        self.first.store(first, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
    }

    fn contains(&self, address: usize) -> bool {
        address < self.end.load(Ordering::SeqCst) && address >= self.first.load(Ordering::SeqCst)
    }
}

static MOVING: AtomicRange = AtomicRange::empty();
static MOVED: [AtomicRange; REMEMBERED] = [const { AtomicRange::empty() }; REMEMBERED];
static LAST_FAULT: AtomicUsize = AtomicUsize::new(0);
static SAME_FAULTS: AtomicUsize = AtomicUsize::new(0);
/// The number of moves so far. Its lock lets one thread at a time move pages.
static MOVES: Mutex<usize> = Mutex::new(0);

/// Calls `replace`, which replaces the mapping of the `len` bytes from `first` on. Meanwhile, threads that
/// write to these pages and find them read-only wait.
pub(super) fn while_moving<R>(first: usize, len: usize, replace: impl FnOnce() -> R) -> R {
    let mut moves = MOVES.lock().unwrap_or_else(PoisonError::into_inner);
    let end = first.saturating_add(len);
    MOVED[*moves % REMEMBERED].set(first, end);
    *moves = moves.wrapping_add(1);
    MOVING.set(first, end);
    let replaced = replace();
    MOVING.set(0, 0);
    replaced
}

/// Waits until the page of a fault is moved. Returns whether the thread must repeat its access.
pub(super) fn awaits(address: usize) -> bool {
    if MOVING.contains(address) {
        while MOVING.contains(address) {
            std::hint::spin_loop();
        }
        return true;
    }
    if !MOVED.iter().any(|range| range.contains(address)) {
        return false;
    }
    if LAST_FAULT.swap(address, Ordering::Relaxed) != address {
        SAME_FAULTS.store(0, Ordering::Relaxed);
    }
    SAME_FAULTS.fetch_add(1, Ordering::Relaxed) < RETRIES
}
