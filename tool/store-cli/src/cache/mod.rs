//! `remora serve cache` and `remora cache`.

pub mod client;
mod connect;
mod exercise;
pub mod serve;
