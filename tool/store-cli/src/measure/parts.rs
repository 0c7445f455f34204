//! The operations of a workload as GETs and PUTs of a key-value store, drawn before the clock starts.
//!
//! An insert is a PUT. A scan is a GET of each of its records, because a hash table has no order. A
//! read-modify-write is a GET, followed by a PUT.

use std::collections::VecDeque;

use remora_store::ycsb::record::{self, KEY_LEN};
use remora_store::ycsb::{Mix, Operation, Record, Stripe, Workload};

/// Operation on one record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads the record.
    Get,
    /// Reads the record and then changes it, if it exists.
    GetToChange,
    /// Writes a new version of the record.
    Put,
    /// Writes a new record.
    Insert,
}

/// A GET or PUT of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Record that the operation reads or writes.
    pub record: Record,
    /// Operation on the record.
    pub verb: Verb,
    /// True if this part is the last one of its operation.
    pub last: bool,
    /// Index of the part among those that were drawn.
    index: u32,
}

impl Part {
    /// A placeholder for unused slots.
    pub const NONE: Part = Part { record: 0, verb: Verb::Get, last: true, index: 0 };

    /// Returns whether the part is a GET.
    #[inline]
    pub fn reads(self) -> bool {
        matches!(self.verb, Verb::Get | Verb::GetToChange)
    }
}

/// The stream of parts of a workload.
pub struct Parts {
    workload: Workload,
    drawn: Vec<Part>,
    /// Keys of the drawn parts.
    keys: Vec<[u8; KEY_LEN]>,
    /// Index of the next drawn part.
    next: usize,
    /// Parts that follow from completed parts, such as the PUT of a read-modify-write.
    following: VecDeque<Part>,
    /// Inserts in flight. As in YCSB, no record is read before its insert was acknowledged.
    inserting: Vec<Record>,
    /// The oldest insert in flight.
    missing: Record,
}

impl Parts {
    /// Creates the stream of a single client.
    pub fn new(mix: Mix, records: u64, seed: u64) -> Parts {
        Parts {
            workload: Workload::new(mix, records, Stripe::ALONE, seed),
            drawn: Vec::new(),
            keys: Vec::new(),
            next: 0,
            following: VecDeque::with_capacity(128),
            inserting: Vec::with_capacity(64),
            missing: Record::MAX,
        }
    }

    /// Returns the inserts of these records, in their order.
    pub fn of_records(records: std::ops::Range<Record>) -> Parts {
        let mut parts = Parts::new(Mix::C, records.end, 0);
        records.for_each(|record| parts.push(record, Verb::Put, true));
        parts
    }

    /// Draws the next `operations` in advance, so that no random number or key is computed while the clock
    /// runs. All parts drawn before must have been issued.
    pub fn draw(&mut self, operations: u64) {
        debug_assert!(self.is_done(), "what was drawn before is asked first");
        self.next = 0;
        self.drawn.clear();
        self.keys.clear();
        for _ in 0..operations {
            match self.workload.next_operation() {
                Operation::Read(record) => self.push(record, Verb::Get, true),
                Operation::Update(record) => self.push(record, Verb::Put, true),
                Operation::Insert(record) => self.push(record, Verb::Insert, true),
                Operation::ReadModifyWrite(record) => self.push(record, Verb::GetToChange, false),
                Operation::Scan { first, len } => {
                    let end = (first + u64::from(len)).min(self.workload.records());
                    (first..end).for_each(|record| self.push(record, Verb::Get, record + 1 == end));
                }
            }
        }
    }

    fn push(&mut self, record: Record, verb: Verb, last: bool) {
        self.drawn.push(Part { record, verb, last, index: self.drawn.len() as u32 });
        self.keys.push(record::key(record));
    }

    /// Returns whether every drawn part, and every part that followed so far, was issued.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.next == self.drawn.len() && self.following.is_empty()
    }

    /// Returns whether parts of operations that have begun are waiting.
    #[inline]
    pub fn has_begun(&self) -> bool {
        let amid_scan = || {
            let before = self.next.checked_sub(1).and_then(|index| self.drawn.get(index));
            self.next < self.drawn.len() && before.is_some_and(|part| part.verb == Verb::Get && !part.last)
        };
        !self.following.is_empty() || amid_scan()
    }

    /// Returns the next part, preferably of an operation that has begun. `None`: all parts have been issued.
    #[inline]
    pub fn next_part(&mut self) -> Option<Part> {
        if let Some(part) = self.following.pop_front() {
            return Some(part);
        }
        let mut part = *self.drawn.get(self.next)?;
        self.next += 1;
        if part.verb == Verb::Insert {
            self.inserting.push(part.record);
            self.missing = self.missing.min(part.record);
        } else if part.record >= self.missing {
            part = self.known(part);
        }
        Some(part)
    }

    /// Returns the part for the last existing record instead.
    #[cold]
    fn known(&mut self, part: Part) -> Part {
        let record = self.missing - 1;
        self.keys[part.index as usize] = record::key(record);
        Part { record, ..part }
    }

    /// Returns the key of a part.
    #[inline]
    pub fn key(&self, part: Part) -> &[u8; KEY_LEN] {
        &self.keys[part.index as usize]
    }

    /// Issues a part again, because the data that it read changed during each attempt.
    #[cold]
    pub fn again(&mut self, part: Part) {
        self.following.push_back(part);
    }

    /// Records that a part has ended, and queues the part that follows from it.
    #[inline]
    pub fn ended(&mut self, part: Part) {
        match part.verb {
            Verb::Get | Verb::Put => {}
            Verb::GetToChange => self.following.push_front(Part { verb: Verb::Put, last: true, ..part }),
            Verb::Insert => {
                self.inserting.retain(|record| *record != part.record);
                self.missing = self.inserting.iter().copied().min().unwrap_or(Record::MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_modify_write_is_a_get_and_then_a_put_of_the_same_record() {
        let only = Mix { name: 'f', read: 0, read_modify_write: 100, ..Mix::F };
        let mut parts = Parts::new(only, 1000, 1);
        parts.draw(1);
        let get = parts.next_part().unwrap();
        assert_eq!((get.verb, get.last), (Verb::GetToChange, false));
        assert_eq!(parts.next_part(), None, "the PUT waits for the GET");
        parts.ended(get);
        assert!(parts.has_begun() && !parts.is_done());
        let put = parts.next_part().unwrap();
        assert_eq!((put.record, put.verb, put.last), (get.record, Verb::Put, true));
        assert_eq!(parts.key(put), &record::key(get.record));
        assert!(parts.is_done());
    }

    #[test]
    fn a_scan_is_a_get_of_each_of_its_records_and_ends_with_the_table() {
        let only = Mix { name: 'e', insert: 0, scan: 100, ..Mix::E };
        let mut parts = Parts::new(only, 50, 1);
        parts.draw(100);
        let mut longest = 0;
        let mut scans = 0;
        while let Some(mut part) = parts.next_part() {
            let mut len = 1;
            while !part.last {
                assert!(parts.has_begun());
                let next = parts.next_part().unwrap();
                assert_eq!((next.record, next.verb), (part.record + 1, Verb::Get));
                (part, len) = (next, len + 1);
            }
            assert!(part.record < 50 && !parts.has_begun());
            (longest, scans) = (longest.max(len), scans + 1);
        }
        assert!(longest > 10, "scans of some length: {longest}");
        assert_eq!(scans, 100);
    }

    #[test]
    fn nobody_reads_a_record_whose_insert_is_in_flight() {
        let mut parts = Parts::new(Mix::D, 1000, 3);
        let mut open = Vec::new();
        for _ in 0..10 {
            parts.draw(1000);
            while let Some(part) = parts.next_part() {
                let oldest = open.iter().map(|insert: &Part| insert.record).min().unwrap_or(u64::MAX);
                assert!(part.verb == Verb::Insert || part.record < oldest);
                assert_eq!(parts.key(part), &record::key(part.record));
                if part.verb == Verb::Insert {
                    open.push(part);
                }
                if open.len() == 8 {
                    parts.ended(open.remove(0));
                }
            }
        }
        assert!(parts.workload.records() > 1400, "there were no inserts");
    }

    #[test]
    fn a_part_that_met_contention_is_asked_again_before_anything_new() {
        let mut parts = Parts::new(Mix::C, 10, 1);
        parts.draw(2);
        let first = parts.next_part().unwrap();
        parts.again(first);
        assert!(!parts.is_done() && parts.has_begun());
        let again = parts.next_part().unwrap();
        assert_eq!((again.record, again.index), (first.record, first.index));
        assert_eq!(parts.key(again), &record::key(first.record));
        assert!(parts.next_part().is_some() && parts.next_part().is_none() && parts.is_done());
    }
}
