//! `remora serve block` and `remora block`: replicated blocks.

pub(crate) mod command;
pub(crate) mod serve;
pub mod servers;
mod shell;
pub mod target;
mod value;
