//! A small structured language, compiled to chains: variables and arrays of words, `if`, `while`, `break`. `docs/CHAIN.md` has it.

mod compile;
mod parse;

pub use parse::{Amount, Condition, Statement, Target, Tree, parse};

use crate::assemble::Mistake;
use crate::program::Program;

/// Compiles a program: chains that run from the first enabling to the end without anybody.
///
/// ```
/// use remora_chain::{Machine, compile};
///
/// let mut machine = Machine::load(compile("var n = 10\n var sum = 0\n while n > 0 {\n sum += n\n n -= 1\n }")?)?;
/// machine.start();
/// machine.run(100_000);
/// assert_eq!(machine.word("sum"), Some(55));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first thing that is wrong.
pub fn compile(text: &str) -> Result<Program, Mistake> {
    Ok(compile::compile(&parse(text)?))
}
