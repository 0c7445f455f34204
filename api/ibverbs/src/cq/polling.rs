//! The state of polling value by value.

use remora_verbs::raw::Cqe;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The completion that a program reads value by value. One thread at a time is between start and end.
#[derive(Default)]
pub(crate) struct Polling {
    pub(super) busy: AtomicBool,
    pub(super) present: UnsafeCell<Option<Cqe>>,
    /// The `vendor_err` of the present completion.
    pub(super) vendor_err: AtomicU32,
}

impl Polling {
    pub(super) fn begin(&self) {
        while self.busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn end(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// The present completion.
    ///
    /// # Safety
    /// The calling thread is between start and end.
    pub(super) unsafe fn present(&self) -> Option<&Cqe> {
        // SAFETY: the caller's promise.
        unsafe { (*self.present.get()).as_ref() }
    }
}
