//! A line of the demo's table, and the measurement that it shows.

use remora_options::device::PortName;
use serde::Serialize;

use crate::measure::runner::Figures;

/// A line of the demo's table.
#[derive(Serialize)]
pub(super) struct Line {
    pub(super) bench: &'static str,
    pub(super) case: String,
    pub(super) round_trips: f64,
    pub(super) latency_p50_ns: f64,
    pub(super) latency_p99_ns: f64,
    pub(super) rate_per_s: f64,
    pub(super) server_cpu_ns_per_get: f64,
    #[serde(skip)]
    pub(super) port: PortName,
    #[serde(skip)]
    pub(super) system: &'static str,
    #[serde(skip)]
    pub(super) value_len: u32,
}

/// Results of a system's GETs.
pub(super) struct Measured {
    pub(super) alone: Figures,
    /// The GETs per second with a full window.
    pub(super) rate: f64,
    /// The CPU time of the server per GET with a full window, in nanoseconds.
    pub(super) cpu: f64,
}

pub(super) fn cells(line: &Line) -> [String; 6] {
    let micro = |ns: f64| format!("{:.2} us", ns / 1000.0);
    [
        line.system.to_owned(),
        format!("{:.2}", line.round_trips),
        micro(line.latency_p50_ns),
        micro(line.latency_p99_ns),
        format!("{:.2} M", line.rate_per_s / 1e6),
        format!("{:.0} ns", line.server_cpu_ns_per_get),
    ]
}
