//! Time as a value. The manager reads no clock: its caller passes the time as an argument.

/// Nanoseconds since an origin that only the driver knows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// A time later than all others: no deadline.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Returns the time `ns` nanoseconds later; saturates at `NEVER`.
    #[inline]
    pub const fn after(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }
}
