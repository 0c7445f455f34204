//! `remora serve block` and `remora block`: replicated blocks.

pub mod bench;
pub mod client;
pub mod command;
mod connector;
mod crowd;
mod etcd;
mod exercise;
mod founding;
mod peers;
mod repair;
mod replica;
mod rows;
mod seat;
pub mod serve;
mod servers;
mod shell;
pub mod together;

/// Operations that a client has in flight at most: buffers are made for it.
pub const WINDOW: u16 = 16;

/// Why a client cannot be made.
const NO_SUCH_STORE: &str = "a store of blocks has 1, 3, 5 or 7 replicas";
