//! Names of ports in files and on the command line.

use std::fmt;
use std::str::FromStr;

use remora_fabric::network::{Network, PortId};

use crate::error::excerpt;

/// A port, named as in HPCC's files: `130:1` is the first port of node 130.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortName {
    /// Number of the node.
    pub node: u32,
    /// Number of the port at its node, from 1, in the order of the links.
    pub port: u32,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}

impl FromStr for PortName {
    type Err = String;

    fn from_str(text: &str) -> Result<PortName, String> {
        let parsed = text
            .split_once(':')
            .and_then(|(node, port)| Some(PortName { node: node.parse().ok()?, port: port.parse().ok()? }));
        parsed.filter(|name| name.port > 0).ok_or_else(|| {
            let text = excerpt(text);
            format!("`{text}` is not a port: write its node and its number, from 1, like 130:1")
        })
    }
}

impl PortName {
    /// Returns the name of a port.
    pub fn of(network: &Network, port: PortId) -> PortName {
        let (node, number) = network.name_of(port);
        PortName { node, port: number + 1 }
    }

    /// Returns the port with this name.
    ///
    /// # Errors
    /// Fails if the node or port does not exist.
    pub fn find(self, network: &Network) -> Result<PortId, String> {
        let PortName { node, port } = self;
        if let Some(id) = port.checked_sub(1).and_then(|number| network.port_of(node, number)) {
            return Ok(id);
        }
        let nodes = network.topology().nodes.len();
        if node as usize >= nodes {
            return Err(format!("{self} names node {node}, and the last one is {}: choose it", nodes - 1));
        }
        let ports = (0..).take_while(|port| network.port_of(node, *port).is_some()).count();
        Err(format!("node {node} has the ports 1 to {ports}: choose one of them instead of {port}"))
    }
}
