//! Converts an adapter's counters to metric families for Prometheus.

use remora_nic::rma::{Delays, Histogram};

use crate::adapter::Adapter;
use crate::metrics::Family;

/// Returns all counters of an adapter, by engine: those of the NIC under the names of `hw_counters`, those
/// of the port, and those of the threads that drive the engines.
pub fn families(adapter: &Adapter) -> Vec<Family> {
    let mut families = Vec::new();
    for engine in adapter.engines() {
        let number = engine.number().to_string();
        let kind = engine.facts().kind.to_string();
        let labels = [("engine", number.as_str()), ("port", kind.as_str())];
        let mut index = 0;
        let mut put = |name: &str, help: &str, value: u64| {
            if families.len() == index {
                families.push(Family::counter(&format!("remora_{name}"), help));
            }
            let family = families.remove(index).sample(&labels, value);
            families.insert(index, family);
            index += 1;
        };
        for (name, help, value) in engine.counters().each() {
            put(name, help.trim(), value);
        }
        let port = engine.port_counters();
        put("port_frames_sent", "Frames handed to the peer or to the system.", port.frames_sent);
        put("port_bytes_sent", "Bytes of those frames.", port.bytes_sent);
        put("port_frames_received", "Frames received.", port.frames_received);
        put("port_bytes_received", "Bytes of those frames.", port.bytes_received);
        put("port_no_room", "Times that the port had no buffer for a frame.", port.no_room);
        put("port_send_dropped", "Frames dropped on sending.", port.send_dropped);
        put("port_malformed", "Received frames that break the port's own rules.", port.malformed);
        put("port_os_errors", "Failures of the system.", port.os_errors);
        put("port_wakes_sent", "Wakes sent to sleeping peers.", port.wakes_sent);
        put("port_peers_lost", "Peers that died, left or were cut off.", port.peers_lost);
        put("port_faults_dropped", "Frames lost on purpose.", port.faults.dropped);
        put("port_faults_duplicated", "Frames doubled on purpose.", port.faults.duplicated);
        put("port_faults_reordered", "Frames that others overtook on purpose.", port.faults.reordered);
        put("port_faults_delayed", "Frames delayed on purpose.", port.faults.delayed);
        put("port_faults_corrupted", "Frames broken on purpose.", port.faults.corrupted);
        let driver = engine.driver_counters();
        put("driver_packet_wakes", "Times that the port woke the driving thread.", driver.packet_wakes);
        put("driver_calls", "Times that a doorbell or a caller woke it.", driver.calls);
        put("driver_timer_wakes", "Times that its timer woke it.", driver.timer_wakes);
        put("driver_passes", "Passes that it made.", driver.passes);
    }
    families.extend(rma_families(adapter));
    families
}

/// A histogram of delays: its name, its help text, and the function that selects it.
struct Delay {
    name: &'static str,
    help: &'static str,
    histogram: fn(&Delays) -> &Histogram,
}

const DELAYS: [Delay; 3] = [
    Delay {
        name: "remora_rma_issue_delay_seconds",
        help: "From the issue of a command until it entered service (1RMA).",
        histogram: |delays| &delays.issue,
    },
    Delay {
        name: "remora_rma_remote_delay_seconds",
        help: "From a command's entry into service to its end: the network and the server (1RMA).",
        histogram: |delays| &delays.remote,
    },
    Delay {
        name: "remora_rma_total_delay_seconds",
        help: "From the issue of a command to its end (1RMA).",
        histogram: |delays| &delays.total,
    },
];

/// Returns the delays of 1RMA, for the engines on which it is enabled.
fn rma_families(adapter: &Adapter) -> Vec<Family> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut histograms = DELAYS.map(|delay| Family::histogram(delay.name, delay.help));
    let help = "Time for which an operation waited because the window was full (1RMA).";
    let mut full = Family::counter("remora_rma_window_full_seconds", help);
    let mut observed = Family::counter("remora_rma_seconds", "Time since the engine speaks 1RMA.");
    for engine in adapter.engines() {
        let Some(delays) = engine.rma_delays() else { continue };
        let number = engine.number().to_string();
        let kind = engine.facts().kind.to_string();
        let labels = [("engine", number.as_str()), ("port", kind.as_str())];
        for (family, delay) in histograms.iter_mut().zip(DELAYS) {
            let histogram = (delay.histogram)(&delays);
            let bounds = histogram.cumulative().map(|(ns, below)| (seconds(ns), below));
            let sum = seconds(histogram.sum());
            let count = histogram.count();
            *family = family.clone().buckets(&labels, bounds, sum, count);
        }
        full = full.sample(&labels, seconds(delays.window_full));
        observed = observed.sample(&labels, seconds(delays.observed));
    }
    histograms.into_iter().chain([full, observed]).collect()
}
