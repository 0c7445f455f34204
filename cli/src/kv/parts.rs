//! A workload's operations as the GETs and PUTs that a key-value store knows.
//!
//! An insert is a PUT; a scan is a GET of each of its records, since a hash table has no order; a read-modify-write is a
//! GET, and a PUT once that has ended.

use std::collections::VecDeque;

use store::ycsb::{Mix, Operation, Record, Stripe, Workload};

/// What is asked of the store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read the record.
    Get,
    /// Read the record, to change it when it is there.
    GetToChange,
    /// Write a new version of the record.
    Put,
    /// Write a record that was not there.
    Insert,
}

/// One GET or PUT of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of which record.
    pub record: Record,
    /// What of it.
    pub verb: Verb,
    /// Its operation ends with it.
    pub last: bool,
}

impl Part {
    /// A GET that nobody asked for: fills places that are not in use.
    pub const NONE: Part = Part { record: 0, verb: Verb::Get, last: true };

    fn whole(record: Record, verb: Verb) -> Part {
        Part { record, verb, last: true }
    }

    /// Is it a GET?
    pub fn reads(self) -> bool {
        matches!(self.verb, Verb::Get | Verb::GetToChange)
    }
}

/// The stream of parts of a workload.
pub struct Parts {
    workload: Workload,
    /// Parts of operations that have begun.
    waiting: VecDeque<Part>,
    /// Inserts in flight: as YCSB does, nobody reads a record before its insert was acknowledged.
    inserting: Vec<Record>,
}

impl Parts {
    /// Of one client alone.
    pub fn new(mix: Mix, records: u64, seed: u64) -> Parts {
        Parts {
            workload: Workload::new(mix, records, Stripe::ALONE, seed),
            waiting: VecDeque::with_capacity(128),
            inserting: Vec::with_capacity(64),
        }
    }

    /// Are there parts of operations that have begun?
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next part: of an operation that has begun, else of a new one.
    #[inline]
    pub fn next_part(&mut self) -> Part {
        if let Some(part) = self.waiting.pop_front() {
            return part;
        }
        match self.workload.next_operation() {
            Operation::Read(record) => Part::whole(self.known(record), Verb::Get),
            Operation::Update(record) => Part::whole(self.known(record), Verb::Put),
            Operation::Insert(record) => {
                self.inserting.push(record);
                Part::whole(record, Verb::Insert)
            }
            Operation::ReadModifyWrite(record) => {
                Part { record: self.known(record), verb: Verb::GetToChange, last: false }
            }
            Operation::Scan { first, len } => self.scan(first, len),
        }
    }

    fn scan(&mut self, first: Record, len: u32) -> Part {
        let first = self.known(first);
        let end = self.known(first + u64::from(len) - 1);
        for record in first + 1..=end {
            self.waiting.push_back(Part { record, verb: Verb::Get, last: record == end });
        }
        Part { record: first, verb: Verb::Get, last: first == end }
    }

    /// The record, or the last one before it that is surely there.
    #[inline]
    fn known(&self, record: Record) -> Record {
        let last = self.workload.records() - 1;
        let acknowledged = self.inserting.iter().min().map_or(last, |oldest| oldest - 1);
        record.min(acknowledged)
    }

    /// A part has ended. What it leads to comes next.
    #[inline]
    pub fn ended(&mut self, part: Part) {
        match part.verb {
            Verb::Get | Verb::Put => {}
            Verb::GetToChange => self.waiting.push_front(Part::whole(part.record, Verb::Put)),
            Verb::Insert => self.inserting.retain(|record| *record != part.record),
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
        let get = parts.next_part();
        assert_eq!((get.verb, get.last), (Verb::GetToChange, false));
        assert!(!parts.has_waiting(), "the PUT waits for the GET");
        parts.ended(get);
        assert_eq!(parts.next_part(), Part { record: get.record, verb: Verb::Put, last: true });
    }

    #[test]
    fn a_scan_is_a_get_of_each_of_its_records_and_ends_with_the_table() {
        let only = Mix { name: 'e', insert: 0, scan: 100, ..Mix::E };
        let mut parts = Parts::new(only, 50, 1);
        let mut longest = 0;
        for _ in 0..100 {
            let mut part = parts.next_part();
            let mut len = 1;
            while !part.last {
                let next = parts.next_part();
                assert_eq!((next.record, next.verb), (part.record + 1, Verb::Get));
                (part, len) = (next, len + 1);
            }
            assert!(part.record < 50 && !parts.has_waiting());
            longest = longest.max(len);
        }
        assert!(longest > 10, "scans of some length: {longest}");
    }

    #[test]
    fn nobody_reads_a_record_whose_insert_is_in_flight() {
        let mut parts = Parts::new(Mix::D, 1000, 3);
        let mut open = Vec::new();
        for _ in 0..10_000 {
            let part = parts.next_part();
            let oldest = open.iter().map(|insert: &Part| insert.record).min().unwrap_or(u64::MAX);
            assert!(part.verb == Verb::Insert || part.record < oldest);
            if part.verb == Verb::Insert {
                open.push(part);
            }
            if open.len() == 8 {
                parts.ended(open.remove(0));
            }
        }
        assert!(parts.workload.records() > 1400, "inserts came");
    }
}
