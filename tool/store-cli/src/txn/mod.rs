//! `remora serve txn` and `remora txn`: shards and clients of the transactional store.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs`, `shell.rs`, `line.rs` | the client commands |
//! | `serve.rs` | the server of a shard |

pub(crate) mod command;
mod line;
pub(crate) mod serve;
pub mod servers;
mod shell;
pub mod target;

pub use command::MAX_KEYS;
