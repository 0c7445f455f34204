//! The files of other simulators, and our own.

pub mod hpcc;
pub mod htsim;
pub mod own;
pub mod paths;
mod supply;

pub use supply::{Need, files, supply};
