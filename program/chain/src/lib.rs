//! Assembles, compiles, verifies and debugs programs for the NIC's chains of work requests (RedN).
//!
//! A [`Program`] consists of queues of work requests and sections of data. It uses symbolic locations
//! instead of addresses. [`assemble()`] reads a program from text, and [`link()`] converts it to the bytes of
//! its slots. [`Machine`] runs a program on a NIC of its own, completely or step by step. [`disassemble()`]
//! converts bytes back to text. `docs/reference/chains.md` defines the language.
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
pub use program::{
    FIELDS, Field, Label, Location, Piece, Program, Queue, Section, Segment, Value, Work, header,
};
pub use step::{Change, Executed, Step};
pub use verify::{Finding, Severity, verify};

/// The text of a shipped program whose loop counts to ten.
pub const COUNT_TO_TEN: &str = include_str!("../programs/count.chain");

/// Reads a program in either language. A text that starts with `data`, `region`, `queue` or `repeat` is
/// assembled; any other text is compiled.
///
/// # Errors
/// The first error in the text.
pub fn read(text: &str) -> Result<Program, Mistake> {
    let lines = text.lines().map(|line| line.split(';').next().unwrap_or_default());
    let first = lines.flat_map(str::split_whitespace).next();
    if matches!(first, None | Some("data" | "queue" | "region" | "repeat")) {
        assemble(text)
    } else {
        compile(text)
    }
}
