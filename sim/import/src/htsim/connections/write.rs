//! Writing of a connection matrix.

use std::fmt::Write as _;

use remora_fabric::topology::Tier;

use super::{ConnectionStart, Connections, FailedLink, TriggerKind};

impl Connections {
    /// Writes the matrix in the format that [`super::parse`] reads.
    pub fn write(&self) -> String {
        let mut text = format!("Nodes {}\nConnections {}\n", self.nodes, self.flows.len());
        if !self.triggers.is_empty() {
            let _ = writeln!(text, "Triggers {}", self.triggers.len());
        }
        if !self.failures.is_empty() {
            let _ = writeln!(text, "Failures {}", self.failures.len());
        }
        for flow in &self.flows {
            let _ = write!(text, "{}->{}", flow.src, flow.dst);
            let mut put = |key: &str, value: Option<u64>| {
                if let Some(value) = value {
                    let _ = write!(text, " {key} {value}");
                }
            };
            put("id", flow.id);
            match flow.start {
                ConnectionStart::At(time) => put("start", Some(time)),
                ConnectionStart::Trigger(id) => put("trigger", Some(id)),
            }
            put("size", Some(flow.size));
            put("send_done_trigger", flow.send_done);
            put("recv_done_trigger", flow.recv_done);
            put("prio", flow.priority);
            text.push('\n');
        }
        for trigger in &self.triggers {
            let _ = match trigger.kind {
                TriggerKind::OneShot => writeln!(text, "trigger id {} oneshot", trigger.id),
                TriggerKind::MultiShot => writeln!(text, "trigger id {} multishot", trigger.id),
                TriggerKind::Barrier(count) => {
                    writeln!(text, "trigger id {} barrier count {count}", trigger.id)
                }
            };
        }
        for FailedLink { tier, switch, link } in &self.failures {
            let tier = match tier {
                Tier::Tor => "TOR",
                Tier::Agg => "AGG",
                Tier::Core => "CORE",
            };
            let _ = writeln!(text, "failure switch_type {tier} switch_id {switch} link_id {link}");
        }
        text
    }
}
