//! Readers and writers for the files of HPCC's ns-3 program, and of programs that kept its formats, such as
//! ConWeave's.
//!
//! Every text format is a sequence of words separated by white space. Text after the last word that the
//! format calls for is ignored. The two dialects differ in the columns of the flow file, in some keys of the
//! configuration and in how output files name hosts.

pub mod cdf;
pub mod config;
pub mod flows;
pub mod topology;
pub mod trace;
pub mod translation;

pub use remora_scenario::format::hpcc::Dialect;
