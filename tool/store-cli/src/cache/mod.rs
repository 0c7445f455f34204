//! `remora serve cache` and `remora cache`: server and clients of the cache.

pub(crate) mod client;
pub mod connect;
pub(crate) mod serve;
