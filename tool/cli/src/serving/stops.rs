//! For tests that serve on a thread of their own.

use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a server, also where its test panics.
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
