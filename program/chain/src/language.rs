//! A small structured language, compiled to chains: variables and arrays of words, `if`, `while`, `break`.
//! `docs/CHAIN.md` defines it.

mod compile;
mod parse;

pub use parse::{Amount, Condition, Statement, Target, Tree, parse};

use crate::assemble::Mistake;
use crate::program::Program;

/// Compiles a program: chains that run from the first enabling to the end without the CPU.
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
/// The first mistake in the text.
pub fn compile(text: &str) -> Result<Program, Mistake> {
    Ok(compile::compile(&parse(text)?))
}
