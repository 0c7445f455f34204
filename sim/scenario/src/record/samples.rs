//! Periodic samples of switches and hosts: bytes on uplinks, queue pairs and CNPs.

use remora_fabric::engine::Picos;
use remora_fabric::network::{EventSet, Network, PortEvent, PortId};
use remora_fabric::simulation::{Seen, Simulation};

use super::output::is_ns3;
use super::{Output, PortName, Sink};
use crate::format::hpcc::outputs::{cnp_line, conn_line, uplink_line};
use crate::scenario::OutputFormat;
use crate::units::Time;
use crate::{Flow, Start};

/// Interval in which CNPs are counted together, in picoseconds, as in ConWeave's program.
const BUCKET: u64 = 100 * Picos::MICROSECOND;

const HEADS: [(Output, &str); 3] = [
    (Output::Cnps, "time_ps,node,cnps\n"),
    (Output::Uplinks, "time_ps,node,port,bytes\n"),
    (Output::Connections, "time_ps,node,queue_pairs,active\n"),
];

/// An uplink port of a ToR switch.
struct Uplink {
    port: PortName,
    bytes: u64,
}

/// The state of the samples.
pub(crate) struct Samples {
    is_ns3: bool,
    interval: u64,
    /// Time of the next sample of uplinks and queue pairs, and end of the current interval of CNPs.
    next: Picos,
    bucket: Picos,
    uplinks: Vec<Uplink>,
    /// For each port: its index in `uplinks`.
    places: Vec<Option<u32>>,
    /// For each host: number of CNPs that were already written.
    cnps: Vec<u64>,
}

impl Samples {
    /// Starts sampling at the start of the first flow, rounded down to a whole interval.
    pub(crate) fn begin(
        format: OutputFormat,
        interval: Time,
        flows: &[Flow],
        simulation: &mut Simulation,
        sink: &mut dyn Sink,
    ) -> Samples {
        let interval = interval.0.max(1);
        let start = |flow: &Flow| match flow.start {
            Start::At(start) => Some(start),
            Start::After(_) => None,
        };
        let first = flows.iter().filter_map(start).min().unwrap_or(0) / interval * interval;
        let mut uplinks: Vec<(PortName, PortId)> = upwards(simulation.network());
        uplinks.sort();
        let mut places = vec![None; simulation.network().ports().len()];
        for (place, (_, port)) in uplinks.iter().enumerate() {
            places[port.index()] = Some(place as u32);
            simulation.observe(*port, EventSet::DEPARTURES);
        }
        if !is_ns3(format) {
            HEADS.iter().for_each(|(output, head)| sink.append(*output, head.as_bytes()));
        }
        Samples {
            is_ns3: is_ns3(format),
            interval,
            next: Picos(first),
            bucket: Picos(first).after(BUCKET),
            uplinks: uplinks.into_iter().map(|(port, _)| Uplink { port, bytes: 0 }).collect(),
            places,
            cnps: vec![0; simulation.network().hosts()],
        }
    }

    /// Returns the time at which [`Samples::sample`] must be called next.
    pub(crate) fn next(&self) -> Picos {
        self.next.min(self.bucket)
    }

    pub(crate) fn observe(&mut self, seen: &Seen<'_>) {
        if seen.event() == PortEvent::Departed
            && let Some(Some(place)) = self.places.get(seen.port().index())
        {
            self.uplinks[*place as usize].bytes += u64::from(seen.charge());
        }
    }

    /// Writes the samples that are due.
    pub(crate) fn sample(&mut self, simulation: &Simulation, sink: &mut dyn Sink) {
        let now = simulation.network().now();
        if self.bucket <= now {
            self.write_cnps(simulation, sink);
            self.bucket = self.bucket.after(BUCKET);
        }
        if self.next <= now {
            self.write_uplinks(now, sink);
            self.write_connections(simulation, sink);
            self.next = self.next.after(self.interval);
        }
    }

    /// Writes the CNPs of the last, shorter interval when the run is over.
    pub(crate) fn end(&mut self, simulation: &Simulation, sink: &mut dyn Sink) {
        self.write_cnps(simulation, sink);
    }

    fn write_cnps(&mut self, simulation: &Simulation, sink: &mut dyn Sink) {
        let network = simulation.network();
        let now = network.now();
        let mut text = String::new();
        for (host, written) in (0_u32..).zip(&mut self.cnps) {
            let sent = simulation.counters(host).np_cnp_sent;
            let new = u32::try_from(sent - *written).unwrap_or(u32::MAX);
            *written = sent;
            if new == 0 {
                continue;
            }
            let node = network.node_of(host);
            text += &match self.is_ns3 {
                // The second count is of CNPs for packets out of order, which this NIC does not send.
                true => cnp_line(now.0 / Picos::NANOSECOND, node, new, 0, new),
                false => format!("{},{node},{new}\n", now.0),
            };
        }
        if !text.is_empty() {
            sink.append(Output::Cnps, text.as_bytes());
        }
    }

    fn write_uplinks(&self, now: Picos, sink: &mut dyn Sink) {
        let mut text = String::new();
        for Uplink { port: PortName { node, port }, bytes } in &self.uplinks {
            text += &match self.is_ns3 {
                true => uplink_line(now.0 / Picos::NANOSECOND, *node, *port, *bytes),
                false => format!("{},{node},{port},{bytes}\n", now.0),
            };
        }
        sink.append(Output::Uplinks, text.as_bytes());
    }

    fn write_connections(&self, simulation: &Simulation, sink: &mut dyn Sink) {
        let network = simulation.network();
        let now = network.now();
        let mut text = String::new();
        for (host, senders) in (0_u32..).zip(simulation.senders()) {
            let node = network.node_of(host);
            let all = senders.all;
            let active = senders.unsent;
            text += &match self.is_ns3 {
                true => conn_line(now.0 / Picos::NANOSECOND, node, all, active),
                false => format!("{},{node},{all},{active}\n", now.0),
            };
        }
        sink.append(Output::Connections, text.as_bytes());
    }
}

/// Returns the ports from switches that have hosts to other switches.
fn upwards(network: &Network) -> Vec<(PortName, PortId)> {
    let is_host = |node| network.host_at(node).is_some();
    let has_hosts = |node: u32| {
        let mut ports = (0..).map_while(|number| network.port_of(node, number));
        ports.any(|port| is_host(PortName::of(network, port.reverse()).node))
    };
    let named = network.port_ids().map(|port| (PortName::of(network, port), port));
    named
        .filter(|(name, port)| {
            let far = PortName::of(network, port.reverse()).node;
            !is_host(name.node) && !is_host(far) && has_hosts(name.node)
        })
        .collect()
}
