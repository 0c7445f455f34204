//! Network topologies: nodes and the links between them, as plain values.
//!
//! Nodes are numbered from 0. Generators number hosts first, then switches by tier; files may mix them. The
//! ports of a node are numbered from 0 in the order of the links.

mod dumbbell;
mod ring;
mod routes;
mod tree;

use std::fmt;

pub use dumbbell::Dumbbell;
pub use ring::Ring;
pub use routes::Routes;
pub use tree::Tree;

/// Largest number of nodes.
pub const NODES_MAX: u64 = 100_000;
/// Largest number of links.
pub const LINKS_MAX: u64 = 1_000_000;
/// Largest number of ports of a node.
pub const PORTS_MAX: u64 = 32_768;
/// Highest rate of a link, in bit/s: at 8 Tbit/s a byte takes one picosecond.
pub const RATE_MAX: u64 = 8_000_000_000_000;
/// Lowest rate of a link, in bit/s.
pub const RATE_MIN: u64 = 1_000;
/// Longest delay of a link, in picoseconds: ten seconds.
pub const DELAY_MAX: u64 = 10_000_000_000_000;

/// The kind of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A NIC with programs, which sends and receives but does not forward.
    Host,
    /// A switch, which only forwards.
    Switch,
}

/// A full-duplex link.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Link {
    /// Node number of the first end.
    pub a: u32,
    /// Node number of the second end.
    pub b: u32,
    /// Rate of each direction, in bit/s.
    pub rate: u64,
    /// Propagation delay of each direction, in picoseconds.
    pub delay: u64,
    /// Probability from 0 to 1 that a packet is lost, for both directions.
    pub loss: f64,
}

impl Link {
    /// Returns the node at the other end than `near`.
    pub fn far(&self, near: u32) -> u32 {
        if self.a == near { self.b } else { self.a }
    }
}

/// The attributes of all links between two tiers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Rate of each link, in bit/s.
    pub rate: u64,
    /// Propagation delay of each link, in picoseconds.
    pub delay: u64,
    /// Number of parallel links between two nodes; at least 1.
    pub bundle: u32,
}

impl Level {
    /// Returns single links of this rate in bit/s and this delay in picoseconds.
    pub const fn new(rate: u64, delay: u64) -> Level {
        Level { rate, delay, bundle: 1 }
    }
}

/// The tiers of a tree of switches, from the hosts upwards.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Top-of-rack switches, to which the hosts are attached.
    Tor,
    /// Aggregation switches; the spine in a tree of two tiers.
    Agg,
    /// Core switches, above the pods.
    Core,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Tor => "ToR",
            Tier::Agg => "agg",
            Tier::Core => "core",
        })
    }
}

/// The position of a switch in a tree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Tier of the switch.
    pub tier: Tier,
    /// Number of the pod, from 0; 0 for core switches.
    pub pod: u32,
    /// Number within the tier of the pod, from 0.
    pub position: u32,
    /// Number within the whole tier, from 0, as in the `agg` and `core` columns of htsim's tables.
    pub number: u32,
}

/// A port of a node. Its number is its index in the list of the node's ports.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Index of the link in [`Topology::links`].
    pub link: u32,
    /// Node number of the far end.
    pub neighbour: u32,
}

/// A network topology.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Kind of each node, indexed by node number.
    pub nodes: Vec<NodeKind>,
    /// Links. Their order numbers the ports of each node.
    pub links: Vec<Link>,
    /// Position of each switch of a generated network, indexed by node number. Either empty or as long as
    /// `nodes`.
    pub places: Vec<Option<Place>>,
}

impl Topology {
    /// Returns the node numbers of the hosts, in ascending order.
    pub fn hosts(&self) -> impl Iterator<Item = u32> + '_ {
        self.of_kind(NodeKind::Host)
    }

    /// Returns the node numbers of the switches, in ascending order.
    pub fn switches(&self) -> impl Iterator<Item = u32> + '_ {
        self.of_kind(NodeKind::Switch)
    }

    fn of_kind(&self, kind: NodeKind) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.nodes).filter(move |(_, is)| **is == kind).map(|(node, _)| node)
    }

    /// Returns true if the node is a host; false if it is a switch or does not exist.
    pub fn is_host(&self, node: u32) -> bool {
        self.nodes.get(node as usize) == Some(&NodeKind::Host)
    }

    /// Returns the position of a switch, or `None` for a host or if positions are unknown.
    pub fn place(&self, node: u32) -> Option<Place> {
        self.places.get(node as usize).copied().flatten()
    }

    /// Returns the node number of a switch by its tier and its number within the tier.
    pub fn switch_at(&self, tier: Tier, number: u32) -> Option<u32> {
        let is_it =
            |place: &Option<Place>| place.is_some_and(|place| place.tier == tier && place.number == number);
        self.places.iter().position(is_it).map(|node| node as u32)
    }

    /// Returns the ports of every node, in the order of the links. Ends at nodes that do not exist are
    /// ignored.
    pub fn ports(&self) -> Vec<Vec<Port>> {
        let mut ports = vec![Vec::new(); self.nodes.len()];
        for (link, ends) in (0u32..).zip(&self.links) {
            for (near, far) in [(ends.a, ends.b), (ends.b, ends.a)] {
                if let Some(list) = ports.get_mut(near as usize) {
                    list.push(Port { link, neighbour: far });
                }
            }
        }
        ports
    }

    /// Adds the parallel links between two nodes.
    fn join(&mut self, a: u32, b: u32, level: Level) {
        let link = Link { a, b, rate: level.rate, delay: level.delay, loss: 0.0 };
        self.links.extend((0..level.bundle).map(|_| link));
    }

    /// Checks that the fabric can run this topology.
    ///
    /// # Errors
    /// Returns the first fault: exceeded limits, then invalid links in their order, then hosts without a
    /// link.
    pub fn check(&self) -> Result<(), TopologyError> {
        limit("nodes", self.nodes.len() as u64, NODES_MAX)?;
        limit("links", self.links.len() as u64, LINKS_MAX)?;
        if self.hosts().next().is_none() {
            return Err(TopologyError::NoHost);
        }
        let mut degree = vec![0u64; self.nodes.len()];
        for (number, link) in self.links.iter().enumerate() {
            self.check_link(number, link)?;
            degree[link.a as usize] += 1;
            degree[link.b as usize] += 1;
        }
        if let Some(host) = self.hosts().find(|host| degree[*host as usize] == 0) {
            return Err(TopologyError::HostWithoutLink { host });
        }
        degree.iter().try_for_each(|ports| limit("ports of one node", *ports, PORTS_MAX))
    }

    /// Checks that a link joins two different nodes that exist, and has a valid rate, delay and loss.
    ///
    /// # Errors
    /// Returns the first fault. `number` is the index of the link, for the message.
    pub fn check_link(&self, number: usize, link: &Link) -> Result<(), TopologyError> {
        let nodes = self.nodes.len();
        if let Some(node) = [link.a, link.b].into_iter().find(|node| *node as usize >= nodes) {
            return Err(TopologyError::UnknownNode { link: number, node, nodes });
        }
        if link.a == link.b {
            return Err(TopologyError::Loop { link: number, node: link.a });
        }
        if !(RATE_MIN..=RATE_MAX).contains(&link.rate) {
            return Err(TopologyError::Rate { link: number, rate: link.rate });
        }
        if link.delay > DELAY_MAX {
            return Err(TopologyError::Delay { link: number, delay: link.delay });
        }
        if !(0.0..=1.0).contains(&link.loss) {
            return Err(TopologyError::Loss { link: number, loss: link.loss });
        }
        Ok(())
    }
}

/// Fails if `asked` exceeds `limit`.
fn limit(what: &'static str, asked: u64, limit: u64) -> Result<(), TopologyError> {
    if asked > limit { Err(TopologyError::TooMany { what, asked, limit }) } else { Ok(()) }
}

/// The reason why a topology is invalid.
#[derive(Copy, Clone, Debug, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// No node is a host.
    #[error("no node is a host: list fewer nodes as switches")]
    NoHost,
    /// A host has no link.
    #[error("host {host} has no link: add one, or list it as a switch")]
    HostWithoutLink {
        /// Node number of the host.
        host: u32,
    },
    /// A host has more links than a NIC has ports.
    #[error("host {host} has {links} links, and a NIC has at most {limit} ports: join some by a switch")]
    HostLinks {
        /// Node number of the host.
        host: u32,
        /// Number of its links.
        links: usize,
        /// Number of ports of a NIC.
        limit: usize,
    },
    /// A link names a node that does not exist.
    #[error(
        "link {link} names node {node}, and there are {nodes}: raise the count of nodes or correct the link"
    )]
    UnknownNode {
        /// Index of the link.
        link: usize,
        /// Node number that does not exist.
        node: u32,
        /// Number of nodes.
        nodes: usize,
    },
    /// A link joins a node to itself.
    #[error("link {link} joins node {node} to itself: remove it or correct one end")]
    Loop {
        /// Index of the link.
        link: usize,
        /// Number of the node.
        node: u32,
    },
    /// The rate of a link is not in [`RATE_MIN`]..=[`RATE_MAX`].
    #[error(
        "link {link} has {rate} bit/s: choose a rate from {rate_min} to {rate_max}",
        rate_min = RATE_MIN,
        rate_max = RATE_MAX
    )]
    Rate {
        /// Index of the link.
        link: usize,
        /// Rate of the link, in bit/s.
        rate: u64,
    },
    /// The delay of a link is above [`DELAY_MAX`].
    #[error("link {link} has a delay of {delay} ps: choose at most {delay_max}", delay_max = DELAY_MAX)]
    Delay {
        /// Index of the link.
        link: usize,
        /// Delay of the link, in picoseconds.
        delay: u64,
    },
    /// The loss of a link is not a probability.
    #[error("link {link} loses packets with probability {loss}: choose one from 0 to 1")]
    Loss {
        /// Index of the link.
        link: usize,
        /// Loss of the link.
        loss: f64,
    },
    /// A limit is exceeded.
    #[error("{asked} {what}, and the limit is {limit}: make the network smaller")]
    TooMany {
        /// Name of what is limited: nodes, links, ports of a node or entries of the routes.
        what: &'static str,
        /// Number that was requested.
        asked: u64,
        /// Largest possible number.
        limit: u64,
    },
    /// The parameters of a generator do not describe a network. The text states the violated rule.
    #[error("{0}")]
    Shape(&'static str),
}

#[cfg(test)]
mod tests;
