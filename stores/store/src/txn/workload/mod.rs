//! Workloads of transactions, seeded: [`YcsbT`], [`SmallBank`], [`Tatp`].
//!
//! A [`Workload`] draws *deals*, what somebody wants done, and turns a deal step by step into keys to read and then keys to write
//! ([`Script`]): the same deal may be tried again when its transaction has aborted. It knows no protocol; a [`Runner`] carries deals out
//! with a client machine of either [`Machine`](super::Machine). Each workload keeps a sum over all that is stored which only
//! committed transactions change, each by an amount that it says beforehand ([`Script::gain`]): so [`Audit`] finds updates that
//! were lost, done twice or done by half.

mod ledger;
mod runner;
mod script;
mod smallbank;
mod tatp;
mod ycsb_t;

#[cfg(test)]
mod tests;

pub use ledger::{Audit, Load, Row};
pub use runner::{Counts, Ended, Runner, Stuck};
pub use script::{Key, MAX_KEY, Script};
pub use smallbank::{Kind as SmallBankKind, SmallBank, SmallBankDeal};
pub use tatp::{Kind as TatpKind, Tatp, TatpDeal};
pub use ycsb_t::{MOST_RECORDS, YcsbT, YcsbTDeal};

/// What a transaction does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It reads the keys that the script asks for and has no values of, side by side.
    Read,
    /// It writes what the script says, and commits.
    Commit,
    /// The rules of its business forbid it: it writes nothing. It commits all the same, since what forbids it must be true.
    Decline,
}

/// How large what a workload stores is: for whoever makes room for it.
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

/// A stream of transactions, and what is stored when it begins.
pub trait Workload {
    /// What somebody wants done.
    type Deal: Copy + core::fmt::Debug;

    /// How large it is.
    fn extent(&self) -> Extent;

    /// The next deal.
    fn draw(&mut self) -> Self::Deal;

    /// Goes on with a deal: at first with an empty script, then each time when all that was asked is there.
    fn step(&self, deal: &Self::Deal, script: &mut Script) -> Step;

    /// Places of the ledger: rows that are there when it begins, or may come.
    fn rows(&self) -> u64;

    /// The row of a place: puts the value that it begins with into `value`. False: it begins absent.
    fn row(&self, at: u64, value: &mut Vec<u8>) -> (Key, bool);

    /// What the row of a place adds to the sum that only committed transactions change; None: that is no value of this row.
    fn worth(&self, at: u64, value: Option<&[u8]>) -> Option<i64>;
}
