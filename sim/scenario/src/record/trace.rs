//! Packet traces of selected nodes.

use std::collections::BTreeMap;

use remora_fabric::engine::Picos;
use remora_fabric::network::{EventSet, Network, PauseFrame, PortEvent};
use remora_fabric::simulation::{Seen, Simulation, hosts_of};
use remora_wire::{Operation, aeth, ipv4, irn, packet, udp};

use super::output::is_ns3;
use super::{Output, PortName, Sink};
use crate::Flow;
use crate::format::hpcc::outputs::address;
use crate::format::hpcc::packet_trace::{Event, Packet, Record, TracedPort, header};
use crate::path::Paths;
use crate::scenario::Scenario;

const HEAD: &str = "time_ps,node,port,event,class,queued,src,dst,sport,dport,kind,psn,payload,charge,ecn\n";

/// Destination address of pause frames in a trace.
const EVERYBODY: u32 = u32::MAX;

/// The traced nodes.
pub(crate) struct Trace {
    is_ns3: bool,
    mtu: u32,
    irn: bool,
    /// For each port: its name, and true if its node is a switch.
    ports: Vec<(PortName, bool)>,
    /// For each port: true if its node is traced.
    traced: Vec<bool>,
    /// Node number of each host.
    nodes: Vec<u32>,
    /// UDP destination ports of flows, by source, destination and source port.
    dports: BTreeMap<(u32, u32, u16), u16>,
    packet: Vec<u8>,
}

/// The fields of a packet that a trace shows.
struct Described {
    /// Node numbers of source and destination.
    ends: [u32; 2],
    /// UDP source and destination port of the flow's data packets.
    ports: [u16; 2],
    kind: Kind,
    psn: u32,
    payload: u16,
    ecn: u8,
}

/// The kind of a packet in a trace.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Data,
    Request,
    Ack,
    Nack,
    Cnp,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Request => "request",
            Kind::Ack => "ack",
            Kind::Nack => "nack",
            Kind::Cnp => "cnp",
        }
    }
}

impl Trace {
    /// Starts to observe all ports of the traced nodes.
    ///
    /// # Errors
    /// Fails if a node does not exist or if the format cannot represent the number of its ports.
    pub(crate) fn begin(
        scenario: &Scenario,
        flows: &[Flow],
        paths: &Paths,
        simulation: &mut Simulation,
        sink: &mut dyn Sink,
    ) -> Result<Trace, String> {
        let is_ns3 = is_ns3(scenario.output.format);
        for node in &scenario.output.trace {
            observe(simulation, *node, is_ns3)?;
        }
        let network = simulation.network();
        let name = |port| {
            let name = PortName::of(network, port);
            (name, network.host_at(name.node).is_none())
        };
        let ports: Vec<(PortName, bool)> = network.port_ids().map(name).collect();
        match is_ns3 {
            true => sink.append(Output::Trace, &header(&speeds(network), paths.window(scenario.mtu))),
            false => sink.append(Output::Trace, HEAD.as_bytes()),
        }
        let traced = ports.iter().map(|(name, _)| scenario.output.trace.contains(&name.node)).collect();
        let dports = flows.iter().filter(|flow| flow.ports[0] != 0);
        Ok(Trace {
            is_ns3,
            mtu: scenario.mtu,
            irn: simulation.config().connection.irn.is_some(),
            ports,
            traced,
            nodes: (0..network.hosts() as u32).map(|host| network.node_of(host)).collect(),
            dports: dports.map(|flow| ((flow.src, flow.dst, flow.ports[0]), flow.ports[1])).collect(),
            packet: Vec::new(),
        })
    }

    pub(crate) fn observe(&mut self, seen: &Seen<'_>, sink: &mut dyn Sink) {
        if !self.traced[seen.port().index()] {
            return;
        }
        let (port, is_switch) = self.ports[seen.port().index()];
        if let Some(pause) = seen.pause() {
            return self.write_pause(seen, port, is_switch, pause, sink);
        }
        seen.packet(&mut self.packet);
        let Some(described) = self.describe() else { return };
        match self.is_ns3 {
            true => sink.append(Output::Trace, &self.record(seen, port, is_switch, &described).bytes()),
            false => sink.append(Output::Trace, line(seen, port, &described).as_bytes()),
        }
    }

    fn describe(&self) -> Option<Described> {
        let packet = &self.packet[..];
        let below = packet.get(ipv4::LEN..)?;
        let view = packet::View::new(below.get(udp::LEN..)?).ok()?;
        let sport = u16::from_be_bytes([below[0], below[1]]);
        let kind = match view.bth.opcode().operation()? {
            Operation::Congestion => Kind::Cnp,
            Operation::Acknowledge | Operation::ReadAcknowledge => match view.aeth()?.syndrome.kind() {
                aeth::Kind::Ack { .. } => Kind::Ack,
                _ => Kind::Nack,
            },
            Operation::ReadRequest => Kind::Request,
            _ => Kind::Data,
        };
        let payload = match irn::Additions::split(&view) {
            Ok((_, payload)) if self.irn => payload.len(),
            _ => view.payload.len(),
        };
        let ends = hosts_of(packet)?.map(|host| self.nodes.get(host as usize).copied().unwrap_or(u32::MAX));
        let [src, dst] = if kind == Kind::Data { ends } else { [ends[1], ends[0]] };
        let dport = self.dports.get(&(src, dst, sport)).copied().unwrap_or(remora_wire::ROCE_PORT);
        Some(Described {
            ends,
            ports: [sport, dport],
            kind,
            psn: view.bth.psn().get(),
            payload: payload as u16,
            ecn: packet[1] & 3,
        })
    }

    /// Returns the record of HPCC's format. The sending time is 0, as with all congestion controls of that
    /// program but TIMELY.
    fn record(&self, seen: &Seen<'_>, port: PortName, is_switch: bool, described: &Described) -> Record {
        let Described { ends, ports: [sport, dport], kind, psn, payload, ecn } = *described;
        let class = u16::from(seen.class());
        let bytes = |psn: u32| psn.wrapping_mul(self.mtu);
        let packet = match kind {
            Kind::Cnp => Packet::Cnp,
            Kind::Data | Kind::Request => {
                Packet::Data { ports: [sport, dport], sequence: bytes(psn), sent: 0, class, payload }
            }
            Kind::Ack | Kind::Nack => {
                let is_nack = kind == Kind::Nack;
                let sequence = bytes(if is_nack { psn } else { psn.wrapping_add(1) });
                Packet::Ack { is_nack, ports: [dport, sport], flags: 0, class, sequence, sent: 0 }
            }
        };
        base(seen, port, is_switch, ends.map(address), ecn, packet)
    }

    fn write_pause(
        &self,
        seen: &Seen<'_>,
        port: PortName,
        is_switch: bool,
        pause: PauseFrame,
        sink: &mut dyn Sink,
    ) {
        let far = self.ports[seen.port().reverse().index()].0.node;
        let sender = if seen.event() == PortEvent::Arrived { far } else { port.node };
        let PauseFrame { classes, quanta } = pause;
        if self.is_ns3 {
            let class = classes.trailing_zeros() as u8;
            let packet = Packet::Pfc { time: quanta.into(), length: 0, class };
            let record = base(seen, port, is_switch, [address(sender), EVERYBODY], 0, packet);
            return sink.append(Output::Trace, &record.bytes());
        }
        let PortName { node, port } = port;
        let time = seen.at().0;
        let event = event_name(seen.event());
        let line = format!(
            "{time},{node},{port},{event},{classes},0,{sender},,,,pause,,{quanta},{},0\n",
            seen.charge()
        );
        sink.append(Output::Trace, line.as_bytes());
    }
}

/// Returns a record with the fields that all packets have.
fn base(
    seen: &Seen<'_>,
    port: PortName,
    is_switch: bool,
    [source, destination]: [u32; 2],
    ecn: u8,
    packet: Packet,
) -> Record {
    // HPCC's receivers have not classified the packet yet, and control frames are in queue 0.
    let arrived = seen.event() == PortEvent::Arrived || seen.pause().is_some();
    let queue = if arrived { 0 } else { seen.class() };
    let waiting = seen.waiting()[usize::from(queue)];
    Record {
        time: seen.at().0 / Picos::NANOSECOND,
        node: port.node as u16,
        interface: port.port as u8,
        queue,
        // HPCC reports the length before the packet was added.
        length: if seen.event() == PortEvent::Enqueued { waiting - seen.charge() } else { waiting },
        source,
        destination,
        size: seen.charge() as u16,
        event: match seen.event() {
            PortEvent::Arrived => Event::Receive,
            PortEvent::Enqueued => Event::Enqueue,
            PortEvent::Departed => Event::Dequeue,
            PortEvent::Dropped => Event::Drop,
        },
        ecn,
        is_switch,
        packet,
    }
}

fn event_name(event: PortEvent) -> &'static str {
    match event {
        PortEvent::Arrived => "arrived",
        PortEvent::Enqueued => "enqueued",
        PortEvent::Departed => "departed",
        PortEvent::Dropped => "dropped",
    }
}

fn line(seen: &Seen<'_>, port: PortName, described: &Described) -> String {
    let PortName { node, port } = port;
    let Described { ends: [src, dst], ports: [sport, dport], kind, psn, payload, ecn } = described;
    let time = seen.at().0;
    let event = event_name(seen.event());
    let class = seen.class();
    let charge = seen.charge();
    let queued = seen.waiting()[usize::from(class)];
    let kind = kind.name();
    format!(
        "{time},{node},{port},{event},{class},{queued},{src},{dst},{sport},{dport},{kind},{psn},{payload},{charge},{ecn}\n"
    )
}

/// Observes all events at a node.
fn observe(simulation: &mut Simulation, node: u32, is_ns3: bool) -> Result<(), String> {
    let network = simulation.network();
    let ports: Vec<_> = (0..).map_while(|number| network.port_of(node, number)).collect();
    if ports.is_empty() {
        let nodes = network.topology().nodes.len();
        return Err(format!("output.trace names node {node}, and there are {nodes}: name one of them"));
    }
    if is_ns3 && ports.len() > usize::from(u8::MAX) {
        let count = ports.len();
        return Err(format!(
            "node {node} has {count} ports, and a .tr file counts to 255: trace another, or with format \"own\""
        ));
    }
    for port in ports {
        simulation.observe(port, EventSet::DEPARTURES.with(EventSet::QUEUES));
        simulation.observe(port.reverse(), EventSet::ARRIVALS);
    }
    Ok(())
}

/// Returns all ports, by node and number, that the trace format can represent.
fn speeds(network: &Network) -> Vec<TracedPort> {
    let mut named: Vec<(PortName, u64)> =
        network.port_ids().map(|port| (PortName::of(network, port), network.port(port).rate)).collect();
    named.sort_unstable();
    let fits = |(name, _): &&(PortName, u64)| name.node <= 0xffff && name.port <= 0xff;
    let port = |(name, rate): &(PortName, u64)| TracedPort {
        node: name.node as u16,
        interface: name.port as u8,
        rate: *rate,
    };
    named.iter().filter(fits).map(port).collect()
}
