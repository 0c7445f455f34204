//! The files of htsim's data-center programs: connection matrices, topologies, options and the line of a
//! flow.

pub mod connections;
pub mod options;
pub mod output;
pub mod times;
pub mod topology;
pub mod translation;

/// Bytes that a data packet has besides its payload, and bytes of an ACK.
pub const HEADER: u64 = 64;
