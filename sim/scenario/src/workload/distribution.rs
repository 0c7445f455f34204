//! Sizes of flows: tables of public traces, uniform and log-uniform ranges.

use std::fmt;

use remora_fault::Random;

/// One line of a table.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Point {
    /// A size, in bytes.
    pub bytes: f64,
    /// How many of 100 flows are not larger.
    pub percent: f64,
}

/// A table of sizes: linear between its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Cdf {
    points: Vec<Point>,
}

/// Why a table is no distribution.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CdfError {
    /// It has fewer than two points.
    TooShort,
    /// The first percent is not 0 or the last not 100.
    Bounds,
    /// A point that is not more than the one before, or no number.
    NotRising,
}

impl fmt::Display for CdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CdfError::TooShort => "a distribution has at least two lines: add lines of `bytes percent`",
            CdfError::Bounds => "the percent goes from 0 to 100: mend the first or the last line",
            CdfError::NotRising => "bytes and percent rise from line to line: remove or mend what does not",
        })
    }
}

impl std::error::Error for CdfError {}

impl Cdf {
    /// A table from its points.
    ///
    /// # Errors
    /// They do not rise in both columns, or do not go from 0 to 100 %.
    pub fn new(points: Vec<Point>) -> Result<Cdf, CdfError> {
        let [first, .., last] = points[..] else { return Err(CdfError::TooShort) };
        let finite =
            |point: &Point| point.bytes.is_finite() && point.bytes >= 0.0 && point.percent.is_finite();
        let rises = |pair: &[Point]| pair[1].bytes > pair[0].bytes && pair[1].percent > pair[0].percent;
        if !points.iter().all(finite) || !points.windows(2).all(rises) {
            return Err(CdfError::NotRising);
        }
        if first.percent != 0.0 || last.percent != 100.0 {
            return Err(CdfError::Bounds);
        }
        Ok(Cdf { points })
    }

    /// The points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The mean size, in bytes: the sum of trapezoids.
    pub fn mean(&self) -> f64 {
        let area =
            |pair: &[Point]| (pair[1].bytes + pair[0].bytes) / 2.0 * (pair[1].percent - pair[0].percent);
        self.points.windows(2).map(area).sum::<f64>() / 100.0
    }

    /// The size that `percent` of the flows do not exceed: interpolated, cut, at least 1.
    pub fn size_at(&self, percent: f64) -> u64 {
        let above = self.points.partition_point(|point| point.percent < percent);
        let above = above.clamp(1, self.points.len() - 1);
        let (low, high) = (self.points[above - 1], self.points[above]);
        let share = (percent - low.percent) / (high.percent - low.percent);
        ((low.bytes + (high.bytes - low.bytes) * share) as u64).max(1)
    }

    /// The size of one flow.
    pub fn draw(&self, random: &mut Random) -> u64 {
        self.size_at(unit(random) * 100.0)
    }
}

/// A number from 0 up to 1, with 53 bits.
pub fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / 9_007_199_254_740_992.0
}
