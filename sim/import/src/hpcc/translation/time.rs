//! Units of time, in ps.

pub(super) const SECOND: u64 = 1_000_000_000_000;
pub(super) const MICROSECOND: u64 = 1_000_000;
pub(super) const NANOSECOND: u64 = 1_000;
