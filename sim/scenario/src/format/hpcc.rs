//! Files of HPCC's ns-3 program, and of programs that kept its formats, such as ConWeave's: the names of the
//! two dialects, and the output files. The crate `remora-import` reads the input files.

pub mod outputs;
pub mod packet_trace;

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
