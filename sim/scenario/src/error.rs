//! What is wrong with a file, in one line: its name, the line, the fault and the remedy.

use std::fmt;

/// The most bytes that a file has: a gigabyte.
pub const FILE_MAX: usize = 1 << 30;
/// The most flows that a scenario has.
pub const FLOWS_MAX: usize = 10_000_000;
/// Warnings that are kept of one file.
const WARNINGS_MAX: usize = 100;

/// A file's text, and the name by which messages call it.
#[derive(Copy, Clone, Debug)]
pub struct Source<'a> {
    /// What the caller calls the file.
    pub name: &'a str,
    /// All of its text.
    pub text: &'a str,
}

/// The mark of the order of bytes with which some editors begin a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> Source<'a> {
    /// A text under this name. A byte-order mark in front of it is no part of it.
    pub fn new(name: &'a str, text: &'a str) -> Source<'a> {
        Source { name, text: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) }
    }

    /// The lines with their numbers, from 1. A line ends with a line feed, a carriage return, or both.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &'a str)> {
        let lines =
            self.text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'));
        (1..).zip(lines)
    }

    /// The error of one line; 0: the file as a whole. `says` has the fault, then the remedy.
    pub fn error(&self, line: u32, says: impl Into<String>) -> ScenarioError {
        ScenarioError { file: self.name.to_owned(), line, says: says.into() }
    }

    /// Is it short enough to be read?
    ///
    /// # Errors
    /// It is longer than [`FILE_MAX`].
    pub fn check_size(&self) -> Result<(), ScenarioError> {
        let bytes = self.text.len();
        if bytes > FILE_MAX {
            let says = format!("has {bytes} bytes, and the limit is {FILE_MAX}: cut it into parts");
            return Err(self.error(0, says));
        }
        Ok(())
    }
}

/// Why a file is not a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The name that the caller gave.
    pub file: String,
    /// The line, from 1; 0: the file as a whole.
    pub line: u32,
    /// What is wrong, and the remedy.
    pub says: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.file, self.line, &self.says)
    }
}

impl std::error::Error for ScenarioError {}

/// What is odd about a file that was read all the same, and how it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The name that the caller gave.
    pub file: String,
    /// The line, from 1; 0: the file as a whole.
    pub line: u32,
    /// What is odd, and how it was read.
    pub says: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.file, self.line, &self.says)
    }
}

/// One line, whatever the file's bytes were.
fn show(f: &mut fmt::Formatter<'_>, file: &str, line: u32, says: &str) -> fmt::Result {
    let says = says.trim_end().replace(|c: char| c.is_control(), " ");
    match line {
        0 => write!(f, "{file}: {says}"),
        line => write!(f, "{file}:{line}: {says}"),
    }
}

/// What was read, and what was odd about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The value.
    pub value: T,
    /// Each once, in the order of the file.
    pub warnings: Vec<Warning>,
}

/// The warnings about one file, each once and not too many.
#[derive(Debug)]
pub struct Warnings<'a> {
    file: &'a str,
    list: Vec<Warning>,
    left_out: usize,
}

impl<'a> Warnings<'a> {
    /// None yet about this file.
    pub fn of(source: Source<'a>) -> Warnings<'a> {
        Warnings { file: source.name, list: Vec::new(), left_out: 0 }
    }

    /// Adds one, unless the same words are there.
    pub fn add(&mut self, line: u32, says: impl Into<String>) {
        let says = says.into();
        if self.list.len() >= WARNINGS_MAX {
            self.left_out += 1;
        } else if !self.list.iter().any(|warning| warning.says == says) {
            self.list.push(Warning { file: self.file.to_owned(), line, says });
        }
    }

    /// The value with these warnings.
    pub fn with<T>(mut self, value: T) -> Read<T> {
        if self.left_out > 0 {
            let says = format!("{} more warnings are left out", self.left_out);
            self.list.push(Warning { file: self.file.to_owned(), line: 0, says });
        }
        Read { value, warnings: self.list }
    }
}

/// At most 40 characters of a text from a file, for a message.
pub fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
