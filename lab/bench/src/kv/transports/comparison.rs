//! The transports to compare and the settings that they share.

use remora_options::device::PortName;
use remora_store_cli::measure::runner::Plan;
use remora_store_cli::transport::TransportName;

use crate::kv::case::Case;

/// The transports to compare and the settings that they share.
pub struct Comparison<'a> {
    /// The transports, the baseline first.
    pub transports: &'a [TransportName],
    /// The port to use; `None` selects udp.
    pub port: Option<PortName>,
    /// Workloads to measure.
    pub cases: &'a [Case],
    /// Size of the table.
    pub plan: &'a Plan,
    /// Rounds, in which the transports take turns.
    pub rounds: u32,
}
