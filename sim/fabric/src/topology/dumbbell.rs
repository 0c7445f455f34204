//! The dumbbell topology.

use super::{LINKS_MAX, Level, NODES_MAX, NodeKind, Place, Tier, Topology, TopologyError, limit};

/// Two switches, each with hosts, joined by a bottleneck link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Dumbbell {
    /// Number of hosts at the first switch; they have the lowest node numbers.
    pub left: u32,
    /// Number of hosts at the second switch.
    pub right: u32,
    /// Links of the hosts.
    pub hosts: Level,
    /// Link between the switches.
    pub middle: Level,
}

impl Dumbbell {
    /// Builds the topology. Nodes: hosts, then both switches. Links: those of the hosts, then the one between
    /// the switches.
    ///
    /// # Errors
    /// Fails if a side has no hosts, if there are too many nodes, or if a link is invalid.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        if self.left == 0 || self.right == 0 || self.hosts.bundle == 0 || self.middle.bundle == 0 {
            return Err(TopologyError::Shape(
                "a dumbbell has a host on each side and a link between them: raise the count that is 0",
            ));
        }
        let hosts = u64::from(self.left) + u64::from(self.right);
        limit("nodes", hosts + 2, NODES_MAX)?;
        limit("links", hosts * u64::from(self.hosts.bundle) + u64::from(self.middle.bundle), LINKS_MAX)?;
        let hosts = hosts as u32;
        let mut topology = Topology { nodes: vec![NodeKind::Host; hosts as usize], ..Topology::default() };
        topology.nodes.extend([NodeKind::Switch; 2]);
        topology.places = vec![None; hosts as usize];
        topology
            .places
            .extend([0, 1].map(|number| Some(Place { tier: Tier::Tor, pod: 0, position: number, number })));
        for host in 0..hosts {
            topology.join(host, hosts + u32::from(host >= self.left), self.hosts);
        }
        topology.join(hosts, hosts + 1, self.middle);
        topology.check()?;
        Ok(topology)
    }
}
