//! From text to a program. `docs/CHAIN.md` has the language.

mod names;
mod read;
mod repeat;
mod tokens;

pub(crate) use read::VERBS;

use crate::program::Program;

/// A mistake in a text, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Its line, from 1 on.
    pub line: u32,
    /// Its column, from 1 on.
    pub column: u32,
    /// The mistake, and what would be correct.
    pub what: String,
}

impl Mistake {
    /// The line with a mark under the place, as compilers show it.
    pub fn show(&self, file: &str, text: &str) -> String {
        let line = text.lines().nth(self.line as usize - 1).unwrap_or_default();
        let before: String = line.chars().take(self.column as usize - 1).collect();
        // Tabs stay tabs, so that the mark is below the mistake.
        let blank: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        format!("{file}:{}:{}: {}\n  | {line}\n  | {blank}^", self.line, self.column, self.what)
    }
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for Mistake {}

/// Reads a program.
///
/// # Errors
/// The first thing that is wrong.
pub fn assemble(text: &str) -> Result<Program, Mistake> {
    let draft = read::read(text)?;
    names::resolve(draft)
}

#[cfg(test)]
mod tests;
