//! The files of other simulators, and our own.

pub mod hpcc;
pub mod htsim;
pub mod own;
mod supply;

pub use supply::{Need, files, supply};
