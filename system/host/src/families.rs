//! An adapter's counters as families for Prometheus.

use crate::adapter::Adapter;
use crate::metrics::Family;

/// All counters of an adapter, by engine: the NIC's under the names of `hw_counters`, the port's, and those
/// of the threads that drive the engines.
pub fn families(adapter: &Adapter) -> Vec<Family> {
    let mut families = Vec::new();
    for engine in adapter.engines() {
        let (number, kind) = (engine.number().to_string(), engine.facts().kind.to_string());
        let labels = [("engine", number.as_str()), ("port", kind.as_str())];
        let mut at = 0;
        let mut put = |name: &str, help: &str, value: u64| {
            if families.len() == at {
                families.push(Family::counter(&format!("remora_{name}"), help));
            }
            let family = families.remove(at).sample(&labels, value);
            families.insert(at, family);
            at += 1;
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
    families
}
