//! Pacing: packets leave at a rate.

use crate::Instant;

/// Lets packets of one queue pair leave at a rate.
#[derive(Copy, Clone, Debug)]
pub struct Pacer {
    /// Nanoseconds a byte takes, times 2^`FRACTION`; 0: no limit.
    cost: u64,
    next: Instant,
    /// What `next` leaves out, in 2^-`FRACTION` nanoseconds.
    rest: u64,
}

/// Bits of a nanosecond's fraction: an error of less than 3 ns a second at 100 Gb/s.
const FRACTION: u32 = 32;

/// Credit that a silent queue pair may have saved, in nanoseconds: it bounds the burst after a pause.
const SAVED_NS: u64 = 10_000;

impl Pacer {
    /// No limit.
    pub const fn unlimited() -> Self {
        Pacer { cost: 0, next: Instant(0), rest: 0 }
    }

    /// At most `bits_per_second` of frame bytes from BTH to ICRC; 0 is no limit.
    pub fn limited(bits_per_second: u64) -> Self {
        let mut pacer = Pacer::unlimited();
        pacer.set_rate(bits_per_second);
        pacer
    }

    /// Another rate from the next packet on; 0 is no limit.
    pub fn set_rate(&mut self, bits_per_second: u64) {
        let cost = (8_000_000_000u128 << FRACTION).checked_div(u128::from(bits_per_second)).unwrap_or(0);
        self.cost = cost.min(u128::from(u64::MAX)) as u64;
    }

    /// When the next packet may leave.
    #[inline]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// `bytes` have left at `now`.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: u32) {
        if self.cost != 0 {
            let from = self.next.0.max(now.0.saturating_sub(SAVED_NS));
            let took = u128::from(self.cost) * u128::from(bytes) + u128::from(self.rest);
            self.next = Instant(from).after((took >> FRACTION) as u64);
            self.rest = took as u64 & ((1 << FRACTION) - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_second_carries_the_rate() {
        let mut pacer = Pacer::limited(8_000_000);
        let (mut now, mut bytes) = (Instant(1_000_000_000), 0u64);
        while now < Instant(2_000_000_000) {
            pacer.sent(now, 1000);
            bytes += 1000;
            now = Instant(now.0.max(pacer.next().0));
        }
        assert!((990_000..=1_020_000).contains(&bytes), "{bytes} bytes in a second of 1 MB/s");
    }

    #[test]
    fn fractions_of_a_nanosecond_are_carried_to_the_next_packet() {
        // 64 bytes take 5.12 ns at 100 Gb/s.
        let mut pacer = Pacer::limited(100_000_000_000);
        let mut gaps = Vec::new();
        for _ in 0..1_000_000 {
            let now = pacer.next();
            pacer.sent(now, 64);
            gaps.push(pacer.next().since(now));
        }
        assert_eq!(gaps.iter().sum::<u64>(), 5_119_999, "and the last fraction is still to come");
        assert!(gaps.iter().all(|gap| (5..=6).contains(gap)), "no burst pays for the fractions");
    }

    #[test]
    fn no_limit_never_waits() {
        let mut pacer = Pacer::unlimited();
        pacer.sent(Instant(5), u32::MAX);
        assert_eq!(pacer.next(), Instant(0));
        assert_eq!(Pacer::limited(0).cost, 0);
    }
}
