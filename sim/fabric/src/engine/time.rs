//! Simulated time in picoseconds: a byte at 400 Gb/s takes 20 of them.

use remora_transport::Instant;

/// Picoseconds since the start of a simulation; 64 bits last 213 days.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// A time after all others.
    pub const NEVER: Picos = Picos(u64::MAX);

    /// Picoseconds in a nanosecond.
    pub const NANOSECOND: u64 = 1_000;
    /// Picoseconds in a microsecond.
    pub const MICROSECOND: u64 = 1_000_000;

    /// Returns the time `ps` picoseconds later; [`Picos::NEVER`] stays unchanged.
    #[inline]
    #[must_use]
    pub const fn after(self, ps: u64) -> Picos {
        Picos(self.0.saturating_add(ps))
    }

    /// Returns the picoseconds since `earlier`, or 0 if `earlier` is later than this time.
    #[inline]
    pub const fn since(self, earlier: Picos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time as NICs see it: the nanosecond that has begun.
    #[inline]
    pub const fn instant(self) -> Instant {
        if self.0 == u64::MAX { Instant::NEVER } else { Instant(self.0 / Self::NANOSECOND) }
    }
}

impl From<Instant> for Picos {
    /// The first picosecond of the nanosecond.
    #[inline]
    fn from(instant: Instant) -> Picos {
        Picos(instant.0.saturating_mul(Picos::NANOSECOND))
    }
}

/// Returns the picoseconds that `bytes` bytes take at `rate` bit/s, rounded up; 0 at rate 0.
#[inline]
pub const fn transmission(bytes: u64, rate: u64) -> u64 {
    if rate == 0 {
        return 0;
    }
    let bits = bytes as u128 * 8_000_000_000_000;
    bits.div_ceil(rate as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_takes_the_picoseconds_of_its_rate() {
        assert_eq!(transmission(64, 100_000_000_000), 5_120);
        assert_eq!(transmission(1_048, 400_000_000_000), 20_960);
        // A third of a picosecond counts as a whole one.
        assert_eq!(transmission(1, 3_000_000_000_000), 3);
        assert_eq!(transmission(1 << 40, 1_000_000_000), (1 << 43) * 1_000);
        assert_eq!(transmission(1_000, 0), 0);
    }

    #[test]
    fn a_nic_sees_a_deadline_in_its_own_nanosecond_and_not_before() {
        let deadline = Picos::from(Instant(7));
        assert_eq!(deadline, Picos(7_000));
        assert_eq!(deadline.instant(), Instant(7));
        assert_eq!(Picos(deadline.0 - 1).instant(), Instant(6));
        assert_eq!(Picos::from(Instant::NEVER), Picos::NEVER);
        assert_eq!(Picos::NEVER.instant(), Instant::NEVER);
    }
}
