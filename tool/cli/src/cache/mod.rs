//! `remora serve cache` and `remora cache`.

pub mod client;
mod exercise;
pub mod serve;
