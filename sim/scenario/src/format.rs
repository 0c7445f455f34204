//! The files of other simulators, and our own.

pub mod change;
pub mod hpcc;
pub mod htsim;
pub mod own;
pub mod paths;
mod supply;
mod table;

pub use supply::{Need, files, supply};
