//! The core workloads, which choose the next operation and its record.

use super::record::Record;
use super::zipfian::{Latest, ScrambledZipfian, THETA};
use crate::random::Random;

/// An operation of a workload.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read a record.
    Read(Record),
    /// Write a new version of a record.
    Update(Record),
    /// Write a new record.
    Insert(Record),
    /// Read a record and its successors. A hash table has no order, so a scan there is `len` GETs of records
    /// with consecutive *numbers*, and reports must say so.
    Scan {
        /// Number of the first record.
        first: Record,
        /// Number of records, 1 to [`Mix::longest_scan`].
        len: u32,
    },
    /// Read a record, change it and write it back: two operations in sequence.
    ReadModifyWrite(Record),
}

/// The shares of operations, in percent; they add up to 100.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Name of the workload: `A` to `F`.
    pub name: char,
    /// Percent of reads.
    pub read: u8,
    /// Percent of updates.
    pub update: u8,
    /// Percent of inserts.
    pub insert: u8,
    /// Percent of scans.
    pub scan: u8,
    /// Percent of read-modify-writes.
    pub read_modify_write: u8,
    /// The distribution by which records are chosen.
    pub distribution: Distribution,
    /// Maximum number of records per scan.
    pub longest_scan: u32,
}

/// The distribution by which records are chosen.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Distribution {
    /// All records are equally popular.
    Uniform,
    /// A few records, spread over all numbers, are popular; theta in thousandths (YCSB: 990).
    Zipfian(u16),
    /// Recent records are popular; theta in thousandths.
    Latest(u16),
}

impl Eq for Distribution {}

const fn mix(name: char, shares: [u8; 5], distribution: Distribution) -> Mix {
    let [read, update, insert, scan, read_modify_write] = shares;
    Mix { name, read, update, insert, scan, read_modify_write, distribution, longest_scan: LONGEST_SCAN }
}

/// Maximum number of records per scan in workload E.
const LONGEST_SCAN: u32 = 100;

/// Theta of the core workloads, in thousandths.
const ZIPFIAN: Distribution = Distribution::Zipfian((THETA * 1000.0) as u16);

impl Mix {
    /// Update heavy: a session store recording recent actions.
    pub const A: Mix = mix('A', [50, 50, 0, 0, 0], ZIPFIAN);
    /// Read mostly: photo tagging.
    pub const B: Mix = mix('B', [95, 5, 0, 0, 0], ZIPFIAN);
    /// Read only: a cache of user profiles.
    pub const C: Mix = mix('C', [100, 0, 0, 0, 0], ZIPFIAN);
    /// Read latest: status updates.
    pub const D: Mix = mix('D', [95, 0, 5, 0, 0], Distribution::Latest((THETA * 1000.0) as u16));
    /// Short ranges: threaded conversations.
    pub const E: Mix = mix('E', [0, 0, 5, 95, 0], ZIPFIAN);
    /// Read-modify-write: a user database.
    pub const F: Mix = mix('F', [50, 0, 0, 0, 50], ZIPFIAN);
    /// All core workloads.
    pub const ALL: [Mix; 6] = [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];

    /// Returns the workload with this name, in either case.
    pub fn named(name: char) -> Option<Mix> {
        Mix::ALL.into_iter().find(|mix| mix.name == name.to_ascii_uppercase())
    }
}

/// The numbers that a client inserts: `first`, `first + step`, … So clients insert different records without
/// coordination.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Number of this client, from 0.
    pub client: u64,
    /// Number of clients, at least 1.
    pub clients: u64,
}

impl Stripe {
    /// The stripe of a single client.
    pub const ALONE: Stripe = Stripe { client: 0, clients: 1 };
}

/// The distribution by which records are chosen, with its tables.
#[derive(Clone, Debug)]
enum Chooser {
    Uniform,
    Zipfian(ScrambledZipfian),
    Latest(Latest),
}

/// A stream of operations.
#[derive(Clone, Debug)]
pub struct Workload {
    mix: Mix,
    random: Random,
    chooser: Chooser,
    stripe: Stripe,
    /// Number of records that exist, as far as this client knows: loaded, or inserted by this client. With
    /// stripes, the client's own numbers follow the loaded ones.
    records: u64,
    inserted: u64,
    loaded: u64,
}

impl Workload {
    /// Returns the stream of `seed` over `records` loaded records (at least one).
    pub fn new(mix: Mix, records: u64, stripe: Stripe, seed: u64) -> Workload {
        let records = records.max(1);
        let theta = |thousandths: u16| f64::from(thousandths.clamp(1, 999)) / 1000.0;
        let chooser = match mix.distribution {
            Distribution::Uniform => Chooser::Uniform,
            Distribution::Zipfian(thousandths) => Chooser::Zipfian(ScrambledZipfian::new(theta(thousandths))),
            Distribution::Latest(thousandths) => Chooser::Latest(Latest::new(records, theta(thousandths))),
        };
        // Clients with the same seed must not execute the same operations.
        let random = Random::new(seed ^ stripe.client.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let stripe = Stripe { client: stripe.client, clients: stripe.clients.max(1) };
        Workload { mix, random, chooser, stripe, records, inserted: 0, loaded: records }
    }

    /// Returns the shares of operations.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// Returns the number of records that this client knows to exist.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the next operation.
    #[inline]
    pub fn next_operation(&mut self) -> Operation {
        let mut share = self.random.below(100) as u8;
        let Mix { read, update, insert, scan, longest_scan, .. } = self.mix;
        let mut is = |part: u8| {
            let hit = share < part;
            share = share.saturating_sub(part);
            hit
        };
        if is(read) {
            Operation::Read(self.choose())
        } else if is(update) {
            Operation::Update(self.choose())
        } else if is(insert) {
            self.insert()
        } else if is(scan) {
            let first = self.choose();
            Operation::Scan { first, len: 1 + self.random.below(longest_scan.max(1).into()) as u32 }
        } else {
            Operation::ReadModifyWrite(self.choose())
        }
    }

    /// Returns the number of this client's record with this index.
    fn number(&self, index: u64) -> Record {
        if index < self.loaded {
            return index;
        }
        self.loaded + (index - self.loaded) * self.stripe.clients + self.stripe.client
    }

    fn insert(&mut self) -> Operation {
        let number = self.number(self.loaded + self.inserted);
        self.inserted += 1;
        self.records += 1;
        Operation::Insert(number)
    }

    #[inline]
    fn choose(&mut self) -> Record {
        let records = self.records;
        let index = match &mut self.chooser {
            Chooser::Uniform => self.random.below(records),
            Chooser::Zipfian(scrambled) => scrambled.next(&mut self.random, records),
            Chooser::Latest(latest) => latest.next(&mut self.random, records),
        };
        self.number(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DRAWS: u32 = 100_000;

    fn shares(mix: Mix) -> [u32; 5] {
        let mut workload = Workload::new(mix, 10_000, Stripe::ALONE, 3);
        let mut counts = [0; 5];
        for _ in 0..DRAWS {
            counts[match workload.next_operation() {
                Operation::Read(_) => 0,
                Operation::Update(_) => 1,
                Operation::Insert(_) => 2,
                Operation::Scan { .. } => 3,
                Operation::ReadModifyWrite(_) => 4,
            }] += 1;
        }
        counts
    }

    #[test]
    fn shares_are_those_of_the_paper() {
        let papers: [(char, [u32; 5]); 6] = [
            ('a', [50, 50, 0, 0, 0]),
            ('b', [95, 5, 0, 0, 0]),
            ('c', [100, 0, 0, 0, 0]),
            ('d', [95, 0, 5, 0, 0]),
            ('e', [0, 0, 5, 95, 0]),
            ('f', [50, 0, 0, 0, 50]),
        ];
        for (name, expected) in papers {
            for (count, percent) in shares(Mix::named(name).unwrap()).into_iter().zip(expected) {
                let share = f64::from(percent) / 100.0;
                let deviation = (f64::from(DRAWS) * share * (1.0 - share)).sqrt();
                let off = (f64::from(count) - f64::from(DRAWS) * share).abs();
                assert!(off <= 5.0 * deviation, "{name}: {count} of {percent} %");
            }
        }
        assert_eq!(Mix::named('g'), None);
    }

    #[test]
    fn one_seed_one_stream_and_clients_differ() {
        let stream = |client, seed| -> Vec<Operation> {
            let mut workload = Workload::new(Mix::D, 1000, Stripe { client, clients: 4 }, seed);
            (0..1000).map(|_| workload.next_operation()).collect()
        };
        assert_eq!(stream(0, 1), stream(0, 1));
        assert_ne!(stream(0, 1), stream(0, 2));
        assert_ne!(stream(0, 1), stream(1, 1));
    }

    #[test]
    fn clients_insert_apart_and_read_what_they_know() {
        let mut inserted = BTreeSet::new();
        for client in 0..3 {
            let mut workload = Workload::new(Mix::D, 1000, Stripe { client, clients: 3 }, 1);
            let mut own = BTreeSet::new();
            for _ in 0..5000 {
                match workload.next_operation() {
                    Operation::Insert(record) => {
                        assert!(record >= 1000 && inserted.insert(record), "{record} twice");
                        own.insert(record);
                    }
                    Operation::Read(record) => assert!(record < 1000 || own.contains(&record)),
                    other => panic!("{other:?}"),
                }
            }
            assert!(own.len() > 150);
            assert_eq!(workload.records(), 1000 + own.len() as u64);
        }
    }

    #[test]
    fn uniform_is_flat_and_scans_are_short() {
        let mix = Mix { distribution: Distribution::Uniform, ..Mix::E };
        let mut workload = Workload::new(mix, 100, Stripe::ALONE, 2);
        let mut counts = vec![0u32; 100];
        let mut seed = 2;
        for _ in 0..DRAWS {
            if let Operation::Scan { first, len } = workload.next_operation() {
                assert!((1..=100).contains(&len));
                if let Some(count) = counts.get_mut(first as usize) {
                    *count += 1;
                }
            }
            // Inserts add records, so the workload is restarted before they matter.
            if workload.records() > 110 {
                seed += 1;
                workload = Workload::new(mix, 100, Stripe::ALONE, seed);
            }
        }
        let mean = f64::from(counts.iter().sum::<u32>()) / 100.0;
        let chi_square: f64 = counts.iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum();
        // With 99 degrees of freedom, the mean is 99 and the standard deviation 14.
        assert!((45.0..170.0).contains(&chi_square), "{chi_square}");
    }
}
