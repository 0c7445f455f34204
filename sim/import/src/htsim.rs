//! Readers and writers for the files of htsim's data-centre programs: connection matrices, topologies, the
//! command line, and the line that is printed for each flow.

pub mod connections;
pub mod options;
pub mod output;
pub mod times;
pub mod topology;
pub mod translation;

/// Header bytes that a data packet has in addition to its payload; also the size of an ACK in bytes.
pub const HEADER: u64 = 64;
