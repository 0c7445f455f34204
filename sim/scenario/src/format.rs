//! File formats: scenario files of Remora, and the files of other simulators that are translated into
//! scenarios.

pub mod change;
pub mod hpcc;
pub mod htsim;
pub mod own;
pub mod paths;
mod supply;
mod table;

pub use supply::{Need, files, supply};
