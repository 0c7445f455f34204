//! Counts of events that a program has not acknowledged. The object of such an event is not destroyed
//! before.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of unacknowledged events of one object.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    count: Mutex<u32>,
    changed: Condvar,
}

impl Outstanding {
    fn count(&self) -> MutexGuard<'_, u32> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event that is delivered to the program.
    pub(crate) fn deliver(&self) {
        *self.count() += 1;
    }

    /// Counts an acknowledgement.
    pub(crate) fn acknowledge(&self) {
        let mut count = self.count();
        *count = count.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Waits until all events are acknowledged.
    pub(crate) fn wait(&self) {
        let mut count = self.count();
        while *count > 0 {
            count = self.changed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_wait_ends_with_the_last_acknowledgement() {
        let events = Arc::new(Outstanding::default());
        events.wait();
        events.deliver();
        events.deliver();
        let waits = std::thread::spawn({
            let events = Arc::clone(&events);
            move || events.wait()
        });
        events.acknowledge();
        assert!(!waits.is_finished(), "one event is not acknowledged");
        events.acknowledge();
        waits.join().unwrap();
    }
}
