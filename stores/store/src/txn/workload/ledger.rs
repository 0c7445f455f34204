//! Workloads that load all rows of another workload, and that add up their worth.

use super::script::{Key, Script};
use super::{Extent, Step, Workload};

/// A row of a ledger.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Row(pub u64);

/// Returns the next row. If `present` is true, rows that begin absent are skipped.
fn next<W: Workload>(workload: &W, cursor: &mut u64, present: bool) -> Row {
    let mut value = Vec::new();
    while present && *cursor < workload.rows() && !workload.row(*cursor, &mut value).1 {
        *cursor += 1;
    }
    let row = Row(*cursor);
    *cursor += 1;
    row
}

/// Returns the number of rows that are present at the beginning; each is loaded by one job.
fn present<W: Workload>(workload: &W) -> u64 {
    let mut value = Vec::new();
    (0..workload.rows()).filter(|index| workload.row(*index, &mut value).1).count() as u64
}

/// A workload that writes the initial rows of another workload, each in a transaction of its own.
#[derive(Debug)]
pub struct Load<'a, W> {
    workload: &'a W,
    cursor: u64,
}

impl<'a, W: Workload> Load<'a, W> {
    /// Returns the loader of this workload.
    pub fn of(workload: &'a W) -> Load<'a, W> {
        Load { workload, cursor: 0 }
    }

    /// Returns the number of jobs.
    pub fn jobs(&self) -> u64 {
        present(self.workload)
    }
}

impl<W: Workload> Workload for Load<'_, W> {
    type Job = Row;

    fn extent(&self) -> Extent {
        self.workload.extent()
    }

    fn draw(&mut self) -> Row {
        next(self.workload, &mut self.cursor, true)
    }

    fn step(&self, job: &Row, script: &mut Script) -> Step {
        let mut value = Vec::new();
        let (key, _) = self.workload.row(job.0, &mut value);
        script.gain = self.workload.worth(job.0, Some(&value)).unwrap_or(0);
        script.write(key, value.len()).copy_from_slice(&value);
        Step::Commit
    }

    fn rows(&self) -> u64 {
        self.workload.rows()
    }

    fn row(&self, index: u64, value: &mut Vec<u8>) -> (Key, bool) {
        self.workload.row(index, value)
    }

    fn worth(&self, index: u64, value: Option<&[u8]>) -> Option<i64> {
        self.workload.worth(index, value)
    }
}

/// A workload that reads all rows of another workload, each in a transaction of its own, and adds up their
/// worth.
///
/// While nothing else happens, the gains of these transactions add up to the sum over all rows. That is the
/// sum of the rows that were loaded, and of all gains that were committed since.
#[derive(Debug)]
pub struct Audit<'a, W> {
    workload: &'a W,
    cursor: u64,
}

impl<'a, W: Workload> Audit<'a, W> {
    /// Returns the audit of this workload.
    pub fn of(workload: &'a W) -> Audit<'a, W> {
        Audit { workload, cursor: 0 }
    }

    /// Returns the number of jobs.
    pub fn jobs(&self) -> u64 {
        self.workload.rows()
    }
}

impl<W: Workload> Workload for Audit<'_, W> {
    type Job = Row;

    fn extent(&self) -> Extent {
        self.workload.extent()
    }

    fn draw(&mut self) -> Row {
        next(self.workload, &mut self.cursor, false)
    }

    /// Declines if a row has a value that no transaction wrote.
    fn step(&self, job: &Row, script: &mut Script) -> Step {
        if script.asked() == 0 {
            let (key, _) = self.workload.row(job.0, &mut Vec::new());
            script.read(key);
            return Step::Read;
        }
        match self.workload.worth(job.0, script.value(0)) {
            Some(worth) => {
                script.gain = worth;
                Step::Commit
            }
            None => Step::Decline,
        }
    }

    fn rows(&self) -> u64 {
        self.workload.rows()
    }

    fn row(&self, index: u64, value: &mut Vec<u8>) -> (Key, bool) {
        self.workload.row(index, value)
    }

    fn worth(&self, index: u64, value: Option<&[u8]>) -> Option<i64> {
        self.workload.worth(index, value)
    }
}
