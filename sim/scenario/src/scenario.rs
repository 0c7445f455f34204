//! One scenario: everything that decides a run. The engine reads it, and nothing else.
//!
//! The same scenario gives the same run. Every format is translated into this, so a file and what it is
//! converted to run alike.

mod given_path;
mod network;
mod switch;
mod transport;

use remora_fabric::topology::{Topology, TopologyError};
use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::units::Time;
use crate::workload::{Workload, WorkloadError, generate};

pub use given_path::GivenPath;
pub use network::{LevelText, LinkText, Network};
pub use switch::{Balance, Buffering, Counted, Ecn, Hash, Mark, Mmu, Pfc, Red, Switch};
pub use transport::{Control, ControlName, Transport, TransportName};

/// What runs on which network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// Decides everything random. At most 2^63 - 1, as TOML's numbers are.
    #[serde(default)]
    pub seed: u64,
    /// When the run ends, at the latest; without it, when every flow has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Bytes of a flow in a full packet.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Whether packets carry the bytes of flows.
    #[serde(default)]
    pub payload: Payload,
    /// What a frame costs on a link.
    #[serde(default)]
    pub charging: Charging,
    /// Nodes and links.
    pub network: Network,
    /// Probability that a link loses a packet, for links that have none of their own.
    #[serde(default)]
    pub loss: f64,
    /// How switches hold, pause, mark and forward.
    #[serde(default)]
    pub switch: Switch,
    /// How hosts send.
    #[serde(default)]
    pub host: Host,
    /// What recovers from loss.
    #[serde(default)]
    pub transport: Transport,
    /// What sets the rates.
    #[serde(default)]
    pub control: Control,
    /// The flows, or what makes them.
    #[serde(default, rename = "workload", skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// Links that fail.
    #[serde(default, rename = "failure", skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// What is written, and how.
    #[serde(default)]
    pub output: Output,
}

fn default_mtu() -> u32 {
    1000
}

/// Whether packets carry the bytes of flows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Headers are real and bytes are not kept.
    #[default]
    Blank,
    /// Real bytes, with an ICRC.
    Whole,
}

/// What a frame costs on a link.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Charging {
    /// The frame with FCS, preamble and gap.
    #[default]
    Ethernet,
    /// Payload and 48 bytes of headers, in whole ns, cut: HPCC's and ConWeave's.
    Ns3,
    /// Payload and 64 bytes of headers, in ps.
    Htsim,
    /// The bytes from the BTH on cost nothing but the payload: the paper's IRN has no headers of its own.
    Ideal,
}

/// How hosts send.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Class of ACKs and CNPs; without it, the class of the flow that they answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_class: Option<u8>,
    /// Whether each flow has a queue pair of its own.
    #[serde(default)]
    pub queue_pairs: QueuePairs,
    /// Time that a frame spends in the NIC before it leaves.
    #[serde(default)]
    pub latency: Time,
}

/// Which queue pair a flow has.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePairs {
    /// A new one.
    #[default]
    Fresh,
    /// The one of its pair of hosts, which stays.
    Kept,
}

/// A link that fails.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Failure {
    /// The nodes that it joins.
    pub ends: [u32; 2],
    /// Which of the parallel links between them, from 0.
    #[serde(default)]
    pub nth: u32,
    /// When it fails.
    pub at: Time,
    /// When it works again; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

impl Failure {
    /// The link, an index of the topology's links. `None`: there is no such link.
    pub fn link(&self, topology: &Topology) -> Option<u32> {
        let [a, b] = self.ends;
        let joins =
            |link: &remora_fabric::topology::Link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a);
        let mut links = (0..).zip(&topology.links).filter(|(_, link)| joins(link));
        links.nth(self.nth as usize).map(|(number, _)| number)
    }
}

/// What is written, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Output {
    /// Whose formats the outputs have.
    #[serde(default)]
    pub format: OutputFormat,
    /// Nodes whose packets are traced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<u32>,
    /// From when and until when the lengths of queues are sampled; without it, they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<[Time; 2]>,
    /// How often switches and hosts are sampled; without it, they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Time>,
}

/// Whose formats the outputs have.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// CSV and JSON lines of our own.
    #[default]
    Own,
    /// HPCC's.
    Hpcc,
    /// ConWeave's.
    Conweave,
    /// htsim's line for each flow.
    Htsim,
}

impl Scenario {
    /// A scenario on this network with all else as it is by default, and without flows.
    pub fn on(network: Network) -> Scenario {
        Scenario {
            seed: 0,
            until: None,
            mtu: default_mtu(),
            payload: Payload::default(),
            charging: Charging::default(),
            network,
            loss: 0.0,
            switch: Switch::default(),
            host: Host::default(),
            transport: Transport::default(),
            control: Control::default(),
            workloads: Vec::new(),
            failures: Vec::new(),
            output: Output::default(),
        }
    }

    /// The network, with the scenario's loss on links that have none of their own.
    ///
    /// # Errors
    /// Its parameters give no network, or it stands in a file that was not supplied.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let mut topology = self.network.topology()?;
        for link in topology.links.iter_mut().filter(|link| link.loss == 0.0) {
            link.loss = self.loss;
        }
        topology.check()?;
        Ok(topology)
    }

    /// All flows, by ascending start: those of one start in the order of the workloads. Flows that wait for
    /// others come last.
    ///
    /// # Errors
    /// A workload that does not fit the network, more flows than the limit, or a file that was not supplied.
    pub fn flows(&self, topology: &Topology) -> Result<Vec<Flow>, WorkloadError> {
        generate(&self.workloads, topology, self.seed)
    }

    /// Are all numbers within their bounds, and do all nodes exist?
    ///
    /// # Errors
    /// What is wrong and the remedy, in one line.
    pub fn check(&self) -> Result<(), String> {
        let unit = |share: f64| (0.0..=1.0).contains(&share);
        if i64::try_from(self.seed).is_err() {
            return Err(format!("the seed is {}: choose at most {}", self.seed, i64::MAX));
        }
        if !(1..=9000).contains(&self.mtu) {
            return Err(format!("the MTU is {}: choose 1 to 9000 bytes", self.mtu));
        }
        if !unit(self.loss) {
            return Err(format!("the loss is {}: choose a probability from 0 to 1", self.loss));
        }
        if self.host.ack_class.is_some_and(|class| class > 7) {
            return Err("the class of ACKs is above 7: choose 0 to 7".into());
        }
        self.switch.check()?;
        self.control.check()?;
        for workload in &self.workloads {
            workload.check()?;
        }
        Ok(())
    }
}
