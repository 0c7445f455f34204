//! `remora serve kv` and `remora kv`: the key-value designs over the NIC.

mod client_bench;
pub mod command;
mod dump;
mod exercise;
mod load;
pub mod serve;
mod shell;
mod target;
