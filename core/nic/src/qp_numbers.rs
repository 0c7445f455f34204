//! Allocation of queue pair numbers. A number consists of an index in the NIC's table and a tag that changes
//! when the index is reused.
//!
//! With a seed, numbers come from keyed permutations, like the keys of memory regions, so that other hosts
//! cannot guess them. Without a seed they are sequential.

use remora_memory::permute;
use remora_wire::Qpn;
use std::collections::VecDeque;

use crate::config::Config;
use crate::multicast::MULTICAST_QPN;

/// Number of bits of a queue pair number below its QPN range.
const RANGE_BITS: u32 = Qpn::RANGE_SHIFT;
/// Number of index bits in a queue pair number if the NIC has a QPN range and no seed.
const RANGE_INDEX_BITS: u32 = 15;
/// The first usable index: numbers 0 and 1 belong to the management queue pairs.
const FIRST_INDEX: u32 = 2;

/// The allocator of queue pair numbers.
pub(crate) struct QpNumbers {
    seed: Option<u64>,
    index_bits: u32,
    /// Number of bits of the tag; `index_bits` is the number of bits below it.
    tag_bits: u32,
    tag_shift: u32,
    /// QPN range, shifted to its position in a number.
    prefix: u32,
    /// Upper bound of the index (exclusive).
    max: u32,
    /// Number of indices in use.
    taken: u32,
    /// Number of indices that have been used at least once.
    fresh: u32,
    /// Freed indices, the one that has been free for longest first.
    freed: VecDeque<u32>,
    /// Number of times that each index was freed.
    generations: Vec<u32>,
}

impl QpNumbers {
    pub(crate) fn new(config: &Config) -> QpNumbers {
        let most = match config.qpn_range {
            None => 1 << 16,
            Some(_) => (1 << RANGE_INDEX_BITS) - FIRST_INDEX,
        };
        let max = config.max_qps.clamp(1, most) + FIRST_INDEX;
        let places = max.next_power_of_two();
        let index_bits = places.trailing_zeros();
        let bits = if config.qpn_range.is_some() { RANGE_BITS } else { 24 };
        let (tag_shift, tag_bits) = match (config.qpn_seed, config.qpn_range) {
            (Some(_), _) => (index_bits, bits - index_bits),
            (None, None) => (index_bits, (bits - index_bits).min(8)),
            (None, Some(_)) => (RANGE_INDEX_BITS, bits - RANGE_INDEX_BITS),
        };
        QpNumbers {
            seed: config.qpn_seed,
            index_bits,
            tag_bits,
            tag_shift,
            prefix: config.qpn_range.map_or(0, |range| u32::from(range & 0x7f) << Qpn::RANGE_SHIFT),
            max,
            taken: 0,
            fresh: 0,
            freed: VecDeque::new(),
            generations: vec![0; places as usize],
        }
    }

    /// Returns the size of the table, a power of two.
    pub(crate) fn places(&self) -> u32 {
        1 << self.index_bits
    }

    /// Returns the number of index bits in a queue pair number.
    pub(crate) fn index_bits(&self) -> u32 {
        self.index_bits
    }

    /// Returns true if all indices are in use.
    pub(crate) fn is_full(&self) -> bool {
        self.taken >= self.max - FIRST_INDEX
    }

    /// Allocates an index and returns it with the number of its next queue pair. `None` if all indices are in
    /// use.
    pub(crate) fn take(&mut self) -> Option<(u32, Qpn)> {
        let index = self.fresh_index().or_else(|| self.freed.pop_front())?;
        let mut number = self.number(index);
        if number.get() == MULTICAST_QPN {
            self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
            number = self.number(index);
        }
        self.taken += 1;
        Some((index, number))
    }

    /// Frees an index, which is reused after all other free ones.
    pub(crate) fn give_back(&mut self, index: u32) {
        if index >= FIRST_INDEX {
            self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
            self.freed.push_back(index);
            self.taken -= 1;
        }
    }

    /// Returns an index that was never used.
    fn fresh_index(&mut self) -> Option<u32> {
        while self.fresh < self.places() {
            let step = self.fresh;
            self.fresh += 1;
            let index = self.seed.map_or(step, |seed| permute(step, self.index_bits, seed));
            if (FIRST_INDEX..self.max).contains(&index) {
                return Some(index);
            }
        }
        None
    }

    /// Returns the number of the next queue pair at this index. The tag changes with each use, so a packet
    /// for a destroyed queue pair does not reach its successor.
    fn number(&self, index: u32) -> Qpn {
        let turn = self.generations[index as usize] & ((1 << self.tag_bits) - 1);
        let tag = match self.seed {
            Some(seed) => permute(turn, self.tag_bits, seed ^ (u64::from(index) + 1) << 32),
            None => turn,
        };
        Qpn::new(self.prefix | tag << self.tag_shift | index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn numbers(max_qps: u32, qpn_range: Option<u8>, qpn_seed: Option<u64>) -> QpNumbers {
        QpNumbers::new(&Config { max_qps, qpn_range, qpn_seed, ..Config::default() })
    }

    /// The number 0xffffff is reserved for multicast.
    #[test]
    fn no_queue_pair_has_the_number_of_all_ones() {
        for (range, seed) in [(None, None), (Some(127), None), (None, Some(5)), (Some(127), Some(5))] {
            let mut numbers = numbers(1 << 14, range, seed);
            let last = numbers.places() - 1;
            let all = 1 << numbers.tag_bits;
            let mut seen = BTreeSet::new();
            for turn in 0..all {
                numbers.fresh = numbers.places();
                numbers.taken = 0;
                numbers.freed = VecDeque::from([last]);
                numbers.generations[last as usize] = turn;
                let (index, number) = numbers.take().unwrap();
                assert!(index == last && number.get() != MULTICAST_QPN);
                seen.insert(number.get());
            }
            assert!(seen.len() as u32 >= all - 1, "{} numbers of one place", seen.len());
        }
    }

    #[test]
    fn without_a_seed_numbers_are_counted_up() {
        let mut counted = numbers(1 << 14, None, None);
        let first: Vec<u32> = (0..3).map(|_| counted.take().unwrap().1.get()).collect();
        assert_eq!(first, [2, 3, 4]);
        let mut of_range = numbers(4, Some(3), None);
        let (index, number) = of_range.take().unwrap();
        assert_eq!(number.get(), 3 << 17 | 2);
        of_range.give_back(index);
        (0..3).for_each(|_| assert!(of_range.take().is_some()));
        assert_eq!(of_range.take().unwrap().1.get(), 3 << 17 | 1 << 15 | 2);
    }

    /// Regression: queue pair numbers were counted up from 2.
    #[test]
    fn with_a_seed_all_places_are_used_and_numbers_follow_no_order() {
        for (max, range) in [(1 << 14, None), (1 << 14, Some(9)), (1000, None), (32_766, Some(127))] {
            let draw = |seed| -> Vec<u32> {
                let mut numbers = numbers(max, range, Some(seed));
                let taken = std::iter::from_fn(|| numbers.take()).map(|(_, number)| number.get()).collect();
                assert!(numbers.is_full());
                taken
            };
            let first = draw(1);
            assert_eq!((first.len() as u32, &first), (max, &draw(1)), "the seed decides");
            assert_eq!(first.iter().collect::<BTreeSet<_>>().len() as u32, max);
            assert!(
                first.iter().all(|number| Qpn::new(*number).range() == range.unwrap_or((number >> 17) as u8))
            );
            // No two seeds, and no two neighbours, have a common distance.
            let steps: BTreeSet<u32> = first.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
            assert!(steps.len() as u32 > max / 2, "{} steps of {max}", steps.len());
            assert!(
                first.iter().zip(draw(2)).filter(|(one, other)| **one == *other).count() < max as usize / 100
            );
        }
    }
}
