//! Timers of connections that have work to do although nothing arrives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use remora_transport::Instant;

/// The index of a connection, its serial number, and the reason of the timer.
pub(crate) type Timer = (usize, u64, Why);

/// The reason of a timer.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Why {
    /// The client has been silent for too long.
    Idle,
    /// A line of the client was refused, and the data that follows it should have arrived.
    Refused,
}

/// A queue of timers, ordered by time. Each connection has at most one timer per reason.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Timers {
    /// Adds a timer that expires at `time`.
    pub(crate) fn set(&mut self, time: Instant, timer: Timer) {
        self.heap.push(Reverse((time, timer)));
    }

    /// Removes and returns an expired timer, if there is one.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Timer> {
        let Reverse((time, _)) = *self.heap.peek()?;
        (time <= now).then(|| self.heap.pop()).flatten().map(|Reverse((_, timer))| timer)
    }

    /// Returns the time until the next timer expires, or `None` if there is no timer.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        self.heap.peek().map(|Reverse((time, _))| Duration::from_nanos(time.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_none_before_its_time() {
        let mut timers = Timers::default();
        assert_eq!((timers.wait(Instant(0)), timers.due(Instant(9))), (None, None));
        for (time, number) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(Instant(time), (number, 0, Why::Idle));
        }
        assert_eq!(timers.wait(Instant(4)), Some(Duration::from_nanos(6)));
        assert_eq!(timers.due(Instant(9)), None);
        assert_eq!(timers.due(Instant(20)), Some((1, 0, Why::Idle)));
        assert_eq!(timers.due(Instant(20)), Some((2, 0, Why::Idle)));
        assert_eq!(timers.due(Instant(20)), None);
        assert_eq!(timers.wait(Instant(40)), Some(Duration::ZERO));
    }
}
