//! Distributions of flow sizes by tables, as in public traces.

use remora_fault::Random;

/// A point of a cumulative distribution.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Point {
    /// Flow size, in bytes.
    pub bytes: f64,
    /// Percentage of flows that are not larger.
    pub percent: f64,
}

/// A cumulative distribution of flow sizes, linear between its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Cdf {
    points: Vec<Point>,
}

/// The reason why a table is not a distribution.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CdfError {
    /// The table has fewer than two points.
    #[error("a distribution has at least two lines: add lines of `bytes percent`")]
    TooShort,
    /// The first percentage is not 0 or the last is not 100.
    #[error("the percentages must range from 0 to 100: correct the first or the last line")]
    Bounds,
    /// A point is not above the one before it in both columns, or is not a number.
    #[error("bytes and percent must rise from line to line: remove or correct a line that does not")]
    NotRising,
}

impl Cdf {
    /// Creates a distribution.
    ///
    /// # Errors
    /// Fails if the points do not rise in both columns or do not range from 0 to 100 %.
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

    /// Returns the points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the mean flow size, in bytes.
    pub fn mean(&self) -> f64 {
        let area =
            |pair: &[Point]| (pair[1].bytes + pair[0].bytes) / 2.0 * (pair[1].percent - pair[0].percent);
        self.points.windows(2).map(area).sum::<f64>() / 100.0
    }

    /// Returns the size that `percent` % of the flows do not exceed, in bytes: interpolated, rounded down, at
    /// least 1.
    pub fn size_at(&self, percent: f64) -> u64 {
        let above = self.points.partition_point(|point| point.percent < percent);
        let above = above.clamp(1, self.points.len() - 1);
        let low = self.points[above - 1];
        let high = self.points[above];
        let share = (percent - low.percent) / (high.percent - low.percent);
        ((low.bytes + (high.bytes - low.bytes) * share) as u64).max(1)
    }

    /// Draws the size of a flow, in bytes.
    pub fn draw(&self, random: &mut Random) -> u64 {
        self.size_at(unit(random) * 100.0)
    }
}

/// Draws a number from 0 to below 1, with 53 random bits.
pub fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / 9_007_199_254_740_992.0
}
