//! The assembler, which converts text to a program. `docs/reference/chains.md` defines the language.

mod mistake;
mod names;
mod read;
mod repeat;
mod tokens;

pub use mistake::Mistake;
pub(crate) use read::VERBS;

use crate::program::Program;

/// Assembles a program.
///
/// # Errors
/// The first error in the text.
pub fn assemble(text: &str) -> Result<Program, Mistake> {
    let draft = read::read(text)?;
    names::resolve(draft)
}

#[cfg(test)]
mod tests;
