//! The number of operations of the measurements.

/// The divisor of the number of operations in a round: 1 in release builds, 10 in debug builds. The results
/// of debug builds are not compared; tests only check that the rows exist.
pub(crate) const SHORTER: u64 = if cfg!(debug_assertions) { 10 } else { 1 };
