//! `remora serve cache` and `remora cache`.

pub(crate) mod client;
pub mod connect;
pub(crate) mod serve;
