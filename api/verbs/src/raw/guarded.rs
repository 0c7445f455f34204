//! Values that an engine's lock guards.

use remora_host::{Engine, Inside};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A value that is accessed only inside the lock of its engine.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    engine: Arc<Engine>,
    value: UnsafeCell<T>,
}

// SAFETY: `get` gives the value only to the one thread that is inside the engine's lock.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) fn new(engine: &Arc<Engine>, value: T) -> Guarded<T> {
        Guarded { engine: Arc::clone(engine), value: UnsafeCell::new(value) }
    }

    /// The engine whose lock guards the value.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The value. `inside` cannot be used for anything else as long as the value is borrowed.
    ///
    /// # Panics
    /// If `inside` belongs to another engine.
    #[inline]
    pub(crate) fn get<'a>(&'a self, inside: &'a mut Inside<'_>) -> &'a mut T {
        assert!(inside.is_of(&self.engine), "the caller must hold the lock of this value's engine");
        // SAFETY: an `Inside` exists on one thread at a time, and it is borrowed as long as the value is.
        unsafe { &mut *self.value.get() }
    }
}
