//! Seeded workloads of transactions: [`YcsbT`], [`SmallBank`], [`Tatp`].
//!
//! A [`Workload`] draws *jobs*, which are the parameters of transactions. It turns a job step by step into
//! keys to read and then keys to write ([`Script`]). The same job may be retried when its transaction has
//! aborted. A workload knows no protocol; a [`Runner`] executes jobs with a client machine of either
//! [`Machine`](super::Machine). Each workload defines a sum over all stored values. Only committed
//! transactions change the sum, each by an amount that it declares beforehand ([`Script::gain`]). So
//! [`Audit`] detects updates that were lost, duplicated or executed in part.

mod ledger;
mod runner;
mod script;
mod smallbank;
mod tatp;
mod ycsb_t;

#[cfg(test)]
mod tests;

pub use ledger::{Audit, Load, Row};
pub use runner::{Counts, Ended, Runner, RunnerError};
pub use script::{Key, MAX_KEY, Script};
pub use smallbank::{Kind as SmallBankKind, SmallBank, SmallBankJob};
pub use tatp::{Kind as TatpKind, Tatp, TatpJob};
pub use ycsb_t::{MOST_RECORDS, YcsbT, YcsbTJob};

/// The next step of a transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the keys that the script requested and that have no values yet, concurrently.
    Read,
    /// Write the keys of the script, and commit.
    Commit,
    /// Write nothing, because the business rules forbid it. The transaction still commits, to prove that its
    /// reads are consistent.
    Decline,
}

/// The size of a workload's data, to dimension a server's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Maximum number of keys.
    pub keys: u64,
    /// Bytes of the longest key.
    pub max_key: u32,
    /// Bytes of the longest value.
    pub max_value: u32,
    /// Maximum number of keys per transaction.
    pub max_keys: u32,
}

/// A stream of transactions, and the initial rows.
pub trait Workload {
    /// The parameters of one transaction.
    type Job: Copy + core::fmt::Debug;

    /// Returns the size of the workload's data.
    fn extent(&self) -> Extent;

    /// Returns the next job.
    fn draw(&mut self) -> Self::Job;

    /// Continues a job: first with an empty script, then each time that all requested keys are read.
    fn step(&self, job: &Self::Job, script: &mut Script) -> Step;

    /// Returns the number of rows: those that are present at the beginning, and those that may be inserted.
    fn rows(&self) -> u64;

    /// Writes the initial value of a row into `value`. Returns the row's key, and false if the row begins
    /// absent.
    fn row(&self, index: u64, value: &mut Vec<u8>) -> (Key, bool);

    /// Returns what a row adds to the sum that only committed transactions change. Returns `None` if `value`
    /// is not a value of this row.
    fn worth(&self, index: u64, value: Option<&[u8]>) -> Option<i64>;
}
