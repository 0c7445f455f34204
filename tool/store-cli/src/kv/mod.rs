//! `remora serve kv` and `remora kv`: servers and clients of key-value stores.

mod client_bench;
pub(crate) mod command;
mod dump;
mod load;
pub(crate) mod serve;
mod shell;
pub mod target;
