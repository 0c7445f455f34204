//! The locks that make 32-byte updates atomic between engines.
//!
//! No CPU has an atomic of 32 bytes, so an update of that width is some loads and some stores, and others
//! must not change the bytes meanwhile. One engine alone needs no lock. It is different where several share a
//! table and one of them may update 32 bytes ([`Table::use_wide`](crate::Table::use_wide)). Then every update
//! of any width, every atomic, and every read and write of a whole takes the lock of its 32-byte block. Until
//! then all of them pay a load and a branch not taken.
//!
//! The locks are the process's, not the table's, so that a span, two words, needs no third one to find its
//! lock. A table that needs none may have to take them while another table in the process needs them.
//!
//! A lock is a version, odd while it is held (a sequence lock), so readers of words write nothing that others
//! read. The block's offset in its page chooses the lock: memory that is mapped twice has one lock for both
//! addresses.
//!
//! **How the flag goes up.** Each operation of a pass looks at it, and a pass that found it down may be in
//! the middle of an operation. The caller that raises it waits for all passes under way before it returns.
//! That is the first `use_wide` of a table with several engines, or the second engine of a table after
//! `use_wide`. Wide updates that others could meet begin after that, and passes that began later see the
//! flag, as with the death of a key (`pass`). The flag goes down with the table.

use crate::pass::{Pass, Passes};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop, yield_now};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the block that one lock guards: the widest update, which is aligned to its width.
const BLOCK: usize = 32;

/// Blocks in a page, the smallest unit that can be mapped twice.
const STRIPES: usize = if cfg!(loom) { 2 } else { 4096 / BLOCK };

/// How often a reader is disturbed before it takes the lock.
const TRIES: usize = if cfg!(loom) { 2 } else { 16 };

struct Locks {
    /// Tables in which several engines meet wide updates.
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

/// Must operations take the locks? One load, which every operation repeats.
#[inline(always)]
pub(crate) fn needed() -> bool {
    LOCKS.needed.load(Ordering::Relaxed) != 0
}

/// A lock, alone in its cache line.
#[repr(align(64))]
struct Stripe {
    /// Odd while the lock is held; counts up at each change.
    version: AtomicU64,
}

struct Held {
    stripe: &'static Stripe,
    version: u64,
}

/// The lock or both locks over some bytes.
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
                // A thread that sees one of the changes below also sees the odd version.
                fence(Ordering::Release);
                return Held { stripe: self, version: odd };
            }
            pause(&mut turns);
        }
    }

    /// The outcome of a `read` that no holder of the lock came in between.
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

/// A lock is held for some loads and stores, unless its thread was preempted.
fn pause(turns: &mut u32) {
    *turns += 1;
    if *turns < 200 && !cfg!(loom) { spin_loop() } else { yield_now() }
}

/// Which lock the byte at this address has.
fn index(at: usize) -> usize {
    at / BLOCK % STRIPES
}

/// Takes the locks over `len` bytes (1 to 32) if they are [`needed`].
#[inline]
pub(crate) fn hold(at: *const u8, len: usize) -> Option<Alone> {
    needed().then(|| hold_both(at as usize, len))
}

/// Bytes in two blocks have two locks, taken in the order of their indices, as everybody does.
fn hold_both(at: usize, len: usize) -> Alone {
    let (a, b) = (index(at), index(at.wrapping_add(len.saturating_sub(1))));
    let first = LOCKS.stripes[a.min(b)].hold();
    Alone { _first: first, _second: (a != b).then(|| LOCKS.stripes[a.max(b)].hold()) }
}

/// Runs `body` under the lock over the aligned word at `at`: how an atomic meets wide updates.
#[cold]
#[inline(never)]
pub(crate) fn alone<R>(at: *const u8, body: impl FnOnce() -> R) -> R {
    let _alone = hold_both(at as usize, 1);
    body()
}

/// Reads `len` bytes (1 to 32) as of one moment. `read` may run several times. If `racing`, it may run beside
/// a holder of the lock: it reads words whose race with others is defined.
pub(crate) fn look<R>(at: *const u8, len: usize, racing: bool, mut read: impl FnMut() -> R) -> R {
    let at = at as usize;
    if racing && index(at) == index(at.wrapping_add(len.saturating_sub(1))) {
        return LOCKS.stripes[index(at)].look(read);
    }
    let _alone = hold_both(at, len);
    read()
}

/// The share of one table in the locks.
#[derive(Debug, Default)]
pub(crate) struct Demand(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Wide updates are in use.
    wide: bool,
    /// And several engines share the table: it is among those that are counted.
    raised: bool,
}

impl Demand {
    /// Adds an engine. The caller is inside no pass.
    pub fn add(&self, passes: &Passes) -> Arc<Pass> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = passes.add();
        state.settle(passes);
        pass
    }

    /// Brings wide updates into use. The caller is inside no pass.
    pub fn use_wide(&self, passes: &Passes) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.wide = true;
        state.settle(passes);
    }
}

impl State {
    /// The mutex is held to the end, so that no other thread believes the passes are over while this one
    /// still waits for them.
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
