//! The transport of a key-value client's operations: `--transport`.

use clap::ValueEnum;
use serde::Serialize;

/// The transport of the operations.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportName {
    /// Reliable connections with go-back-N.
    #[default]
    Rc,
    /// Reliable connections with IRN (selective retransmission).
    Irn,
    /// 1RMA, encrypted and without connections; for design farm over port udp or xdp.
    Rma,
}

impl TransportName {
    /// The list of all transports.
    pub const ALL: [TransportName; 3] = [TransportName::Rc, TransportName::Irn, TransportName::Rma];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TransportName::Rc => "rc",
            TransportName::Irn => "irn",
            TransportName::Rma => "rma",
        }
    }
}
