//! Zipfian numbers by the method that YCSB uses, and the distributions that YCSB derives from them. The
//! method is that of Gray, Sundaresan, Englert, Baclawski and Weinberger (*Quickly Generating Billion-Record
//! Synthetic Databases*, SIGMOD 1994, §3.1).

use crate::random::Random;

/// YCSB's constant: rank k has a probability proportional to 1/k^0.99.
pub(crate) const THETA: f64 = 0.99;

/// Returns the generalised harmonic number: the sum of 1/k^theta for k from 1 to `n`.
///
/// The first terms are added. The rest is computed by the Euler-Maclaurin formula (integral, half of the
/// ends, two corrections by derivatives), whose error is below 10^-12 here. So ten billion items cost no
/// more than ten thousand.
pub fn zeta(n: u64, theta: f64) -> f64 {
    const SUMMED: u64 = 2000;
    let summed = n.min(SUMMED);
    let head: f64 = (1..=summed).rev().map(|k| (k as f64).powf(-theta)).sum();
    if n == summed {
        return head;
    }
    let a = summed as f64;
    let b = n as f64;
    let integral = if (theta - 1.0).abs() < 1e-12 {
        (b / a).ln()
    } else {
        (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta)
    };
    let ends = (b.powf(-theta) - a.powf(-theta)) / 2.0;
    let first = theta * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0)) / 12.0;
    let third = theta * (theta + 1.0) * (theta + 2.0) / 720.0;
    head + integral + ends + first - third * (a.powf(-theta - 3.0) - b.powf(-theta - 3.0))
}

/// A Zipfian distribution of ranks from 0, the most popular first.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta_items: f64,
    zeta_2: f64,
    eta: f64,
}

impl Zipfian {
    /// Returns the distribution over `items` ranks (at least one), for `0 < theta < 1`.
    pub fn new(items: u64, theta: f64) -> Zipfian {
        let items = items.max(1);
        let mut zipfian = Zipfian {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_items: zeta(items, theta),
            zeta_2: zeta(2, theta),
            eta: 0.0,
        };
        zipfian.settle();
        zipfian
    }

    fn settle(&mut self) {
        let few = (2.0 / self.items as f64).powf(1.0 - self.theta);
        self.eta = (1.0 - few) / (1.0 - self.zeta_2 / self.zeta_items);
    }

    /// Returns the current number of ranks.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Adds ranks up to `items`. Only the new terms are added, so growing by one costs one power.
    pub fn grow(&mut self, items: u64) {
        if items <= self.items {
            return;
        }
        if items - self.items < 64 {
            let new = (self.items + 1..=items).map(|k| (k as f64).powf(-self.theta));
            self.zeta_items += new.sum::<f64>();
        } else {
            self.zeta_items = zeta(items, self.theta);
        }
        self.items = items;
        self.settle();
    }

    /// Draws the next rank.
    #[inline]
    pub fn next(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta_items;
        if uz < 1.0 {
            return 0;
        }
        if uz < self.zeta_2 {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }

    /// Returns the exact probability of a rank, 1/(k+1)^theta / zeta(n). [`next`](Zipfian::next)
    /// approximates it beyond the first two ranks.
    pub fn probability(&self, rank: u64) -> f64 {
        ((rank + 1) as f64).powf(-self.theta) / self.zeta_items
    }
}

/// A distribution whose popular records are spread over the whole key space: a Zipfian rank out of ten
/// billion is hashed, modulo the number of records.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ScrambledZipfian {
    ranks: Zipfian,
}

impl ScrambledZipfian {
    /// YCSB's number of ranks. It is so large that the popular records stay popular, however many records
    /// are added.
    pub const RANKS: u64 = 10_000_000_000;

    /// Returns the distribution for `0 < theta < 1`.
    pub fn new(theta: f64) -> ScrambledZipfian {
        ScrambledZipfian { ranks: Zipfian::new(ScrambledZipfian::RANKS, theta) }
    }

    /// Draws one of `records` records.
    #[inline]
    pub fn next(&self, random: &mut Random, records: u64) -> u64 {
        fnv(self.ranks.next(random)) % records.max(1)
    }
}

/// Returns the hash of a rank: the absolute value of FNV-1a over its eight bytes, low bytes first, as in
/// YCSB's `Utils.hash`.
#[inline]
pub fn fnv(number: u64) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    (hash as i64).unsigned_abs()
}

/// A distribution whose recent records are popular: a Zipfian rank is counted back from the last record.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Latest {
    ages: Zipfian,
}

impl Latest {
    /// Returns the distribution over initially `records` records, for `0 < theta < 1`.
    pub fn new(records: u64, theta: f64) -> Latest {
        Latest { ages: Zipfian::new(records, theta) }
    }

    /// Draws one of `records` records, whose number may only grow.
    #[inline]
    pub fn next(&mut self, random: &mut Random, records: u64) -> u64 {
        self.ages.grow(records);
        records.max(1) - 1 - self.ages.next(random).min(records.max(1) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_equals_the_sum_and_the_constant_of_ycsb() {
        for (n, theta) in [(1, 0.99), (2, 0.5), (2000, 0.99), (2001, 0.99), (300_000, 0.99), (300_000, 0.5)] {
            let sum: f64 = (1..=n).rev().map(|k| (k as f64).powf(-theta)).sum();
            assert!((zeta(n, theta) / sum - 1.0).abs() < 1e-12, "{n} {theta}");
        }
        // The constant ScrambledZipfianGenerator.ZETAN, which YCSB computed by adding ten billion terms.
        assert!((zeta(ScrambledZipfian::RANKS, THETA) - 26.46902820178302).abs() < 1e-6);
        assert!((zeta(1_000_000, 1.0) - 14.392726722865724).abs() < 1e-10);
    }

    /// The first two ranks are exact; for others Gray's curve is close to the true one.
    #[test]
    fn ranks_come_as_often_as_they_should() {
        let items = 1000;
        let draws = 1_000_000u32;
        let zipfian = Zipfian::new(items, THETA);
        let mut random = Random::new(5);
        let mut counts = vec![0u32; items as usize];
        (0..draws).for_each(|_| counts[zipfian.next(&mut random) as usize] += 1);
        for rank in 0..2 {
            let expected = zipfian.probability(rank) * f64::from(draws);
            let deviation = (f64::from(counts[rank as usize]) - expected) / expected.sqrt();
            assert!(deviation.abs() < 5.0, "rank {rank}: {deviation} standard deviations");
        }
        // Groups of ranks, each twice as wide as the one before.
        let mut first = 2;
        let mut width = 4;
        while first < items {
            let group = first..(first + width).min(items);
            let expected: f64 = group.clone().map(|rank| zipfian.probability(rank)).sum();
            let seen: u32 = counts[group.start as usize..group.end as usize].iter().sum();
            let ratio = f64::from(seen) / f64::from(draws) / expected;
            assert!((0.85..1.15).contains(&ratio), "{group:?}: {ratio}");
            (first, width) = (first + width, width * 2);
        }
    }

    /// Compares with the exact probabilities of Gray's own method: rank k results from all u in its
    /// interval. The chi-square statistic over 50 ranks has mean 49 and a standard deviation below 10.
    #[test]
    fn chi_square_of_the_first_ranks() {
        let zipfian = Zipfian::new(100_000, THETA);
        let draws = 400_000u32;
        let ranks = 50u64;
        let mut random = Random::new(6);
        let mut counts = vec![0u32; ranks as usize];
        for _ in 0..draws {
            if let Some(count) = counts.get_mut(zipfian.next(&mut random) as usize) {
                *count += 1;
            }
        }
        // The value of u at which rank k begins: the inverse of the curve.
        let begin = |rank: u64| match rank {
            0 => 0.0,
            1 => 1.0 / zipfian.zeta_items,
            _ => {
                let fraction = rank as f64 / zipfian.items as f64;
                let curve = (fraction.powf(1.0 / zipfian.alpha) - 1.0 + zipfian.eta) / zipfian.eta;
                curve.max(zipfian.zeta_2 / zipfian.zeta_items)
            }
        };
        let chi_square: f64 = (0..ranks)
            .map(|rank| {
                let expected = (begin(rank + 1) - begin(rank)) * f64::from(draws);
                (f64::from(counts[rank as usize]) - expected).powi(2) / expected
            })
            .sum();
        assert!((10.0..110.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn scrambled_records_are_few_and_everywhere() {
        let scrambled = ScrambledZipfian::new(THETA);
        let mut random = Random::new(7);
        let records = 1000;
        let draws = 200_000u32;
        let mut counts = vec![0u32; records as usize];
        (0..draws).for_each(|_| counts[scrambled.next(&mut random, records) as usize] += 1);
        // The most popular record is the one to which rank 0 is hashed, with at least the share of rank 0.
        let most = (0..records as usize).max_by_key(|record| counts[*record]).unwrap();
        assert_eq!(most as u64, fnv(0) % records);
        let share = f64::from(counts[most]) / f64::from(draws);
        assert!((0.036..0.042).contains(&share), "{share}");
        // The upper half of the key space gets its share.
        let upper: u32 = counts[500..].iter().sum();
        assert!((0.4..0.6).contains(&(f64::from(upper) / f64::from(draws))));
        // FNV-1a of eight zero bytes is 0xa8c7f832281a39c5: negative, so its absolute value is used.
        assert_eq!(fnv(0), 0x5738_07cd_d7e5_c63b);
    }

    #[test]
    fn latest_follows_the_insertions() {
        let mut latest = Latest::new(1000, THETA);
        let mut random = Random::new(8);
        for records in [1000, 1001, 1500, 100_000] {
            let mut last = 0;
            for _ in 0..20_000 {
                let record = latest.next(&mut random, records);
                assert!(record < records);
                last += u32::from(record + 1 == records);
            }
            let expected = 20_000.0 / zeta(records, THETA);
            assert!((f64::from(last) - expected).abs() < 6.0 * expected.sqrt(), "{records}: {last}");
        }
    }

    #[test]
    fn the_smallest_ones() {
        let mut random = Random::new(9);
        for items in [0, 1, 2, 3] {
            let zipfian = Zipfian::new(items, THETA);
            assert!((0..1000).all(|_| zipfian.next(&mut random) < items.max(1)), "{items}");
        }
        assert_eq!(ScrambledZipfian::new(THETA).next(&mut random, 0), 0);
        assert_eq!(Latest::new(0, THETA).next(&mut random, 0), 0);
    }
}
