//! The command-line options and the helpers that all of Remora's programs share: the NIC's port, numbers,
//! output files, tables and signals.
//!
//! | module | holds |
//! |---|---|
//! | [`device`] | `--port` and its companions; opening the NIC |
//! | [`number`] | parsers of numbers and sizes |
//! | [`output`], [`mod@print`], [`escape`], `table` | files, standard output and tables |
//! | [`progress`] | the progress bar |
//! | [`ending`], [`cores`] | the signals that end a program; its CPU cores |
//! | [`commands`], [`sibling`] | which program holds a command, and starting it |
//! | [`program`], `logs`, `version` | beginning and end of a program, and its version |
//! | [`tree`], [`examples`] | the commands of all programs as one tree; checks of help texts for tests |

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a closed pipe ends the program quietly: `print`")
)]

pub mod commands;
pub mod cores;
pub mod device;
pub mod ending;
pub mod escape;
pub mod examples;
mod logs;
pub mod number;
pub mod output;
pub mod print;
pub mod program;
pub mod progress;
pub mod sibling;
mod table;
pub mod tree;
mod version;

pub use table::{Columns, print_table};
