//! `remora serve txn` and `remora txn`: transactions over the keys of several shards.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs`, `shell.rs`, `line.rs` | what people and scripts use |
//! | `serve.rs` | a shard |

pub(crate) mod command;
mod line;
pub(crate) mod serve;
pub mod servers;
mod shell;
pub mod target;

pub use command::MAX_KEYS;
