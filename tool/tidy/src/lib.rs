//! The project's style, held by tests.
//!
//! Each rule is a small function from what stands in the repository to a list of [`Fault`]s, and each has a
//! test that feeds it a bad sample and sees it fail: a check that cannot fail is no check.
//! `tests/repository.rs` runs every rule over the repository itself.
//!
//! Rules that rustc or clippy already know (documented public items, SAFETY comments, unused code) stay with
//! them.

pub mod arguments;
pub mod attributes;
pub mod cycles;
pub mod docs;
pub mod drawing;
pub mod environment;
pub mod glossary;
pub mod layers;
pub mod lengths;
pub mod modules;
pub mod names;
pub mod plain;
pub mod planted;
pub mod purity;
pub mod tokens;
pub mod tree;
pub mod unsafety;
pub mod words;

use std::fmt;

/// One broken rule, at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, relative to the repository's root.
    pub path: String,
    /// The line, counted from 1; 0 when the fault is the file's as a whole.
    pub line: usize,
    /// What is wrong, and what to do instead.
    pub says: String,
}

impl Fault {
    /// A fault of `path` at `line`.
    pub fn new(path: &str, line: usize, says: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, says: says.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.says)
    }
}

/// Every fault on a line of its own, for a test's panic message.
pub fn listing(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}
