//! The files of other simulators, and our own.

pub mod hpcc;
pub mod htsim;
