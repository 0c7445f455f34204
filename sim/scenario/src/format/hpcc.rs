//! Readers and writers for the files of HPCC's ns-3 program, and of programs that kept its formats, such as
//! ConWeave's.
//!
//! Every text format is a sequence of words separated by white space. Text after the last word that the
//! format calls for is ignored. The two dialects differ in the columns of the flow file, in some keys of the
//! configuration and in how output files name hosts.

pub mod cdf;
pub mod config;
pub mod flows;
pub mod outputs;
pub mod packet_trace;
pub mod topology;
pub mod trace;
pub mod translation;

use serde::{Deserialize, Serialize};

/// The ns-3 program that a file is written for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// HPCC's program, the repository `High-Precision-Congestion-Control`.
    #[default]
    Hpcc,
    /// ConWeave's program, the repository `conweave-ns3`.
    Conweave,
}

/// Header bytes that ns-3 adds to the payload of a data packet: 14 of Ethernet and PPP, 20 of IP, 8 of UDP, 6
/// for sequence number and ports.
pub const HEADER: u64 = 48;
