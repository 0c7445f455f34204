//! File formats: scenario files of Remora, and the output files of HPCC's ns-3 program.

pub mod change;
pub mod hpcc;
pub mod own;
