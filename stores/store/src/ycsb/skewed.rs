//! Zipf's law with any exponent. Gray's method, which [`Zipfian`](super::Zipfian) takes from YCSB, requires
//! an exponent below 1.
//!
//! The method is rejection-inversion (Hörmann and Derflinger: *Rejection-inversion to generate variates from
//! monotone discrete distributions*, TOMACS 1996). The inverse of the law's integral gives a rank, and a few
//! ranks are redrawn. The method is exact, needs no table, and is as fast for a billion ranks as for ten.

use crate::random::Random;

/// A distribution of ranks from 0, the most popular first: rank k has a probability proportional to
/// 1/(k+1)^exponent. Exponent 0 is uniform.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Skewed {
    items: f64,
    exponent: f64,
    /// The integral at the two ends.
    start: f64,
    end: f64,
    /// A rank this close below the inverse is accepted without a further check.
    close: f64,
}

/// If the exponent is nearer to 1 than this, the integral is the logarithm.
const NEAR_ONE: f64 = 1e-9;

impl Skewed {
    /// Returns the distribution over `items` ranks (at least one), for an exponent that is not negative.
    pub fn new(items: u64, exponent: f64) -> Skewed {
        let items = items.max(1) as f64;
        let mut skewed = Skewed { items, exponent: exponent.max(0.0), start: 0.0, end: 0.0, close: 0.0 };
        skewed.start = skewed.integral(1.5) - 1.0;
        skewed.end = skewed.integral(items + 0.5);
        skewed.close = 2.0 - skewed.inverse(skewed.integral(2.5) - skewed.weight(2.0));
        skewed
    }

    /// Returns the weight of a rank, counted from 1: a number proportional to its probability.
    fn weight(&self, place: f64) -> f64 {
        place.powf(-self.exponent)
    }

    /// Returns the integral of the weights from 1 on.
    fn integral(&self, place: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < NEAR_ONE { place.ln() } else { (place.powf(rest) - 1.0) / rest }
    }

    fn inverse(&self, integral: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < NEAR_ONE { integral.exp() } else { (1.0 + integral * rest).powf(1.0 / rest) }
    }

    /// Draws the next rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let drawn = self.end + random.unit() * (self.start - self.end);
            let place = self.inverse(drawn);
            let nearest = place.round().clamp(1.0, self.items);
            if nearest - place <= self.close || drawn >= self.integral(nearest + 0.5) - self.weight(nearest) {
                return nearest as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chi-square statistic over the ranks with an expectation of at least ten; all others are combined.
    #[test]
    fn ranks_come_as_often_as_they_should_below_at_and_beyond_one() {
        let items = 1000u64;
        let draws = 200_000u32;
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 1.6] {
            let skewed = Skewed::new(items, exponent);
            let mut random = Random::new(11);
            let mut counts = vec![0u32; items as usize];
            (0..draws).for_each(|_| counts[skewed.next(&mut random) as usize] += 1);
            let sum: f64 = (1..=items).map(|place| (place as f64).powf(-exponent)).sum();
            let expected = |rank: usize| (rank as f64 + 1.0).powf(-exponent) / sum * f64::from(draws);
            let mut chi_square = 0.0;
            let mut ranks = 0.0;
            let mut seen = f64::from(draws);
            let mut rest = f64::from(draws);
            for (rank, count) in counts.iter().enumerate().filter(|(rank, _)| expected(*rank) >= 10.0) {
                chi_square += (f64::from(*count) - expected(rank)).powi(2) / expected(rank);
                (seen, rest, ranks) = (seen - f64::from(*count), rest - expected(rank), ranks + 1.0);
            }
            if rest > 1.0 {
                chi_square += (seen - rest).powi(2) / rest;
            }
            // The mean of the statistic is the number of ranks; its standard deviation is the square root of
            // twice that number.
            let off = (chi_square - ranks) / (2.0 * ranks).sqrt();
            assert!(off.abs() < 4.0, "exponent {exponent}: {off} standard deviations over {ranks} ranks");
        }
    }

    #[test]
    fn few_ranks_and_strange_exponents_stay_in_bounds() {
        let mut random = Random::new(12);
        for items in [0, 1, 2, 3] {
            for exponent in [-1.0, 0.0, 1.0, 3.0, 50.0] {
                let skewed = Skewed::new(items, exponent);
                assert!((0..1000).all(|_| skewed.next(&mut random) < items.max(1)), "{items} {exponent}");
            }
        }
    }
}
