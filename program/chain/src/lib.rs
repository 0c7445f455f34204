//! Programs for the NIC's chains (RedN): their text, their bytes, and a NIC alone to run them on.
//!
//! A [`Program`] is queues of work requests and sections of data, whose locations have names and no addresses
//! yet. [`assemble`] reads one from text. [`link`] makes the bytes of its slots. [`Machine`] runs it, whole
//! or step by step. [`disassemble`] turns bytes back into text. `docs/CHAIN.md` defines the language.
//!
//! ```
//! use remora_chain::{Machine, assemble};
//!
//! let program = assemble(
//!     "data numbers
//!          x: var 41
//!      queue main
//!          add x, 1",
//! )?;
//! let mut machine = Machine::load(program)?;
//! machine.start();
//! machine.run(1000);
//! assert_eq!(machine.word("x"), Some(42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assemble;
mod code;
mod disassemble;
pub mod language;
mod link;
mod machine;
pub mod model;
pub mod offload;
mod program;
mod step;
mod verify;

pub use assemble::{Mistake, assemble};
pub use code::{Code, Condition, Cost, Operand, Rings, Test};
pub use disassemble::{Names, disassemble, header as header_text};
pub use language::compile;
pub use link::{Image, Numbers, QueueNumbers, layout, link};
pub use machine::{Failure, LoadError, Machine, Reply, RunEnd};
pub use program::{FIELDS, Field, Label, Location, Piece, Program, Queue, Section, Segment, Value, Work};
pub use step::{Change, Step};
pub use verify::{Finding, Severity, verify};

/// Reads a program in either language: a text that begins with `data`, `region` or `queue` is assembled, any
/// other is compiled.
///
/// # Errors
/// The first mistake in the text.
pub fn read(text: &str) -> Result<Program, Mistake> {
    let lines = text.lines().map(|line| line.split(';').next().unwrap_or_default());
    let first = lines.flat_map(str::split_whitespace).next();
    if matches!(first, None | Some("data" | "queue" | "region" | "repeat")) {
        assemble(text)
    } else {
        compile(text)
    }
}
