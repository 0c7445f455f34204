//! Errors and warnings about a file. Each is one line: file name, line number, what is wrong, and how to
//! correct it.

use std::fmt;

/// Largest size of a file, in bytes: 1 GiB.
pub const FILE_MAX: usize = 1 << 30;
/// Largest number of flows in a scenario.
pub const FLOWS_MAX: usize = 10_000_000;
/// Largest number of warnings that are kept for a file.
const WARNINGS_MAX: usize = 100;

/// The text of a file, and its name for messages.
#[derive(Copy, Clone, Debug)]
pub struct Source<'a> {
    /// Name of the file, as shown in messages.
    pub name: &'a str,
    /// Contents of the file.
    pub text: &'a str,
}

/// Unicode byte-order mark, which some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> Source<'a> {
    /// Names a text. A byte-order mark at its start is removed.
    pub fn new(name: &'a str, text: &'a str) -> Source<'a> {
        Source { name, text: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) }
    }

    /// Returns the lines with their numbers, from 1. A line ends with a line feed, a carriage return, or
    /// both.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &'a str)> {
        let lines =
            self.text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'));
        (1..).zip(lines)
    }

    /// Creates an error about `line`, or about the whole file if `line` is 0. `says` states what is wrong and
    /// then how to correct it.
    pub fn error(&self, line: u32, says: impl Into<String>) -> ScenarioError {
        ScenarioError { file: self.name.to_owned(), line, says: says.into() }
    }

    /// Checks the size of the file.
    ///
    /// # Errors
    /// Fails if the file is longer than [`FILE_MAX`].
    pub fn check_size(&self) -> Result<(), ScenarioError> {
        let bytes = self.text.len();
        if bytes > FILE_MAX {
            let says = format!("has {bytes} bytes, and the limit is {FILE_MAX}: cut it into parts");
            return Err(self.error(0, says));
        }
        Ok(())
    }
}

/// An error that prevents a file from being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Name of the file.
    pub file: String,
    /// Number of the line, from 1; 0 for the whole file.
    pub line: u32,
    /// Description of the error, followed by its correction.
    pub says: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.file, self.line, &self.says)
    }
}

impl std::error::Error for ScenarioError {}

/// A peculiarity of a file that was read nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Name of the file.
    pub file: String,
    /// Number of the line, from 1; 0 for the whole file.
    pub line: u32,
    /// Description of the peculiarity, followed by its interpretation.
    pub says: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.file, self.line, &self.says)
    }
}

/// Writes a single line: control characters are replaced by spaces.
fn show(f: &mut fmt::Formatter<'_>, file: &str, line: u32, says: &str) -> fmt::Result {
    let says = says.trim_end().replace(|c: char| c.is_control(), " ");
    match line {
        0 => write!(f, "{file}: {says}"),
        line => write!(f, "{file}:{line}: {says}"),
    }
}

/// A value that was read from a file, and the warnings about the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// Value that was read.
    pub value: T,
    /// Warnings in the order of the file, without repetitions.
    pub warnings: Vec<Warning>,
}

/// Collects the warnings about a file, without repetitions and at most `WARNINGS_MAX`.
#[derive(Debug)]
pub struct Warnings<'a> {
    file: &'a str,
    list: Vec<Warning>,
    left_out: usize,
}

impl<'a> Warnings<'a> {
    /// Returns an empty collection for this file.
    pub fn of(source: Source<'a>) -> Warnings<'a> {
        Warnings { file: source.name, list: Vec::new(), left_out: 0 }
    }

    /// Adds a warning unless an equal text was added before.
    pub fn add(&mut self, line: u32, says: impl Into<String>) {
        let says = says.into();
        if self.list.len() >= WARNINGS_MAX {
            self.left_out += 1;
        } else if !self.list.iter().any(|warning| warning.says == says) {
            self.list.push(Warning { file: self.file.to_owned(), line, says });
        }
    }

    /// Combines a value with the collected warnings.
    pub fn with<T>(mut self, value: T) -> Read<T> {
        if self.left_out > 0 {
            let says = format!("{} more warnings are left out", self.left_out);
            self.list.push(Warning { file: self.file.to_owned(), line: 0, says });
        }
        Read { value, warnings: self.list }
    }
}

/// Returns at most 40 characters of a text from a file, for use in a message. Control characters become
/// spaces.
pub fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
