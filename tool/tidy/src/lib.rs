//! The project's style rules, which run as tests.
//!
//! Each rule is a small function from the files of the repository to a list of [`Fault`]s. Each has a test
//! in which a bad sample must fail, because a check that cannot fail proves nothing. `tests/repository.rs`
//! applies every rule to the repository itself.
//!
//! Rules that rustc or clippy already have (documented public items, SAFETY comments, unused code) are not
//! repeated here.

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
pub mod silent;
pub mod tokens;
pub mod tree;
pub mod unsafety;
pub mod unused;
pub mod words;

use std::fmt;

/// A violation of a rule, at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path of the file, relative to the root of the repository.
    pub path: String,
    /// The line number, counted from 1; 0 if the fault concerns the whole file.
    pub line: usize,
    /// The description of the fault, and of its correction.
    pub says: String,
}

impl Fault {
    /// Creates a fault of the file `path` at `line`.
    pub fn new(path: &str, line: usize, says: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, says: says.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.says)
    }
}

/// Formats the faults, one per line, for the panic message of a test.
pub fn listing(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}
