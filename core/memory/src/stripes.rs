//! The locks that make 32-byte updates atomic between engines.
//!
//! No CPU has an atomic operation of 32 bytes, so an update of that width is several loads and stores, and
//! the bytes must not change meanwhile. A single engine needs no lock. If several engines share a table and
//! one of them may update 32 bytes ([`Table::use_wide`](crate::Table::use_wide)), every update of any
//! width, every atomic, and every `read_whole` and `write_whole` takes the lock of its 32-byte block.
//! Otherwise each of them only pays a load and a branch not taken.
//!
//! The locks belong to the process, not to the table, so that a span, which is two words, needs no third
//! one to find its lock. Therefore the engines of a table that needs no locks take them while another table
//! in the process needs them.
//!
//! A lock is a version, odd while the lock is held (a sequence lock), so readers of words write nothing
//! that other threads read. The block's offset in its page selects the lock: memory that is mapped twice
//! has one lock for both addresses.
//!
//! **How the flag is raised.** Each operation of a pass looks at the flag, and a pass that found it down
//! may be in the middle of an operation. The caller that raises it therefore waits for all passes in
//! progress before it returns. The caller is the first `use_wide` of a table with several engines, or the
//! creation of the second engine after `use_wide`. Wide updates that could meet another engine begin only
//! after that, and passes that begin later see the flag, as with the death of a key (`pass`). The flag goes
//! down when the table is dropped.

use crate::pass::{Pass, Passes};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop, yield_now};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the block that one lock guards: the size of the widest update, which is aligned to its width.
const BLOCK: usize = 32;

/// Number of blocks in a page, the smallest unit that can be mapped twice.
const STRIPES: usize = if cfg!(loom) { 2 } else { 4096 / BLOCK };

/// Number of failed attempts after which a reader takes the lock.
const TRIES: usize = if cfg!(loom) { 2 } else { 16 };

struct Locks {
    /// Number of tables in which several engines use wide updates.
    needed: AtomicU64,
    stripes: [Stripe; STRIPES],
}

#[cfg(not(loom))]
static LOCKS: Locks =
    Locks { needed: AtomicU64::new(0), stripes: [const { Stripe { version: AtomicU64::new(0) } }; STRIPES] };
#[cfg(loom)]
loom::lazy_static! {
    static ref LOCKS: Locks = Locks {
        needed: AtomicU64::new(0),
        stripes: std::array::from_fn(|_| Stripe { version: AtomicU64::new(0) }),
    };
}

/// Returns whether operations must take the locks. Every operation calls this: it is one load.
#[inline(always)]
pub(crate) fn needed() -> bool {
    LOCKS.needed.load(Ordering::Relaxed) != 0
}

/// A lock, alone in its cache line.
#[repr(align(64))]
struct Stripe {
    /// The version: odd while the lock is held, incremented at each change.
    version: AtomicU64,
}

struct Held {
    stripe: &'static Stripe,
    version: u64,
}

/// The one or two locks over a range of bytes.
pub(crate) struct Alone {
    _first: Held,
    _second: Option<Held>,
}

impl Stripe {
    fn hold(&'static self) -> Held {
        let mut turns = 0;
        loop {
            let version = self.version.load(Ordering::Relaxed);
            let odd = version.wrapping_add(1);
            let take = || {
                self.version.compare_exchange_weak(version, odd, Ordering::Acquire, Ordering::Relaxed).is_ok()
            };
            if version & 1 == 0 && take() {
                // A thread that sees one of the changes made under the lock also sees the odd version.
                fence(Ordering::Release);
                return Held { stripe: self, version: odd };
            }
            pause(&mut turns);
        }
    }

    /// Returns the result of a `read` during which no other thread held the lock.
    fn look<R>(&'static self, mut read: impl FnMut() -> R) -> R {
        let mut turns = 0;
        for _ in 0..TRIES {
            let before = self.version.load(Ordering::Acquire);
            if before & 1 == 0 {
                let seen = read();
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return seen;
                }
            }
            pause(&mut turns);
        }
        let _held = self.hold();
        read()
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.stripe.version.store(self.version.wrapping_add(1), Ordering::Release);
    }
}

/// Waits a moment for a lock, which is held only for some loads and stores unless its thread was preempted.
fn pause(turns: &mut u32) {
    *turns += 1;
    if *turns < 200 && !cfg!(loom) { spin_loop() } else { yield_now() }
}

/// Returns the index of the lock of the byte at this address.
fn index(at: usize) -> usize {
    at / BLOCK % STRIPES
}

/// Takes the locks over `len` bytes (1 to 32) if they are [`needed`].
#[inline]
pub(crate) fn hold(at: *const u8, len: usize) -> Option<Alone> {
    needed().then(|| hold_both(at as usize, len))
}

/// Takes the locks over `len` bytes. Bytes in two blocks have two locks, which every thread takes in the
/// order of their indices.
fn hold_both(at: usize, len: usize) -> Alone {
    let a = index(at);
    let b = index(at.wrapping_add(len.saturating_sub(1)));
    let first = LOCKS.stripes[a.min(b)].hold();
    Alone { _first: first, _second: (a != b).then(|| LOCKS.stripes[a.max(b)].hold()) }
}

/// Runs `body`, an atomic operation on the aligned word at `at`, under the lock of the word.
#[cold]
#[inline(never)]
pub(crate) fn alone<R>(at: *const u8, body: impl FnOnce() -> R) -> R {
    let _alone = hold_both(at as usize, 1);
    body()
}

/// Reads `len` bytes (1 to 32) as of one moment. `read` may be called several times. If `racing` is set,
/// `read` may run while another thread holds the lock: it must then read only words whose race with other
/// threads is defined.
pub(crate) fn look<R>(at: *const u8, len: usize, racing: bool, mut read: impl FnMut() -> R) -> R {
    let at = at as usize;
    if racing && index(at) == index(at.wrapping_add(len.saturating_sub(1))) {
        return LOCKS.stripes[index(at)].look(read);
    }
    let _alone = hold_both(at, len);
    read()
}

/// The demand of one table for the locks.
#[derive(Debug, Default)]
pub(crate) struct Demand(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// True once wide updates are enabled.
    wide: bool,
    /// True once several engines share the table as well: the table is then counted in `Locks::needed`.
    raised: bool,
}

impl Demand {
    /// Adds an engine. The caller must not be inside a pass.
    pub(crate) fn add(&self, passes: &Passes) -> Arc<Pass> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = passes.add();
        state.settle(passes);
        pass
    }

    /// Enables wide updates. The caller must not be inside a pass.
    pub(crate) fn use_wide(&self, passes: &Passes) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.wide = true;
        state.settle(passes);
    }
}

impl State {
    /// Raises the flag if the table needs the locks now. The caller holds the mutex to the end, so that no
    /// other thread believes the passes have ended while this one still waits for them.
    fn settle(&mut self, passes: &Passes) {
        if self.wide && !self.raised && passes.count() > 1 {
            self.raised = true;
            LOCKS.needed.fetch_add(1, Ordering::SeqCst);
            passes.quiesce();
        }
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.raised {
            LOCKS.needed.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
