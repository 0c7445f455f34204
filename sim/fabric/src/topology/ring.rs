//! The ring topology: the smallest network in which paused ports can deadlock.

use super::{LINKS_MAX, Level, NODES_MAX, NodeKind, Place, Tier, Topology, TopologyError, limit};

/// A ring of switches, each with hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Number of switches; at least 3.
    pub switches: u32,
    /// Number of hosts at each switch.
    pub hosts_per_switch: u32,
    /// Links of the hosts.
    pub hosts: Level,
    /// Links between neighbouring switches.
    pub around: Level,
}

impl Ring {
    /// Builds the topology. Nodes: hosts, then switches. Host `h` is at switch `h / hosts_per_switch`. Links:
    /// those of the hosts, then one from each switch to the next.
    ///
    /// # Errors
    /// Fails if there are fewer than 3 switches, no hosts or too many nodes, or if a link is invalid.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let count = [self.hosts_per_switch, self.hosts.bundle, self.around.bundle];
        if self.switches < 3 || count.contains(&0) {
            return Err(TopologyError::Shape(
                "a ring has at least 3 switches and a host at each: raise the count that is less",
            ));
        }
        let hosts = u64::from(self.switches) * u64::from(self.hosts_per_switch);
        let switches = u64::from(self.switches);
        limit("nodes", hosts.saturating_add(switches), NODES_MAX)?;
        let [below, around] = [self.hosts, self.around].map(|level| u64::from(level.bundle));
        limit("links", hosts * below + switches * around, LINKS_MAX)?;
        let hosts = hosts as u32;
        let mut topology = Topology { nodes: vec![NodeKind::Host; hosts as usize], ..Topology::default() };
        topology.nodes.resize((hosts + self.switches) as usize, NodeKind::Switch);
        topology.places = vec![None; hosts as usize];
        let place = |number| Place { tier: Tier::Tor, pod: 0, position: number, number };
        topology.places.extend((0..self.switches).map(|number| Some(place(number))));
        for host in 0..hosts {
            topology.join(host, hosts + host / self.hosts_per_switch, self.hosts);
        }
        for switch in 0..self.switches {
            topology.join(hosts + switch, hosts + (switch + 1) % self.switches, self.around);
        }
        topology.check()?;
        Ok(topology)
    }
}
