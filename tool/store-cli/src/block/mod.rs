//! `remora serve block` and `remora block`: replicas and clients of the block store.

pub(crate) mod command;
pub(crate) mod serve;
pub mod servers;
mod shell;
pub mod target;
mod value;
