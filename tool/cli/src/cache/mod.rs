//! `remora serve cache`: memcached's text protocol over TCP, and for Remora clients a chain; `remora cache`: such a client.

mod chains;
pub mod client;
mod connection;
mod exercise;
mod listen;
mod memcached;
pub mod serve;
mod stream;
mod timers;
