//! The lock around an engine's state.

use crate::pass::{Entered, Pass, Reentered};
use crate::{Mem, Table};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// An engine's state behind a lock that costs its usual thread a nanosecond or two, and others, who are rare,
/// a system call. A pass lasts from [`enter`](Biased::enter) to the drop of the [`Guard`]; in it the engine
/// may touch memory registered with the table. Passes must be short: deregistrations wait for them.
///
/// Threads may come and go; the one that enters often gets the bias. Where membarrier(2) is missing it is a
/// plain mutex.
#[derive(Debug)]
pub struct Biased<T> {
    pass: Arc<Pass>,
    table: Arc<Table>,
    value: UnsafeCell<T>,
}

// SAFETY: the protocol of `Pass` lets one thread at a time reach the value, as a mutex does.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    /// An engine whose passes touch memory registered with `table`. The second engine waits for passes of the
    /// first if 32-byte updates are in use ([`Table::use_wide`]).
    ///
    /// # Panics
    /// If the calling thread is inside a pass of another engine of the table.
    pub fn new(table: &Arc<Table>, value: T) -> Biased<T> {
        Biased { pass: table.add_engine(), table: Arc::clone(table), value: UnsafeCell::new(value) }
    }

    /// Begins a pass; waits while another thread is inside.
    ///
    /// # Panics
    /// If the calling thread is inside already.
    #[inline]
    pub fn enter(&self) -> Guard<'_, T> {
        Guard { entered: self.pass.enter(), engine: self, alone: PhantomData }
    }

    /// As [`enter`](Biased::enter), for callers that may be a signal handler.
    ///
    /// # Errors
    /// The calling thread is inside already.
    #[inline]
    pub fn enter_once(&self) -> Result<Guard<'_, T>, Reentered> {
        Ok(Guard { entered: self.pass.enter_once()?, engine: self, alone: PhantomData })
    }

    /// Would [`enter_once`](Biased::enter_once) be refused to the calling thread?
    pub fn has_caller(&self) -> bool {
        self.pass.has_caller()
    }

    /// Begins a pass unless a thread (even this one) is inside. For visitors such as a helper thread: does
    /// not earn the bias, and leaves it where it is if the owner is busy.
    #[inline]
    pub fn try_enter(&self) -> Option<Guard<'_, T>> {
        Some(Guard { entered: self.pass.try_enter()?, engine: self, alone: PhantomData })
    }

    /// A counter that changes with every pass (on entering and on leaving): unchanged means that nobody
    /// polls.
    pub fn heartbeat(&self) -> u64 {
        self.pass.heartbeat()
    }

    /// The table whose memory the engine touches.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl<T> Drop for Biased<T> {
    fn drop(&mut self) {
        self.table.passes().remove(&self.pass);
    }
}

/// A pass under way; dropping it ends the pass. Neither the right to touch memory nor a span outlives it:
///
/// ```compile_fail,E0597
/// # use remora_memory::*;
/// # fn outlive(engine: &Biased<()>, pd: Pd, key: Key) {
/// let span = {
///     let mut pass = engine.enter();
///     let (_, mem) = pass.parts();
///     mem.check(pd, key, 0, 8, Access::NONE)
/// };
/// span.unwrap().read(&mut [0; 8]);
/// # }
/// ```
///
/// and it stays on the thread that entered:
///
/// ```compile_fail,E0277
/// # use remora_memory::*;
/// # fn elsewhere(engine: &Biased<()>) {
/// let pass = engine.enter();
/// std::thread::scope(|scope| { scope.spawn(move || drop(pass)); });
/// # }
/// ```
///
/// Leaking it (`mem::forget`) makes every later deregistration of the table wait for ever.
#[derive(Debug)]
pub struct Guard<'a, T> {
    engine: &'a Biased<T>,
    // The end of the pass is this field's drop. It stays on the thread that entered: the busy word is its
    // own.
    entered: Entered<'a>,
    // Not to be shared between threads either, for the sake of a `T` that is not `Sync`.
    alone: PhantomData<*const T>,
}

impl<T> Guard<'_, T> {
    /// The engine's state, and the right to touch memory until the pass ends.
    #[inline]
    pub fn parts(&mut self) -> (&mut T, Mem<'_>) {
        // SAFETY: this thread is inside, so nobody else is, and the guard is borrowed.
        (unsafe { &mut *self.engine.value.get() }, Mem::new(&self.engine.table, self.entered.pass()))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread is inside, and the guard is borrowed.
        unsafe { &*self.engine.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.parts().0
    }
}

#[cfg(test)]
mod tests;
