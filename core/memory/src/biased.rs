//! The biased lock around an engine's state.

use crate::pass::{Entered, Pass, Reentered};
use crate::{Mem, Table};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// An engine's state behind a lock that costs its usual thread one or two nanoseconds, and other threads,
/// which are rare, a system call. A pass lasts from [`enter`](Biased::enter) to the drop of the [`Guard`];
/// during the pass the engine may touch memory registered with the table. Passes must be short, because
/// deregistrations wait for them.
///
/// Any thread may enter; the bias moves to the thread that enters often. Where membarrier(2) is missing,
/// the lock is a plain mutex.
#[derive(Debug)]
pub struct Biased<T> {
    pass: Arc<Pass>,
    table: Arc<Table>,
    value: UnsafeCell<T>,
}

// SAFETY: the protocol of `Pass` lets one thread at a time reach the value, as a mutex does.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    /// Creates an engine whose passes touch memory registered with `table`. If 32-byte updates are in use
    /// ([`Table::use_wide`]), adding the second engine waits for passes of the first.
    ///
    /// # Panics
    /// If the calling thread is inside a pass of another engine of the table.
    pub fn new(table: &Arc<Table>, value: T) -> Biased<T> {
        Biased { pass: table.add_engine(), table: Arc::clone(table), value: UnsafeCell::new(value) }
    }

    /// Begins a pass. Waits while another thread is inside.
    ///
    /// # Panics
    /// If the calling thread is already inside a pass of this engine.
    #[inline]
    pub fn enter(&self) -> Guard<'_, T> {
        Guard { entered: self.pass.enter(), engine: self, alone: PhantomData }
    }

    /// Begins a pass like [`enter`](Biased::enter), for callers that may run in a signal handler.
    ///
    /// # Errors
    /// [`Reentered`] if the calling thread is already inside a pass of this engine.
    #[inline]
    pub fn enter_once(&self) -> Result<Guard<'_, T>, Reentered> {
        Ok(Guard { entered: self.pass.enter_once()?, engine: self, alone: PhantomData })
    }

    /// Returns whether the calling thread is inside a pass, so that [`enter_once`](Biased::enter_once)
    /// would fail.
    pub fn has_caller(&self) -> bool {
        self.pass.has_caller()
    }

    /// Begins a pass, or returns `None` if any thread (even this one) is inside. For occasional callers
    /// such as a helper thread: the call does not count towards the bias, and leaves the bias where it is
    /// if its owner is busy.
    #[inline]
    pub fn try_enter(&self) -> Option<Guard<'_, T>> {
        Some(Guard { entered: self.pass.try_enter()?, engine: self, alone: PhantomData })
    }

    /// Returns a counter that changes whenever a pass begins or ends. While it is unchanged, no thread
    /// polls the engine.
    pub fn heartbeat(&self) -> u64 {
        self.pass.heartbeat()
    }

    /// Returns the table whose memory the engine touches.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl<T> Drop for Biased<T> {
    fn drop(&mut self) {
        self.table.passes().remove(&self.pass);
    }
}

/// A pass in progress; dropping the guard ends the pass. Neither the right to touch memory nor a span
/// outlives the guard:
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
/// The guard cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// # use remora_memory::*;
/// # fn elsewhere(engine: &Biased<()>) {
/// let pass = engine.enter();
/// std::thread::scope(|scope| { scope.spawn(move || drop(pass)); });
/// # }
/// ```
///
/// Leaking the guard (`mem::forget`) makes every later deregistration of the table wait forever.
#[derive(Debug)]
pub struct Guard<'a, T> {
    engine: &'a Biased<T>,
    // Dropping this field ends the pass. The field must stay on the thread that entered, because the busy
    // word belongs to that thread.
    entered: Entered<'a>,
    // Makes the guard not `Sync`, because `T` may not be `Sync` either.
    alone: PhantomData<*const T>,
}

impl<T> Guard<'_, T> {
    /// Returns the engine's state, and the right to touch memory until the pass ends.
    #[inline]
    pub fn parts(&mut self) -> (&mut T, Mem<'_>) {
        // SAFETY: this thread is inside the pass, so no other thread is, and the guard is borrowed.
        (unsafe { &mut *self.engine.value.get() }, Mem::new(&self.engine.table, self.entered.pass()))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread is inside the pass, and the guard is borrowed.
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
