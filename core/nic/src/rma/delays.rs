//! Histograms of the delays of 1RMA commands, and the time during which the window was full. They show
//! whether congestion is local or remote. Recording takes a few instructions and no allocation.

use remora_transport::Instant;
use remora_transport::rma::{OperationEnd, Solicitation};

/// Binary logarithm of the first bucket's upper bound in nanoseconds: 1.024 µs.
const FIRST: u32 = 10;
/// Number of buckets with an upper bound. The last bound is 8.6 s.
pub const BUCKETS: usize = 24;

/// A histogram of delays, with bucket bounds at powers of two nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of delays in each bucket; the last element counts the delays above all bounds.
    counts: [u64; BUCKETS + 1],
    sum: u64,
}

impl Histogram {
    /// Adds a delay of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let power = u64::BITS - ns.saturating_sub(1).leading_zeros();
        self.counts[(power.saturating_sub(FIRST) as usize).min(BUCKETS)] += 1;
        self.sum = self.sum.wrapping_add(ns);
    }

    /// Returns each upper bound in nanoseconds, with the number of delays up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let bounded = self.counts.iter().take(BUCKETS).enumerate();
        bounded.scan(0, |sum, (bucket, count)| {
            *sum += count;
            Some((1 << (bucket as u32 + FIRST), *sum))
        })
    }

    /// Returns the number of delays.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the delays in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// The delays of an engine's commands.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Delays from the issue of a command until it entered service, or until it ended without service.
    pub issue: Histogram,
    /// Delays from the start of service to the end: in the network and at the server. Operations that never
    /// entered service are not counted.
    pub remote: Histogram,
    /// Delays from the issue of a command to its end.
    pub total: Histogram,
    /// Nanoseconds during which an operation waited because the window was full.
    pub window_full: u64,
    /// Nanoseconds since 1RMA was enabled on the engine.
    pub observed: u64,
    since: Instant,
    /// Time of the last check at which the window was full; `None` if it was not full.
    full_at: Option<Instant>,
}

impl Delays {
    pub(super) fn new(since: Instant) -> Delays {
        Delays { since, ..Delays::default() }
    }

    /// Returns the delays up to `now`.
    pub(super) fn at(&self, now: Instant) -> Delays {
        let window_full = self.window_full + self.full_at.map_or(0, |then| now.since(then));
        Delays { window_full, observed: now.since(self.since), ..*self }
    }

    /// Records a command that has ended.
    #[inline]
    pub(super) fn ended(&mut self, ended: &OperationEnd) {
        self.issue.record(ended.issue_delay);
        self.total.record(ended.total_delay);
        if ended.total_delay > ended.issue_delay {
            self.remote.record(ended.total_delay - ended.issue_delay);
        }
    }

    /// Checks whether the window is full, after all possible operations have entered service.
    #[inline]
    pub(super) fn look(&mut self, now: Instant, solicitation: &Solicitation) {
        if let Some(then) = self.full_at {
            self.window_full += now.since(then);
        }
        self.full_at = solicitation.is_full().then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_in_the_first_bucket_that_is_no_shorter() {
        let mut histogram = Histogram::default();
        for ns in [0, 1, 1024, 1025, 2048, 2049, 1 << 33, (1 << 33) + 1, u64::MAX] {
            histogram.record(ns);
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative[..3], [(1024, 3), (2048, 5), (4096, 6)]);
        assert_eq!(
            (cumulative.len(), cumulative[BUCKETS - 2], cumulative[BUCKETS - 1]),
            (24, (1 << 32, 6), (1 << 33, 7))
        );
        assert_eq!(histogram.count(), 9, "longer ones are counted beyond the last bound");
        let mut histogram = Histogram::default();
        histogram.record(3000);
        histogram.record(4);
        assert_eq!((histogram.count(), histogram.sum()), (2, 3004));
    }
}
