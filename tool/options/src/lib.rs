//! The options that Remora's programs share, and what they do alike: the NIC's port, numbers, files, tables,
//! signals.
//!
//! | module | holds |
//! |---|---|
//! | [`device`] | `--port` and its companions; opening the NIC |
//! | [`number`] | parsers of numbers and sizes |
//! | [`output`], [`print`], `table` | files, standard output and tables |
//! | [`progress`] | the progress bar |
//! | [`ending`], [`cores`] | the signals that end a program; its CPU cores |

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a closed pipe ends the program quietly: `print`")
)]

pub mod cores;
pub mod device;
pub mod ending;
pub mod number;
pub mod output;
pub mod print;
pub mod progress;
mod table;

pub use table::print_table;
