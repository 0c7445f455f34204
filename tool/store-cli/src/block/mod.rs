//! `remora serve block` and `remora block`: replicated blocks.

pub mod command;
mod exercise;
pub mod serve;
mod servers;
mod shell;
mod target;
mod value;
