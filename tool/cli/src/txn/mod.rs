//! `remora serve txn` and `remora txn`: transactions over the keys of several shards.
//!
//! | file | holds |
//! |---|---|
//! | `client.rs` | [`Session`](client::Session): a client of all shards, and the machine of either design behind it |
//! | `command.rs`, `shell.rs`, `line.rs` | what people and scripts use |
//! | `bench/` | both designs measured |
//! | `serve.rs`, `desk.rs`, `prism_tx.rs`, `farm.rs` | a shard |
//! | `peers.rs`, `recovery.rs` | shards of FaRM's that speak to each other about a client that has died |

pub mod bench;
pub mod client;
pub mod command;
mod desk;
#[cfg(test)]
mod dying;
mod exercise;
mod farm;
mod line;
mod peers;
mod prism_tx;
mod recovery;
mod roll_call;
pub mod serve;
pub mod servers;
mod shell;
mod transact;

/// Shards of a store, at most.
pub const MOST_SHARDS: usize = 16;
