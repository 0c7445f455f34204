//! The lock protocol of one engine, and the wait for passes to end. The fences are explained in `barrier`.
//!
//! An engine is entered millions of times a second by one thread, and now and then by another (a helper, a
//! second application thread, a deregistration that must wait). Taking and releasing an ordinary lock would
//! cost a quarter of a small verb, so the lock is *biased*. The thread that owns the bias marks its own
//! busy word, checks that it still owns the bias, and is inside: two plain stores and no fence. Another
//! thread takes the mutex, withdraws the bias, executes the heavy fence, and waits for the busy word to
//! become even. (Dice, Moir and Scherer, "Quickly reacquirable locks", 2003.)
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `owner` | holder of the mutex | number of the biased thread << 3, and its slot; or 0 |
//! | `slots[i]` | the thread in `threads[i]` | odd: that thread is inside, or is about to fail |
//! | `plain` | holder of the mutex | odd: the holder is inside |
//! | `threads[i]` | holder of the mutex | the thread that owns slot `i` until it gives the slot back |
//!
//! A slot belongs to one thread until that thread gives it back, because a thread that lost the bias may
//! still be about to write its busy word. If the word were shared, the write would overwrite the mark of
//! the next owner. A signal handler may interrupt the thread just before that write, so it gives no slot
//! back (`Attempt`).

use crate::barrier;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, spin_loop, yield_now};
use std::sync::atomic::compiler_fence;
use std::sync::{Arc, PoisonError, TryLockError};

/// Number of threads that can own the bias of one engine, or have lost it without noticing yet. A thread
/// that died while it owned the bias keeps its slot; when all slots are lost, the lock stays a plain mutex.
const SLOTS: usize = 6;
const SLOT_BITS: u32 = 3;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// Number of passes that a bias must last to have been worth its fence (some microseconds).
const WORTHWHILE: u64 = 4096;
/// Number of consecutive plain passes that earn a thread the bias: initially after a worthwhile bias, and
/// at most.
const PATIENCE_MIN: u64 = 16;
const PATIENCE_MAX: u64 = 1 << 16;

/// The lock of one engine, which also marks a pass in progress.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Pass {
    owner: AtomicU64,
    plain: AtomicU64,
    slots: [AtomicU64; SLOTS],
    threads: [AtomicU64; SLOTS],
    /// The thread that is inside by the mutex, or 0.
    holder: AtomicU64,
    lock: Mutex<Policy>,
}

/// The policy that chooses the thread that gets the bias.
#[derive(Debug)]
pub(crate) struct Policy {
    last: u64,
    streak: u64,
    patience: u64,
    /// The owner's busy word at the moment when the owner got the bias.
    since: u64,
}

/// A pass in progress; dropping the value ends the pass.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    pass: &'a Pass,
    busy: &'a AtomicU64,
    /// The held mutex, if the pass was begun without the bias.
    mutex: Option<MutexGuard<'a, Policy>>,
}

/// Error of entering an engine whose pass the calling thread is already inside, as a signal handler that
/// interrupted the pass. Waiting would be a deadlock (EBUSY in the verbs).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reentered;

impl std::fmt::Display for Reentered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot enter the engine: this thread is already inside a pass of it")
    }
}

impl std::error::Error for Reentered {}

impl<'a> Entered<'a> {
    pub(crate) fn pass(&self) -> &'a Pass {
        self.pass
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.is_some() {
            self.pass.holder.store(0, Ordering::Relaxed);
        }
        // Only this thread writes the word, so a load and a store make an increment. The mutex, if held, is
        // released after it.
        self.busy.store(self.busy.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        if let Some(policy) = self.mutex.take() {
            unlock(self.pass, policy);
        }
    }
}

/// Releases the mutex of a pass, and only then removes the mark from this thread.
#[cold]
#[inline(never)]
fn unlock(pass: &Pass, policy: MutexGuard<'_, Policy>) {
    drop(policy);
    drop(LockMark::of(pass));
}

impl Pass {
    pub(crate) fn new() -> Pass {
        Pass {
            owner: AtomicU64::new(0),
            plain: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            threads: std::array::from_fn(|_| AtomicU64::new(0)),
            holder: AtomicU64::new(0),
            lock: Mutex::new(Policy { last: 0, streak: 0, patience: 1, since: 0 }),
        }
    }

    /// Begins a pass. Waits until no other thread is inside.
    ///
    /// # Panics
    /// If this thread is already inside a pass of this engine: waiting would be a deadlock.
    #[inline]
    pub(crate) fn enter(&self) -> Entered<'_> {
        let me = thread_token();
        match self.enter_biased(me) {
            Some(entered) => entered,
            None => self.enter_or_panic(me),
        }
    }

    /// Begins a pass like [`enter`](Pass::enter), for a caller that may already be inside.
    #[inline]
    pub(crate) fn enter_once(&self) -> Result<Entered<'_>, Reentered> {
        let me = thread_token();
        match self.enter_biased(me) {
            Some(entered) => Ok(entered),
            None => self.enter_by_mutex(me),
        }
    }

    /// Returns whether the calling thread is inside, or about to be. Takes no lock, so that a signal
    /// handler may call it.
    pub(crate) fn has_caller(&self) -> bool {
        let me = thread_token();
        me != UNASSIGNED && (self.is_inside(me) || LockMark::is_set(self))
    }

    /// Begins a pass if no thread is inside. Never earns the bias.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_>> {
        let me = thread_token();
        self.enter_biased(me).or_else(|| self.try_enter_by_mutex(me))
    }

    /// The fast path, for the owner of the bias.
    #[inline(always)]
    fn enter_biased(&self, me: u64) -> Option<Entered<'_>> {
        let _attempt = Attempt::begin();
        let owner = self.owner.load(Ordering::Relaxed);
        if owner >> SLOT_BITS != me {
            return None;
        }
        let busy = self.slots.get((owner & SLOT_MASK) as usize)?;
        let was = busy.load(Ordering::Relaxed);
        if was & 1 != 0 {
            return None;
        }
        // Release is for waiters, not for this pass: a waiter that reads this value instead of the end of
        // the last pass must still be ordered after that pass (a plain store does not continue a release
        // sequence).
        busy.store(was.wrapping_add(1), Ordering::Release);
        barrier::light();
        if self.owner.load(Ordering::Acquire) == owner {
            return Some(Entered { pass: self, busy, mutex: None });
        }
        busy.store(was.wrapping_add(2), Ordering::Release);
        None
    }

    #[cold]
    #[inline(never)]
    fn enter_or_panic(&self, me: u64) -> Entered<'_> {
        match self.enter_by_mutex(me) {
            Ok(entered) => entered,
            Err(reentered) => panic!("{reentered}"),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_by_mutex(&self, me: u64) -> Result<Entered<'_>, Reentered> {
        let me = assigned(me);
        if self.is_inside(me) || LockMark::is_set(self) {
            return Err(Reentered);
        }
        let mark = LockMark::set(self);
        let mut policy = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 {
            if owner >> SLOT_BITS == me {
                // Another thread withdrew the bias and gave it back.
                return Ok(self.resume(owner));
            }
            self.withdraw(owner);
            let busy = self.busy_of(owner);
            await_change(busy, |value| value & 1 == 0);
            policy.revoked(busy.load(Ordering::Relaxed));
        }
        if self.give_slot_back(me)
            && policy.deserves(me)
            && let Some(entered) = self.grant(me, &mut policy)
        {
            return Ok(entered);
        }
        Ok(self.begin_plain(me, policy, mark))
    }

    #[cold]
    #[inline(never)]
    fn try_enter_by_mutex(&self, me: u64) -> Option<Entered<'_>> {
        let me = assigned(me);
        let mark = LockMark::set(self);
        let mut policy = match self.lock.try_lock() {
            Ok(policy) => policy,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 {
            let busy = self.busy_of(owner);
            // Looking first spares the owner a revocation. If the owner is this thread, the odd word means
            // that it is already inside.
            if busy.load(Ordering::Relaxed) & 1 != 0 {
                return None;
            }
            if owner >> SLOT_BITS == me {
                return Some(self.resume(owner));
            }
            self.withdraw(owner);
            if busy.load(Ordering::Acquire) & 1 != 0 {
                self.owner.store(owner, Ordering::Release);
                return None;
            }
            policy.revoked(busy.load(Ordering::Relaxed));
        }
        self.give_slot_back(me);
        policy.visited();
        Some(self.begin_plain(me, policy, mark))
    }

    /// Withdraws the bias. Afterwards the owner either is inside and its busy word shows that, or cannot
    /// enter.
    fn withdraw(&self, _owner: u64) {
        self.owner.store(0, Ordering::Relaxed);
        barrier::heavy();
    }

    fn busy_of(&self, owner: u64) -> &AtomicU64 {
        &self.slots[(owner & SLOT_MASK) as usize % SLOTS]
    }

    /// Begins a pass of a thread that holds the mutex and owns the bias; the thread enters by its own busy
    /// word.
    fn resume(&self, owner: u64) -> Entered<'_> {
        let busy = self.busy_of(owner);
        busy.store(busy.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        barrier::light();
        Entered { pass: self, busy, mutex: None }
    }

    /// Gives `me` the bias and begins a pass. The caller holds the mutex; no thread has the bias or is
    /// inside. Returns `None` without membarrier(2), or if all slots are taken.
    fn grant(&self, me: u64, policy: &mut Policy) -> Option<Entered<'_>> {
        if !barrier::asymmetric() {
            return None;
        }
        let free = self.threads.iter().position(|thread| thread.load(Ordering::Relaxed) == 0)?;
        let busy = &self.slots[free];
        let was = busy.load(Ordering::Relaxed);
        self.threads[free].store(me, Ordering::Relaxed);
        busy.store(was.wrapping_add(1), Ordering::Release);
        self.owner.store(me << SLOT_BITS | free as u64, Ordering::Release);
        barrier::light();
        policy.since = was;
        Some(Entered { pass: self, busy, mutex: None })
    }

    /// Begins a pass of the holder of the mutex. The thread's mark stays until the pass ends.
    fn begin_plain<'a>(&'a self, me: u64, policy: MutexGuard<'a, Policy>, mark: LockMark) -> Entered<'a> {
        std::mem::forget(mark);
        self.holder.store(me, Ordering::Relaxed);
        self.plain.store(self.plain.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        // Pairs with a deregistration that kills a key and then looks at the word, where membarrier is
        // missing.
        fence(Ordering::SeqCst);
        Entered { pass: self, busy: &self.plain, mutex: Some(policy) }
    }

    /// Gives back the slot of `me`, which holds the mutex and does not own the bias. Returns false if `me`
    /// may be about to write to its slot, which then stays its own.
    fn give_slot_back(&self, me: u64) -> bool {
        if Attempt::is_interrupted() {
            return false;
        }
        for thread in &self.threads {
            if thread.load(Ordering::Relaxed) == me {
                thread.store(0, Ordering::Relaxed);
            }
        }
        true
    }

    /// Returns whether the thread `me` is inside.
    fn is_inside(&self, me: u64) -> bool {
        let by_bias = |slot: usize| {
            self.threads[slot].load(Ordering::Relaxed) == me
                && self.slots[slot].load(Ordering::Relaxed) & 1 != 0
        };
        self.holder.load(Ordering::Relaxed) == me || (0..SLOTS).any(by_bias)
    }

    /// Returns a counter that changes with every pass that begins or ends.
    pub(crate) fn heartbeat(&self) -> u64 {
        self.words().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        std::iter::once(&self.plain).chain(&self.slots)
    }
}

impl Policy {
    /// Records that the bias was withdrawn when the owner's busy word was `now`.
    fn revoked(&mut self, now: u64) {
        let passes = now.wrapping_sub(self.since) / 2;
        self.patience =
            if passes < WORTHWHILE { self.patience * 4 } else { 0 }.clamp(PATIENCE_MIN, PATIENCE_MAX);
        self.streak = 0;
    }

    fn visited(&mut self) {
        self.streak = 0;
    }

    /// Counts one plain pass of `thread`. Returns true when the thread should get the bias.
    fn deserves(&mut self, thread: u64) -> bool {
        if self.last != thread {
            self.last = thread;
            self.streak = 0;
        }
        self.streak += 1;
        self.streak >= self.patience
    }
}

/// The pass words of all engines of one table.
#[derive(Debug)]
pub(crate) struct Passes(std::sync::Mutex<Vec<Arc<Pass>>>);

impl Passes {
    pub(crate) fn new() -> Passes {
        Passes(std::sync::Mutex::new(Vec::new()))
    }

    pub(crate) fn add(&self) -> Arc<Pass> {
        let pass = Arc::new(Pass::new());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pass));
        pass
    }

    pub(crate) fn remove(&self, pass: &Arc<Pass>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, pass));
    }

    /// Returns the number of engines.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether the calling thread is inside a pass of any engine of the table.
    pub(crate) fn is_inside(&self) -> bool {
        let me = thread_token();
        me != UNASSIGNED && self.all().iter().any(|pass| pass.is_inside(me))
    }

    /// Waits until every pass that may have begun before the call has ended. Passes that begin later see
    /// what this thread stored before the call.
    pub(crate) fn quiesce(&self) {
        let all = self.all();
        barrier::heavy();
        for word in all.iter().flat_map(|pass| pass.words()) {
            let seen = word.load(Ordering::Acquire);
            if seen & 1 != 0 {
                await_change(word, |value| value != seen);
            }
        }
    }

    /// Returns the passes in progress that the caller can know of: its own, and those ordered before this
    /// call.
    pub(crate) fn stamp(&self) -> Stamp {
        let under_way = |pass: Arc<Pass>| {
            let words = pass.words().map(|word| word.load(Ordering::Acquire)).enumerate();
            let odd: Vec<_> = words.filter(|(_, value)| value & 1 != 0).collect();
            odd.into_iter().map(move |(word, value)| (Arc::clone(&pass), word, value))
        };
        Stamp(self.all().into_iter().flat_map(under_way).collect())
    }

    fn all(&self) -> Vec<Arc<Pass>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Passes that were in progress at some moment, as the odd busy words of that moment. (The sum of an
/// engine's words would not do: a thread that tries to enter and fails also changes it.)
#[derive(Debug)]
pub(crate) struct Stamp(Vec<(Arc<Pass>, usize, u64)>);

impl Stamp {
    /// Returns whether all these passes have ended.
    pub(crate) fn is_over(&self) -> bool {
        let now = |pass: &Pass, word: usize| pass.words().nth(word).map(|word| word.load(Ordering::Acquire));
        self.0.iter().all(|(pass, word, seen)| now(pass, *word) != Some(*seen))
    }
}

/// Waits until `done` holds for the word: first spinning (a pass is short), then yielding the core (the
/// thread inside may be preempted).
fn await_change(word: &AtomicU64, done: impl Fn(u64) -> bool) {
    let mut turns = 0;
    while !done(word.load(Ordering::Acquire)) {
        turns += 1;
        if turns < 1000 && !cfg!(loom) { spin_loop() } else { yield_now() }
    }
}

/// Token of a thread that has none yet; different from every owner.
const UNASSIGNED: u64 = u64::MAX;

/// Maximum number of engine locks that one thread may hold and be marked for.
const MARKS: usize = 4;

/// A mark of this thread: it waits for an engine's mutex, or holds it. A signal handler on this thread must
/// not wait for the same mutex, and the words of the pass do not show the holder at every moment.
#[derive(Debug)]
struct LockMark(usize);

impl LockMark {
    /// Marks the thread. If it is already marked for [`MARKS`] engines, no mark is set.
    fn set(pass: &Pass) -> LockMark {
        let mark = LockMark::of(pass);
        LOCKS.with(|locks| {
            if let Some(free) = locks.iter().find(|lock| lock.get() == 0) {
                free.set(mark.0);
            }
        });
        mark
    }

    /// Returns the mark that is set for this engine.
    fn of(pass: &Pass) -> LockMark {
        LockMark(std::ptr::from_ref(pass).addr())
    }

    fn is_set(pass: &Pass) -> bool {
        LOCKS.with(|locks| locks.iter().any(|lock| lock.get() == std::ptr::from_ref(pass).addr()))
    }
}

impl Drop for LockMark {
    fn drop(&mut self) {
        LOCKS.with(|locks| {
            if let Some(lock) = locks.iter().find(|lock| lock.get() == self.0) {
                lock.set(0);
            }
        });
    }
}

/// A mark of this thread: it is trying to enter by the bias, and may be about to write its busy word.
#[derive(Debug)]
struct Attempt {
    /// True if an attempt was already in progress, so that this one is made by a signal handler.
    before: bool,
}

impl Attempt {
    #[inline(always)]
    fn begin() -> Attempt {
        let before = ATTEMPT.with(|attempt| attempt.replace(true));
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        Attempt { before }
    }

    /// Returns whether the caller has interrupted an attempt of its thread.
    fn is_interrupted() -> bool {
        ATTEMPT.with(std::cell::Cell::get)
    }
}

impl Drop for Attempt {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        ATTEMPT.with(|attempt| attempt.set(self.before));
    }
}

#[cfg(not(loom))]
thread_local! {
    /// Addresses of the passes that this thread is marked for; 0 in an unused element.
    static LOCKS: [std::cell::Cell<usize>; MARKS] = const { [const { std::cell::Cell::new(0) }; MARKS] };
    /// The number of this thread, which no other thread of the process ever has (unlike addresses and
    /// system ids, which are reused).
    static TOKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(UNASSIGNED) };
    static ATTEMPT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
#[cfg(loom)]
loom::thread_local! {
    static LOCKS: [std::cell::Cell<usize>; MARKS] = [const { std::cell::Cell::new(0) }; MARKS];
    static TOKEN: std::cell::Cell<u64> = std::cell::Cell::new(UNASSIGNED);
    static ATTEMPT: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

#[inline(always)]
fn thread_token() -> u64 {
    TOKEN.with(std::cell::Cell::get)
}

/// Returns the token of this thread; assigns one if it has none.
fn assigned(token: u64) -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    if token != UNASSIGNED {
        return token;
    }
    let token = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    TOKEN.with(|cell| cell.set(token));
    token
}

#[cfg(all(test, loom))]
mod loom_tests;
