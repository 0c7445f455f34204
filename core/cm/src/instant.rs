//! Time as a value. The manager reads no clock: its caller passes the time as an argument.

/// Nanoseconds since a start that only the driver knows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Later than everything.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// This time and `ns` nanoseconds; stays `NEVER` at the end of time.
    #[inline]
    pub const fn after(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }
}
