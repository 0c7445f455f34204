//! Output of pause frames, by the node that receives them.

use remora_fabric::engine::Picos;
use remora_fabric::network::PortEvent;
use remora_fabric::simulation::{Seen, Simulation};

use super::output::is_ns3;
use super::{Output, PortName, Sink};
use crate::format::hpcc::outputs::PfcLine;
use crate::scenario::OutputFormat;

const HEAD: &str = "time_ps,node,port,classes,quanta\n";

/// Writes a line for every pause frame that arrives at a node.
pub(crate) struct Pauses {
    is_ns3: bool,
    /// For each port: its name, and true if its node is a switch.
    ports: Vec<(PortName, bool)>,
}

impl Pauses {
    /// Starts to observe all pause frames of a simulation.
    pub(crate) fn begin(format: OutputFormat, simulation: &mut Simulation, sink: &mut dyn Sink) -> Pauses {
        simulation.observe_pauses();
        let network = simulation.network();
        let name = |port| {
            let name = PortName::of(network, port);
            (name, network.host_at(name.node).is_none())
        };
        let ports = network.port_ids().map(name).collect();
        if !is_ns3(format) {
            sink.append(Output::Pauses, HEAD.as_bytes());
        }
        Pauses { is_ns3: is_ns3(format), ports }
    }

    pub(crate) fn observe(&mut self, seen: &Seen<'_>, sink: &mut dyn Sink) {
        let Some(pause) = seen.pause().filter(|_| seen.event() == PortEvent::Arrived) else { return };
        let (PortName { node, port }, is_switch) = self.ports[seen.port().index()];
        let line = if self.is_ns3 {
            let time = seen.at().0 / Picos::NANOSECOND;
            let is_pause = pause.quanta > 0;
            PfcLine { time, node, is_switch, interface: port, is_pause }.write()
        } else {
            format!("{},{node},{port},{},{}\n", seen.at().0, pause.classes, pause.quanta)
        };
        sink.append(Output::Pauses, line.as_bytes());
    }
}
