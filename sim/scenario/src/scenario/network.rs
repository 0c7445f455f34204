//! The network of a scenario: a generator's parameters, links one by one, or a file.

use std::fmt;
use std::str::FromStr;

use remora_fabric::topology::{
    Dumbbell, Level, Link, NODES_MAX, NodeKind, Ring, Topology, TopologyError, Tree,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{Rate, Time};

/// Nodes and links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Network {
    /// Three tiers of switches with `k` ports.
    FatTree {
        /// Ports of a switch: even.
        k: u32,
        /// How many times `k/2` hosts a ToR has.
        #[serde(default = "one")]
        oversubscription: u32,
        /// Rate of every link.
        rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// Two tiers.
    LeafSpine {
        /// Leaf switches.
        leaves: u32,
        /// Spine switches.
        spines: u32,
        /// Hosts of each leaf.
        hosts_per_leaf: u32,
        /// Rate of a host's link.
        rate: Rate,
        /// Rate of a link between switches.
        uplink_rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// A tree of other shape: htsim's files become this.
    Tree {
        /// Pods; 1 with two tiers.
        pods: u32,
        /// ToRs of a pod.
        tors_per_pod: u32,
        /// Hosts of a ToR.
        hosts_per_tor: u32,
        /// Aggregation switches of a pod, or spines.
        aggs_per_pod: u32,
        /// Cores of each aggregation switch; 0: there are two tiers.
        #[serde(default)]
        cores_per_agg: u32,
        /// The links below the ToRs, the aggregation switches and the cores.
        below: [LevelText; 3],
    },
    /// Two switches with hosts and a link between them.
    Dumbbell {
        /// Hosts of the first.
        left: u32,
        /// Hosts of the second.
        right: u32,
        /// Rate of a host's link.
        rate: Rate,
        /// Rate of the link between the switches.
        middle_rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// Switches in a ring.
    Ring {
        /// Switches; at least 3.
        switches: u32,
        /// Hosts of each.
        hosts_per_switch: u32,
        /// Rate of every link.
        rate: Rate,
        /// Delay of every link.
        delay: Time,
    },
    /// Every link by itself.
    Links {
        /// How many nodes there are.
        nodes: u32,
        /// Which of them are switches.
        switches: Vec<u32>,
        /// The links, in the order that numbers ports.
        links: Vec<LinkText>,
    },
    /// A topology file of HPCC's dialects or of htsim, whose text the caller supplies.
    File {
        /// Where it is, seen from the scenario's file.
        path: String,
    },
}

fn one() -> u32 {
    1
}

/// Links that are alike.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelText {
    /// Rate of a link.
    pub rate: Rate,
    /// Delay of a link.
    pub delay: Time,
    /// Parallel links between two nodes.
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
    /// The links one by one. What a switch's place in a tree is, gets lost.
    fn from(topology: &Topology) -> Network {
        Network::Links {
            nodes: topology.nodes.len() as u32,
            switches: topology.switches().collect(),
            links: topology.links.iter().copied().map(LinkText).collect(),
        }
    }
}

impl Network {
    /// The network that the parameters describe.
    ///
    /// # Errors
    /// They describe none, it is over the limits, or it stands in a file.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let level = |rate: Rate, delay: Time| Level::new(rate.0, delay.0);
        match *self {
            Network::FatTree { k, oversubscription, rate, delay } => {
                Tree::fat(k, oversubscription, level(rate, delay))?.topology()
            }
            Network::LeafSpine { leaves, spines, hosts_per_leaf, rate, uplink_rate, delay } => {
                let (hosts, up) = (level(rate, delay), level(uplink_rate, delay));
                Tree::leaf_spine(leaves, spines, hosts_per_leaf, hosts, up).topology()
            }
            Network::Tree { pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg, below } => {
                let below = below.map(LevelText::level);
                Tree { pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg, below }.topology()
            }
            Network::Dumbbell { left, right, rate, middle_rate, delay } => {
                let (hosts, middle) = (level(rate, delay), level(middle_rate, delay));
                Dumbbell { left, right, hosts, middle }.topology()
            }
            Network::Ring { switches, hosts_per_switch, rate, delay } => {
                let link = level(rate, delay);
                Ring { switches, hosts_per_switch, hosts: link, around: link }.topology()
            }
            Network::Links { nodes, ref switches, ref links } => listed(nodes, switches, links),
            Network::File { .. } => {
                Err(TopologyError::Shape("the network stands in a file: supply its text first"))
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
            None => return Err(TopologyError::Shape("a switch is no node: raise the count of nodes")),
        }
    }
    topology.links = links.iter().map(|link| link.0).collect();
    topology.check()?;
    Ok(topology)
}

/// A link as text: `0 128 100Gbps 1us`, and its loss behind them if there is any.
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
