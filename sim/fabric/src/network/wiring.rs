//! Construction of ports and switches from a topology.

use super::NetworkConfig;
use super::buffer::BufferConfig;
use super::flow_hash::{KeyedHash, mix};
use super::port::{End, Port};
use super::port_id::PortId;
use super::route::Balancing;
use super::switch::Switch;
use super::voq::VOQ_PORTS_MAX;
use crate::topology::{NodeKind, Topology, TopologyError};

/// Returns the host or switch of each node.
pub(super) fn ends(topology: &Topology) -> Vec<End> {
    let mut hosts = 0;
    let mut switches = 0;
    let end = |kind: &NodeKind| match kind {
        NodeKind::Host => {
            hosts += 1;
            End::Host(hosts - 1)
        }
        NodeKind::Switch => {
            switches += 1;
            End::Switch(switches - 1)
        }
    };
    topology.nodes.iter().map(end).collect()
}

/// The ports of a topology.
pub(super) struct Wiring {
    pub ports: Vec<Port>,
    pub of_node: Vec<Vec<PortId>>,
    pub numbers: Vec<u16>,
    pub loss: Vec<f64>,
}

impl Wiring {
    pub(super) fn new(topology: &Topology, ends: &[End]) -> Wiring {
        let mut wiring = Wiring {
            ports: Vec::with_capacity(2 * topology.links.len()),
            of_node: vec![Vec::new(); topology.nodes.len()],
            numbers: Vec::new(),
            loss: Vec::new(),
        };
        for link in &topology.links {
            for (sender, receiver) in [(link.a, link.b), (link.b, link.a)] {
                let of_node = &mut wiring.of_node[sender as usize];
                wiring.numbers.push(of_node.len() as u16);
                of_node.push(PortId(wiring.ports.len() as u32));
                let mut port =
                    Port::new(ends[sender as usize], ends[receiver as usize], link.rate, link.delay);
                port.lossy = link.loss > 0.0;
                wiring.ports.push(port);
                wiring.loss.push(link.loss);
            }
        }
        wiring
    }
}

/// Divides the ports among hosts and switches.
pub(super) fn share_out(
    topology: &Topology,
    config: &NetworkConfig,
    of_node: Vec<Vec<PortId>>,
    ends: &[End],
) -> Result<(Vec<Vec<PortId>>, Vec<Switch>), TopologyError> {
    let tiers = tiers(topology);
    let mut uplinks = Vec::new();
    let mut switches = Vec::new();
    for (node, own) in of_node.into_iter().enumerate() {
        if let End::Host(_) = ends[node] {
            uplinks.push(own);
            continue;
        }
        if matches!(config.buffer, BufferConfig::Voq { .. }) && own.len() > VOQ_PORTS_MAX {
            return Err(too_many("ports of a switch with virtual output queues", own.len(), VOQ_PORTS_MAX));
        }
        let salt = match config.balancing {
            Balancing::Keyed(KeyedHash::Ns3) => node as u32,
            _ => mix(config.seed as u32 ^ mix(node as u32 + 1)),
        };
        switches.push(Switch::new(node as u32, tiers[node], own, config.buffer, config.balancing, salt));
    }
    Ok((uplinks, switches))
}

pub(super) fn too_many(what: &'static str, asked: usize, limit: usize) -> TopologyError {
    TopologyError::TooMany { what, asked: asked as u64, limit: limit as u64 }
}

/// Returns for each node its distance to the nearest host in links, minus one.
fn tiers(topology: &Topology) -> Vec<u32> {
    let ports = topology.ports();
    let mut distance = vec![u32::MAX; topology.nodes.len()];
    let mut line: std::collections::VecDeque<u32> = topology.hosts().collect();
    line.iter().for_each(|host| distance[*host as usize] = 0);
    while let Some(node) = line.pop_front() {
        let next = distance[node as usize] + 1;
        for port in &ports[node as usize] {
            if distance[port.neighbour as usize] == u32::MAX {
                distance[port.neighbour as usize] = next;
                line.push_back(port.neighbour);
            }
        }
    }
    distance.into_iter().map(|links| links.saturating_sub(1)).collect()
}
