//! The network of a scenario: parameters of a generator, a list of links, or a file.

use std::fmt;
use std::str::FromStr;

use remora_fabric::topology::{
    Dumbbell, Level, Link, NODES_MAX, NodeKind, Ring, Topology, TopologyError, Tree,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{Rate, Time};

/// Nodes and links of the network. In a file, `kind` selects the variant. Hosts have the lowest node numbers
/// in all generated networks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Network {
    /// A fat-tree: three tiers of switches with `k` ports and, without oversubscription, `k³/4` hosts.
    FatTree {
        /// Number of ports of a switch; even and at least 2.
        k: u32,
        /// Ratio of downlinks to uplinks of a ToR switch: each has `k/2` times this many hosts. Default: 1.
        #[serde(default = "one")]
        oversubscription: u32,
        /// Rate of every link.
        rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// Two tiers: every leaf switch has a link to every spine switch.
    LeafSpine {
        /// Number of leaf switches.
        leaves: u32,
        /// Number of spine switches.
        spines: u32,
        /// Number of hosts at each leaf switch.
        hosts_per_leaf: u32,
        /// Rate of the links between hosts and leaves.
        rate: Rate,
        /// Rate of the links between leaves and spines.
        uplink_rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// A tree of any other shape, such as those of htsim's topology files.
    Tree {
        /// Number of pods; 1 in a tree of two tiers.
        pods: u32,
        /// Number of ToR switches in each pod.
        tors_per_pod: u32,
        /// Number of hosts at each ToR switch.
        hosts_per_tor: u32,
        /// Number of aggregation switches in each pod; the spine switches in a tree of two tiers.
        aggs_per_pod: u32,
        /// Number of core switches above each aggregation switch. Default: 0, a tree of two tiers.
        #[serde(default)]
        cores_per_agg: u32,
        /// Links below the ToR, aggregation and core switches, in this order.
        below: [LevelText; 3],
    },
    /// Two switches, each with hosts, and a bottleneck link between them.
    Dumbbell {
        /// Number of hosts at the first switch.
        left: u32,
        /// Number of hosts at the second switch.
        right: u32,
        /// Rate of the links of hosts.
        rate: Rate,
        /// Rate of the link between the switches.
        middle_rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// Switches in a ring, each with hosts.
    Ring {
        /// Number of switches; at least 3.
        switches: u32,
        /// Number of hosts at each switch.
        hosts_per_switch: u32,
        /// Rate of every link.
        rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// An arbitrary network, link by link.
    Links {
        /// Number of nodes.
        nodes: u32,
        /// Node numbers of the switches; all other nodes are hosts.
        switches: Vec<u32>,
        /// The links. The ports of a node are numbered in the order of this list.
        links: Vec<LinkText>,
    },
    /// A topology file of HPCC, ConWeave or htsim. The caller of this crate supplies its contents.
    File {
        /// Path of the file, relative to the scenario file.
        path: String,
    },
}

fn one() -> u32 {
    1
}

/// The attributes of all links between two tiers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelText {
    /// Rate of a link.
    pub rate: Rate,
    /// Delay of a link.
    pub delay: Time,
    /// Number of parallel links between two nodes. Default: 1.
    #[serde(default = "one")]
    pub bundle: u32,
}

impl LevelText {
    fn level(self) -> Level {
        Level { bundle: self.bundle, ..Level::new(self.rate.0, self.delay.0) }
    }
}

impl From<Level> for LevelText {
    fn from(level: Level) -> LevelText {
        LevelText { rate: Rate(level.rate), delay: Time(level.delay), bundle: level.bundle }
    }
}

impl From<Tree> for Network {
    fn from(tree: Tree) -> Network {
        let Tree { pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg, below } = tree;
        let below = below.map(LevelText::from);
        Network::Tree { pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg, below }
    }
}

impl From<&Topology> for Network {
    /// Lists the links one by one. The tiers and pods of the switches are lost.
    fn from(topology: &Topology) -> Network {
        Network::Links {
            nodes: topology.nodes.len() as u32,
            switches: topology.switches().collect(),
            links: topology.links.iter().copied().map(LinkText).collect(),
        }
    }
}

impl Network {
    /// Returns the topology that the parameters describe.
    ///
    /// # Errors
    /// Fails if the parameters do not describe a network or exceed the limits, or if the network is in a
    /// file.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let level = |rate: Rate, delay: Time| Level::new(rate.0, delay.0);
        match *self {
            Network::FatTree { k, oversubscription, rate, delay } => {
                Tree::fat(k, oversubscription, level(rate, delay))?.topology()
            }
            Network::LeafSpine { leaves, spines, hosts_per_leaf, rate, uplink_rate, delay } => {
                let hosts = level(rate, delay);
                let up = level(uplink_rate, delay);
                Tree::leaf_spine(leaves, spines, hosts_per_leaf, hosts, up).topology()
            }
            Network::Tree { pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg, below } => {
                let below = below.map(LevelText::level);
                Tree { pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg, below }.topology()
            }
            Network::Dumbbell { left, right, rate, middle_rate, delay } => {
                let hosts = level(rate, delay);
                let middle = level(middle_rate, delay);
                Dumbbell { left, right, hosts, middle }.topology()
            }
            Network::Ring { switches, hosts_per_switch, rate, delay } => {
                let link = level(rate, delay);
                Ring { switches, hosts_per_switch, hosts: link, around: link }.topology()
            }
            Network::Links { nodes, ref switches, ref links } => listed(nodes, switches, links),
            Network::File { .. } => {
                Err(TopologyError::Shape("the network is in a file: supply its text first"))
            }
        }
    }
}

fn listed(nodes: u32, switches: &[u32], links: &[LinkText]) -> Result<Topology, TopologyError> {
    if u64::from(nodes) > NODES_MAX {
        return Err(TopologyError::TooMany { what: "nodes", asked: nodes.into(), limit: NODES_MAX });
    }
    let mut topology = Topology { nodes: vec![NodeKind::Host; nodes as usize], ..Topology::default() };
    for switch in switches {
        match topology.nodes.get_mut(*switch as usize) {
            Some(kind) => *kind = NodeKind::Switch,
            None => {
                return Err(TopologyError::Shape(
                    "a switch has a number that no node has: raise the count of nodes",
                ));
            }
        }
    }
    topology.links = links.iter().map(|link| link.0).collect();
    topology.check()?;
    Ok(topology)
}

/// A link, written `"0 128 100Gbps 1us"`: both nodes, rate, delay, and optionally the probability of loss.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LinkText(pub Link);

impl fmt::Display for LinkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { a, b, rate, delay, loss } = self.0;
        write!(f, "{a} {b} {} {}", Rate(rate), Time(delay))?;
        if loss == 0.0 { Ok(()) } else { write!(f, " {loss}") }
    }
}

impl FromStr for LinkText {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkText, String> {
        let wrong = || {
            let text = crate::error::excerpt(text);
            format!("`{text}` is not a link: write one like \"0 128 100Gbps 1us\", with a loss behind if any")
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (ends, rest) = words.split_at_checked(2).ok_or_else(wrong)?;
        let number = |word: &str| word.parse::<u32>().map_err(|_| wrong());
        let [a, b] = [number(ends[0])?, number(ends[1])?];
        let (rate, delay, loss) = match rest {
            [rate, delay] => (rate, delay, "0"),
            [rate, delay, loss] => (rate, delay, *loss),
            _ => return Err(wrong()),
        };
        let [Ok(rate), Ok(delay)] =
            [rate.parse::<Rate>().map(|rate| rate.0), delay.parse::<Time>().map(|time| time.0)]
        else {
            return Err(wrong());
        };
        let loss = loss.parse::<f64>().ok().filter(|loss| (0.0..=1.0).contains(loss)).ok_or_else(wrong)?;
        Ok(LinkText(Link { a, b, rate, delay, loss: loss + 0.0 }))
    }
}

impl Serialize for LinkText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LinkText, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
