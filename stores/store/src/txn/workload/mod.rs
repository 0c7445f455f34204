//! Workloads of transactions, seeded: [`YcsbT`], [`SmallBank`], [`Tatp`].
//!
//! A [`Workload`] draws *jobs*, what somebody wants done, and turns a job step by step into keys to read and
//! then keys to write ([`Script`]): the same job may be tried again when its transaction has aborted. It
//! knows no protocol; a [`Runner`] carries jobs out with a client machine of either
//! [`Machine`](super::Machine). Each workload keeps a sum over all that is stored which only committed
//! transactions change, each by an amount that it says beforehand ([`Script::gain`]): so [`Audit`] finds
//! updates that were lost, done twice or done by half.

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

/// What a transaction does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It reads the keys that the script asks for and has no values of, side by side.
    Read,
    /// It writes the keys of the script, and commits.
    Commit,
    /// The business rules forbid it: it writes nothing. It still commits, to prove that what it read is true.
    Decline,
}

/// The size of what a workload stores, to dimension a server's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Keys that are ever there.
    pub keys: u64,
    /// Bytes of the longest key.
    pub max_key: u32,
    /// Bytes of the longest value.
    pub max_value: u32,
    /// Keys of one transaction, at most.
    pub max_keys: u32,
}

/// A stream of transactions, and the rows at its beginning.
pub trait Workload {
    /// The parameters of one transaction.
    type Job: Copy + core::fmt::Debug;

    /// How large it is.
    fn extent(&self) -> Extent;

    /// The next job.
    fn draw(&mut self) -> Self::Job;

    /// Continues a job: at first with an empty script, then each time when all keys that it asked for are
    /// read.
    fn step(&self, job: &Self::Job, script: &mut Script) -> Step;

    /// Rows of the ledger: those that are there when it begins, and those that may come.
    fn rows(&self) -> u64;

    /// The row of an index: writes its initial value into `value`. Returns the key, and false if the row
    /// begins absent.
    fn row(&self, at: u64, value: &mut Vec<u8>) -> (Key, bool);

    /// What a row adds to the sum that only committed transactions change. None: `value` is no value of this
    /// row.
    fn worth(&self, at: u64, value: Option<&[u8]>) -> Option<i64>;
}
