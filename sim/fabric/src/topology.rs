//! Which nodes a network has and which links join them, as plain values.
//!
//! Nodes are numbered from 0. The generators number hosts first, then switches by tier; a file may mix them.
//! The ports of a node are numbered from 0 in the order in which the links name it.

mod dumbbell;
mod ring;
mod routes;
mod tree;

use std::fmt;

pub use dumbbell::Dumbbell;
pub use ring::Ring;
pub use routes::Routes;
pub use tree::Tree;

/// The most nodes that a topology has.
pub const NODES_MAX: u64 = 100_000;
/// The most links that a topology has.
pub const LINKS_MAX: u64 = 1_000_000;
/// The most ports that a node has.
pub const PORTS_MAX: u64 = 32_768;
/// The highest rate of a link, in bit/s: a byte takes a whole picosecond at 8 Tbit/s.
pub const RATE_MAX: u64 = 8_000_000_000_000;
/// The lowest rate of a link, in bit/s.
pub const RATE_MIN: u64 = 1_000;
/// The longest delay of a link, in picoseconds: ten seconds.
pub const DELAY_MAX: u64 = 10_000_000_000_000;

/// What a node is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A NIC with programs: it sends and receives, and forwards nothing.
    Host,
    /// It forwards, and has no programs.
    Switch,
}

/// One cable, which carries frames both ways at once.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Link {
    /// The node at one end.
    pub a: u32,
    /// The node at the other end.
    pub b: u32,
    /// Rate of each direction, in bit/s.
    pub rate: u64,
    /// Propagation delay of each direction, in picoseconds.
    pub delay: u64,
    /// Probability that a packet is lost, from 0 to 1, the same both ways.
    pub loss: f64,
}

impl Link {
    /// The node at the far end of `near`.
    pub fn far(&self, near: u32) -> u32 {
        if self.a == near { self.b } else { self.a }
    }
}

/// Links that are alike, such as those below one tier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Rate of a link, in bit/s.
    pub rate: u64,
    /// Delay of a link, in picoseconds.
    pub delay: u64,
    /// Parallel links between two nodes; at least 1.
    pub bundle: u32,
}

impl Level {
    /// Single links of this rate (bit/s) and delay (ps).
    pub const fn new(rate: u64, delay: u64) -> Level {
        Level { rate, delay, bundle: 1 }
    }
}

/// The tiers of a tree of switches, from the hosts upwards.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Top of rack: it has the hosts.
    Tor,
    /// Aggregation; the spine, where there are two tiers.
    Agg,
    /// Core, above the pods.
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

/// Where a switch stands in a tree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its tier.
    pub tier: Tier,
    /// Its pod, from 0; 0 for the core.
    pub pod: u32,
    /// Its number among those of its tier and pod, from 0.
    pub position: u32,
    /// Its number among all of its tier, from 0: htsim's agg and core columns have it.
    pub number: u32,
}

/// One end of a link, seen from its node. Its index in the node's list is the port's number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The link, an index of [`Topology::links`].
    pub link: u32,
    /// The node at the far end.
    pub neighbour: u32,
}

/// A network: nodes and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// What each node is; its index is its number.
    pub nodes: Vec<NodeKind>,
    /// All links. Their order numbers the ports of each node.
    pub links: Vec<Link>,
    /// Where each node stands, if it is a switch of a generated tree. As long as `nodes`, or empty.
    pub places: Vec<Option<Place>>,
}

impl Topology {
    /// The hosts, in ascending order.
    pub fn hosts(&self) -> impl Iterator<Item = u32> + '_ {
        self.of_kind(NodeKind::Host)
    }

    /// The switches, in ascending order.
    pub fn switches(&self) -> impl Iterator<Item = u32> + '_ {
        self.of_kind(NodeKind::Switch)
    }

    fn of_kind(&self, kind: NodeKind) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.nodes).filter(move |(_, is)| **is == kind).map(|(node, _)| node)
    }

    /// Is this node a host? False for a number that no node has.
    pub fn is_host(&self, node: u32) -> bool {
        self.nodes.get(node as usize) == Some(&NodeKind::Host)
    }

    /// Where a switch stands; `None` for a host and where the tree is not known.
    pub fn place(&self, node: u32) -> Option<Place> {
        self.places.get(node as usize).copied().flatten()
    }

    /// The switch of this tier and number among all of its tier.
    pub fn switch_at(&self, tier: Tier, number: u32) -> Option<u32> {
        let is_it = |place: &Option<Place>| place.is_some_and(|at| at.tier == tier && at.number == number);
        self.places.iter().position(is_it).map(|node| node as u32)
    }

    /// The ports of every node, in the order of the links. Links that name unknown nodes have none.
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

    /// Adds the links of one bundle.
    fn join(&mut self, a: u32, b: u32, level: Level) {
        let link = Link { a, b, rate: level.rate, delay: level.delay, loss: 0.0 };
        self.links.extend((0..level.bundle).map(|_| link));
    }

    /// Is this a network that the fabric can run?
    ///
    /// # Errors
    /// The first fault: limits, then links in their order, then hosts without a link.
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

    /// Does this link join two nodes that exist, at a rate, delay and loss that make sense?
    ///
    /// # Errors
    /// The first fault. `number` is the link's index, for the words of the error.
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

/// Refuses more of `what` than the limit.
fn limit(what: &'static str, asked: u64, limit: u64) -> Result<(), TopologyError> {
    if asked > limit { Err(TopologyError::TooMany { what, asked, limit }) } else { Ok(()) }
}

/// Why a topology cannot be run.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum TopologyError {
    /// It has no host, so nobody sends.
    NoHost,
    /// No link names this host.
    HostWithoutLink {
        /// The host.
        host: u32,
    },
    /// This host has more links than a NIC has ports.
    HostLinks {
        /// The host.
        host: u32,
        /// Links of it.
        links: usize,
        /// Ports of a NIC.
        limit: usize,
    },
    /// A link names a node that is not there.
    UnknownNode {
        /// Index of the link.
        link: usize,
        /// The node that it names.
        node: u32,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A link joins a node to itself.
    Loop {
        /// Index of the link.
        link: usize,
        /// The node.
        node: u32,
    },
    /// A rate outside of [`RATE_MIN`] to [`RATE_MAX`].
    Rate {
        /// Index of the link.
        link: usize,
        /// What it asks for, in bit/s.
        rate: u64,
    },
    /// A delay above [`DELAY_MAX`].
    Delay {
        /// Index of the link.
        link: usize,
        /// What it asks for, in picoseconds.
        delay: u64,
    },
    /// A probability that is not from 0 to 1.
    Loss {
        /// Index of the link.
        link: usize,
        /// What it asks for.
        loss: f64,
    },
    /// More of something than the fabric takes.
    TooMany {
        /// Nodes, links, ports of one node or entries of the routes.
        what: &'static str,
        /// How many were asked for.
        asked: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Parameters of a generator that give no network, with the rule that they break.
    Shape(&'static str),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TopologyError::NoHost => f.write_str("no node is a host: list fewer nodes as switches"),
            TopologyError::HostWithoutLink { host } => {
                write!(f, "host {host} has no link: add one, or list it as a switch")
            }
            TopologyError::HostLinks { host, links, limit } => write!(
                f,
                "host {host} has {links} links, and a NIC has at most {limit} ports: join some by a switch"
            ),
            TopologyError::UnknownNode { link, node, nodes } => write!(
                f,
                "link {link} names node {node}, and there are {nodes}: raise the count of nodes or correct the link"
            ),
            TopologyError::Loop { link, node } => {
                write!(f, "link {link} joins node {node} to itself: remove it or correct one end")
            }
            TopologyError::Rate { link, rate } => {
                write!(f, "link {link} has {rate} bit/s: choose a rate from {RATE_MIN} to {RATE_MAX}")
            }
            TopologyError::Delay { link, delay } => {
                write!(f, "link {link} has a delay of {delay} ps: choose at most {DELAY_MAX}")
            }
            TopologyError::Loss { link, loss } => {
                write!(f, "link {link} loses packets with probability {loss}: choose one from 0 to 1")
            }
            TopologyError::TooMany { what, asked, limit } => {
                write!(f, "{asked} {what}, and the limit is {limit}: make the network smaller")
            }
            TopologyError::Shape(rule) => f.write_str(rule),
        }
    }
}

impl std::error::Error for TopologyError {}

#[cfg(test)]
mod tests;
