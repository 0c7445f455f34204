//! Time as a value. Pure crates read no clock; the caller passes the time as an argument.

/// A point in time, in nanoseconds since an epoch that the caller defines.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Instant(pub u64);

impl Instant {
    /// A time later than every event, used for a timer that is not running.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Returns the time `ns` nanoseconds later, saturating at `NEVER`.
    #[inline]
    pub const fn after(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Returns the nanoseconds since `earlier`, or 0 if `earlier` is in the future.
    #[inline]
    pub const fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
