//! The files of HPCC's ns-3 program and of its relatives: ConWeave's, and others that have kept the formats.
//!
//! All of them are words between white space; what follows the last expected word is ignored. The two
//! dialects differ in the columns of flows, in some keys of the configuration and in how outputs name hosts.

pub mod cdf;
pub mod config;
pub mod flows;
pub mod outputs;
pub mod packet_trace;
pub mod topology;
pub mod trace;
pub mod translation;

use serde::{Deserialize, Serialize};

/// Whose program a file is for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// High-Precision-Congestion-Control.
    #[default]
    Hpcc,
    /// conweave-ns3.
    Conweave,
}

/// Bytes of a data packet's headers: Ethernet and PPP 14, IP 20, UDP 8, sequence and ports 6.
pub const HEADER: u64 = 48;
