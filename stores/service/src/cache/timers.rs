//! Which connections have something to do at a time, though nothing came.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use remora_transport::Instant;

/// A connection, which it is of those that had its number, and why its time comes.
pub type Timer = (usize, u64, Why);

/// Why a connection has something to do.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// It may not stay silent for longer.
    Idle,
    /// A line of it was refused, and what is behind it should have come.
    Refused,
}

/// Connections by their time. Each is in it at most once for either reason.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Timers {
    /// That one has something to do then.
    pub fn set(&mut self, at: Instant, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// One whose time has come.
    pub fn due(&mut self, now: Instant) -> Option<Timer> {
        let Reverse((at, _)) = *self.heap.peek()?;
        (at <= now).then(|| self.heap.pop()).flatten().map(|Reverse((_, timer))| timer)
    }

    /// How long there is nothing to do.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, _))| Duration::from_nanos(at.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_none_before_its_time() {
        let mut timers = Timers::default();
        assert_eq!((timers.wait(Instant(0)), timers.due(Instant(9))), (None, None));
        for (at, number) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(Instant(at), (number, 0, Why::Idle));
        }
        assert_eq!(timers.wait(Instant(4)), Some(Duration::from_nanos(6)));
        assert_eq!(timers.due(Instant(9)), None);
        assert_eq!(timers.due(Instant(20)), Some((1, 0, Why::Idle)));
        assert_eq!(timers.due(Instant(20)), Some((2, 0, Why::Idle)));
        assert_eq!(timers.due(Instant(20)), None);
        assert_eq!(timers.wait(Instant(40)), Some(Duration::ZERO));
    }
}
