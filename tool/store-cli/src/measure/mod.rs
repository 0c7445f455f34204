//! Measuring: GETs of the stores, rounds, and the table of their medians.
//!
//! | module | holds |
//! |---|---|
//! | [`runner`], [`parts`], [`workload`] | clients of a key-value server, and the operations that they run |
//! | [`transports`] | servers and clients by 1RMA and IRN |
//! | [`testbed`] | processes, cores and networks of the two sides |
//! | `row` | results, printed as a table or as JSON |

pub mod parts;
mod row;
pub mod runner;
pub mod testbed;
pub mod transports;
pub mod workload;

use std::time::Instant;

use anyhow::Result;

pub use row::{Report, Row, median};

/// The number of trips per reading of the clock. Reading the clock has a cost, and a reading of many trips
/// is rarely free of disturbance.
const RUN: u64 = 16;

/// Returns the time of a trip in nanoseconds: the median of readings of `RUN` trips each. Floors and the
/// operations compared to them are measured in the same way.
pub fn typical(trips: u64, trip: impl FnMut() -> Result<()>) -> Result<f64> {
    typical_of(RUN, trips, trip)
}

/// Like [`typical`], with readings of `run` trips. A large `run` makes each reading contain its share of rare
/// events.
pub fn typical_of(run: u64, trips: u64, mut trip: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut readings = Vec::with_capacity((trips / run) as usize);
    for _ in 0..trips / run {
        let started = Instant::now();
        for _ in 0..run {
            trip()?;
        }
        readings.push(started.elapsed().as_nanos() as f64 / run as f64);
    }
    Ok(median(&readings))
}

/// Writes to each page of a region, so that the measurement contains no page faults.
///
/// # Errors
/// Fails if the region is smaller than it says.
pub fn touch(region: &remora_verbs::MemoryRegion) -> Result<()> {
    for offset in (0..region.len()).step_by(4096) {
        region.write(offset, &[1])?;
    }
    Ok(())
}

/// Returns a histogram of nanoseconds up to a minute, with three significant digits.
///
/// # Errors
/// Never fails with these bounds.
pub fn histogram() -> Result<hdrhistogram::Histogram<u64>> {
    Ok(hdrhistogram::Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}
