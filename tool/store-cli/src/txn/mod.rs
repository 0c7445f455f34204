//! `remora serve txn` and `remora txn`: transactions over the keys of several shards.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs`, `shell.rs`, `line.rs` | what people and scripts use |
//! | `serve.rs` | a shard |

pub mod command;
mod exercise;
mod line;
pub mod serve;
pub mod servers;
mod shell;
mod target;
