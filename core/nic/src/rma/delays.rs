//! Delays of 1RMA's commands, as histograms, and how long the window was full. They tell a person whether
//! congestion is local or remote. Nothing here allocates, and an entry takes a few instructions.

use remora_transport::Instant;
use remora_transport::rma::{OperationEnd, Solicitation};

/// The upper bound of the first bucket is two to this power: 1.024 us.
const FIRST: u32 = 10;
/// Buckets with an upper bound. The last one ends at 8.6 s.
pub const BUCKETS: usize = 24;

/// Delays by powers of two nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Delays in each bucket; behind those with an upper bound, the longer ones.
    counts: [u64; BUCKETS + 1],
    sum: u64,
}

impl Histogram {
    /// Counts a delay of so many nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let power = u64::BITS - ns.saturating_sub(1).leading_zeros();
        self.counts[(power.saturating_sub(FIRST) as usize).min(BUCKETS)] += 1;
        self.sum = self.sum.wrapping_add(ns);
    }

    /// Each upper bound in nanoseconds, and how many delays are no longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let bounded = self.counts.iter().take(BUCKETS).enumerate();
        bounded.scan(0, |sum, (bucket, count)| {
            *sum += count;
            Some((1 << (bucket as u32 + FIRST), *sum))
        })
    }

    /// Delays counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum, in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// What an engine knows of the delays of its commands.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// From the issue until the operation entered service, or ended before that.
    pub issue: Histogram,
    /// From there to its end: in the network and at the server. Operations that never entered service are
    /// not counted.
    pub remote: Histogram,
    /// From the issue to the end.
    pub total: Histogram,
    /// Nanoseconds during which an operation waited because the window was full.
    pub window_full: u64,
    /// Nanoseconds since the engine speaks 1RMA.
    pub observed: u64,
    since: Instant,
    /// When it looked last while the window was full.
    full_at: Option<Instant>,
}

impl Delays {
    pub(super) fn new(since: Instant) -> Delays {
        Delays { since, ..Delays::default() }
    }

    /// What is known at `now`.
    pub(super) fn at(&self, now: Instant) -> Delays {
        let window_full = self.window_full + self.full_at.map_or(0, |then| now.since(then));
        Delays { window_full, observed: now.since(self.since), ..*self }
    }

    /// A command has ended.
    #[inline]
    pub(super) fn ended(&mut self, ended: &OperationEnd) {
        self.issue.record(ended.issue_delay);
        self.total.record(ended.total_delay);
        if ended.total_delay > ended.issue_delay {
            self.remote.record(ended.total_delay - ended.issue_delay);
        }
    }

    /// All that may enter service has done so. The window stays as it is until the next look.
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
