//! A compiler from a small structured language to chains, with variables, arrays of words, `if`, `while` and
//! `break`. `docs/reference/chains.md` defines the language.

mod compile;
mod parse;

pub use parse::{Amount, Condition, Statement, Target, Tree, parse};

use crate::assemble::Mistake;
use crate::program::Program;

/// Compiles a program to chains that run without the CPU from the first ENABLE to the end.
///
/// ```
/// use remora_chain::{Machine, compile};
///
/// let text = "var n = 10\n var sum = 0\n while n > 0 {\n sum += n\n n -= 1\n }";
/// let mut machine = Machine::load(compile(text)?)?;
/// machine.start();
/// machine.run(100_000);
/// assert_eq!(machine.word("sum"), Some(55));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first error in the text.
pub fn compile(text: &str) -> Result<Program, Mistake> {
    Ok(compile::compile(&parse(text)?))
}
