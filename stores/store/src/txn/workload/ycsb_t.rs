//! YCSB-T (Dey, Fekete, Nambiar, Röhm, ICDEW 2014) as the PRISM paper uses it (§8.3). Short read-modify-write
//! transactions access objects of one length with keys of 8 bytes, uniformly or by Zipf's law.

use std::sync::Arc;

use super::script::{Key, Script};
use super::{Extent, Step, Workload};
use crate::random::Random;
use crate::txn::client::slot_of;
use crate::words::u64_at;
use crate::ycsb::{Record, Skewed, Values};

/// Maximum number of records per transaction.
pub const MOST_RECORDS: usize = 4;

/// The parameters of one transaction: the records that it updates.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct YcsbTJob {
    records: [Record; MOST_RECORDS],
    /// Numbers of the records' keys.
    numbers: [u64; MOST_RECORDS],
    count: u8,
}

impl YcsbTJob {
    /// Returns the records that the transaction updates.
    pub fn records(&self) -> &[Record] {
        &self.records[..usize::from(self.count)]
    }
}

/// The YCSB-T workload. A record's value contains its version (`remora_store::ycsb::record`), and each
/// committed transaction increments the versions that it updates. So the sum of all versions is the number
/// of committed updates.
#[derive(Clone, Debug)]
pub struct YcsbT {
    records: u64,
    /// Numbers of the records' keys; `None` if they are the records' own numbers.
    numbers: Option<Arc<[u64]>>,
    values: Values,
    /// Number of records per transaction.
    each: u8,
    ranks: Skewed,
    random: Random,
}

impl YcsbT {
    /// Returns a workload over `records` records with values of `value_len` bytes (at least 16). Each
    /// transaction updates `each` of them (1 to [`MOST_RECORDS`]), drawn by Zipf's law with this exponent,
    /// or uniformly for 0.
    pub fn new(records: u64, value_len: u32, each: u8, exponent: f64, seed: u64) -> YcsbT {
        let records = records.max(1);
        let each = each.clamp(1, MOST_RECORDS as u8).min(records.min(MOST_RECORDS as u64) as u8);
        YcsbT {
            records,
            numbers: None,
            values: Values::fixed(value_len.max(16)),
            each,
            ranks: Skewed::new(records, exponent),
            random: Random::new(seed),
        }
    }

    /// Chooses keys that do not collide in a shard's table of `slots` slots, so that all of them are in
    /// their home slots. The paper's hash function has no collisions either. Returns `None` if there are
    /// fewer slots than records.
    pub fn apart(self, slots: u64) -> Option<YcsbT> {
        if slots < self.records {
            return None;
        }
        let mut taken = vec![false; slots as usize];
        let mut free = |number: &u64| {
            !std::mem::replace(&mut taken[slot_of(key(*number).bytes(), slots) as usize], true)
        };
        let numbers = (0..).filter(|number| free(number)).take(self.records as usize).collect();
        Some(YcsbT { numbers: Some(numbers), ..self })
    }

    fn number(&self, record: Record) -> u64 {
        self.numbers.as_ref().map_or(record, |numbers| numbers[record as usize])
    }

    /// Returns the workload with the same records, drawn with another distribution.
    pub fn skewed(&self, exponent: f64, seed: u64) -> YcsbT {
        YcsbT { ranks: Skewed::new(self.records, exponent), random: Random::new(seed), ..self.clone() }
    }
}

/// Returns the key with this number. A rank is a record, because the table's hash spreads the popular ones.
fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

impl Workload for YcsbT {
    type Job = YcsbTJob;

    fn extent(&self) -> Extent {
        Extent { keys: self.records, max_key: 8, max_value: self.values.longest, max_keys: self.each.into() }
    }

    fn draw(&mut self) -> YcsbTJob {
        let mut job = YcsbTJob { records: [0; MOST_RECORDS], numbers: [0; MOST_RECORDS], count: 0 };
        while job.count < self.each {
            let record = self.ranks.next(&mut self.random);
            if !job.records().contains(&record) {
                let index = usize::from(job.count);
                (job.records[index], job.numbers[index]) = (record, self.number(record));
                job.count += 1;
            }
        }
        job
    }

    fn step(&self, job: &YcsbTJob, script: &mut Script) -> Step {
        if script.asked() == 0 {
            for number in &job.numbers[..usize::from(job.count)] {
                script.read(key(*number));
            }
            return Step::Read;
        }
        for (place, record) in job.records().iter().enumerate() {
            // The ledger checks the value; the new version continues from any version that was read.
            let version = script.value(place).filter(|value| value.len() >= 16).map(|value| u64_at(value, 8));
            let out = script.write(key(job.numbers[place]), self.values.len(*record));
            self.values.fill(*record, version.unwrap_or(0) + 1, out);
            script.gain += 1;
        }
        Step::Commit
    }

    fn rows(&self) -> u64 {
        self.records
    }

    fn row(&self, index: u64, value: &mut Vec<u8>) -> (Key, bool) {
        value.resize(self.values.longest as usize, 0);
        self.values.fill(index, 0, value);
        (key(self.number(index)), true)
    }

    fn worth(&self, index: u64, value: Option<&[u8]>) -> Option<i64> {
        self.values.check(index, value?).map(|version| version as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_changes_different_records_and_counts_their_versions_up() {
        let mut workload = YcsbT::new(10, 40, 4, 1.6, 1);
        for _ in 0..1000 {
            let job = workload.draw();
            let mut records = job.records().to_vec();
            records.sort_unstable();
            records.dedup();
            assert!(records.len() == 4 && records.iter().all(|record| *record < 10));
        }
        let job = workload.draw();
        let mut script = Script::default();
        assert_eq!(workload.step(&job, &mut script), Step::Read);
        let mut value = vec![0; 40];
        for (place, record) in job.records().iter().enumerate() {
            workload.values.fill(*record, 6, &mut value);
            script.found(place, Some(&value));
        }
        assert_eq!((workload.step(&job, &mut script), script.gain), (Step::Commit, 4));
        let worths: Vec<_> = job
            .records()
            .iter()
            .zip(script.writes())
            .map(|(record, (written, value))| (*written == key(*record), workload.worth(*record, value)))
            .collect();
        assert_eq!(worths, [(true, Some(7)); 4]);
    }

    #[test]
    fn skew_makes_few_records_popular_and_none_of_it_all_alike() {
        let draws = 20_000;
        for (exponent, share) in [(0.0, 0.001), (0.99, 0.133), (1.6, 0.443)] {
            let mut workload = YcsbT::new(1000, 16, 1, exponent, 3);
            let hits = (0..draws).filter(|_| workload.draw().records() == [0]).count();
            let expected = share * draws as f64;
            assert!((hits as f64 - expected).abs() < 6.0 * expected.sqrt(), "{exponent}: {hits}");
        }
    }

    #[test]
    fn keys_that_are_kept_apart_have_a_slot_each() {
        let workload = YcsbT::new(500, 16, 1, 0.0, 1);
        assert!(workload.clone().apart(499).is_none());
        let mut workload = workload.apart(1000).unwrap();
        let homes: std::collections::BTreeSet<u64> =
            (0..500).map(|index| slot_of(workload.row(index, &mut Vec::new()).0.bytes(), 1000)).collect();
        assert_eq!(homes.len(), 500);
        let job = workload.draw();
        let mut script = Script::default();
        workload.step(&job, &mut script);
        assert_eq!(script.key(0), Some(workload.row(job.records()[0], &mut Vec::new()).0));
    }

    #[test]
    fn a_value_of_another_record_or_none_is_worth_nothing() {
        let workload = YcsbT::new(10, 40, 1, 0.0, 1);
        let mut value = Vec::new();
        assert!(workload.row(3, &mut value).1);
        assert_eq!((workload.worth(3, Some(&value)), workload.worth(4, Some(&value))), (Some(0), None));
        assert_eq!(workload.worth(3, None), None);
    }
}
