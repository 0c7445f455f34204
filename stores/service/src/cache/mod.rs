//! A cache behind memcached's text protocol. Its NIC answers the GETs of Remora clients by chains.

pub mod chains;
mod client;
mod connection;
mod listen;
mod memcached;
mod server;
mod stream;
mod timers;

pub use chains::Chains;
pub use client::{ChainAnswer, Client};
pub use listen::Listeners;
pub use server::{Server, ServerConfig};
