//! `remora serve kv` and `remora kv`: the key-value designs over the NIC.

mod client_bench;
pub(crate) mod command;
mod dump;
mod load;
pub(crate) mod serve;
mod shell;
pub mod target;
