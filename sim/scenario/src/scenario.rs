//! The scenario: all settings that determine a run. The fields of these types are the keys of a scenario
//! file.
//!
//! Two runs of equal scenarios give equal results. Files of other simulators are translated into a
//! [`Scenario`] as well, so a file and its conversion to TOML give equal results.

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

/// A scenario. In a file, keys are in kebab-case, times, rates and sizes are strings with a unit (`"2us"`,
/// `"100Gbps"`, `"240KB"`), and an unknown key is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// Seed of all random numbers, at most 2⁶³ - 1. Default: 0.
    #[serde(default)]
    pub seed: u64,
    /// Simulated time at which the run ends at the latest. By default it ends when all flows have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Payload of a full packet, in bytes; 256 to 4096. Default: 1000.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Contents of data packets. Default: `"blank"`.
    #[serde(default)]
    pub payload: Payload,
    /// Sizes of frames on links and in buffers. Default: `"ethernet"`.
    #[serde(default)]
    pub charging: Charging,
    /// Nodes and links of the network. Required.
    pub network: Network,
    /// Probability from 0 to 1 that a link loses a packet, for links without a loss of their own. Default: 0.
    #[serde(default)]
    pub loss: f64,
    /// Buffers, PFC, ECN and load balancing of the switches. Default: the switches of IRN's paper.
    #[serde(default)]
    pub switch: Switch,
    /// Settings of the hosts.
    #[serde(default)]
    pub host: Host,
    /// Loss recovery. Default: IRN.
    #[serde(default)]
    pub transport: Transport,
    /// Congestion control. Default: none.
    #[serde(default)]
    pub control: Control,
    /// Traffic: `[[workload]]` tables. Default: none.
    #[serde(default, rename = "workload", skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// Link failures: `[[failure]]` tables. Default: none.
    #[serde(default, rename = "failure", skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Format and extent of the output files.
    #[serde(default)]
    pub output: Output,
}

fn default_mtu() -> u32 {
    1000
}

/// The contents of data packets.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Headers are real, data is zeros that are not stored, and the ICRC is neither computed nor checked.
    #[default]
    Blank,
    /// Headers, data and ICRC are real, and receivers check the ICRC.
    Whole,
}

/// The number of bytes that a frame occupies on a link and in a buffer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Charging {
    /// The frame with its FCS, preamble and inter-frame gap.
    #[default]
    Ethernet,
    /// Payload plus 48 bytes; 60 bytes for an ACK. Times on links are rounded down to whole nanoseconds, as
    /// in HPCC's and ConWeave's ns-3 programs.
    Ns3,
    /// Payload plus 64 bytes; 64 bytes for an ACK, as in htsim.
    Htsim,
    /// Like `ethernet`, but every data packet has the headers of a plain RoCE v2 packet: headers that a
    /// transport adds, such as IRN's, are free.
    Ideal,
}

/// The settings of the hosts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Traffic class of ACKs and CNPs, 0 to 7. Default: 3, the default class of flows. Any other class goes
    /// before all others at every port, and is neither marked nor, unless `counted = "port"`, paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_class: Option<u8>,
    /// Number of flows per queue pair. Default: `"fresh"`.
    #[serde(default)]
    pub queue_pairs: QueuePairs,
    /// Time that each frame spends in the NIC before it leaves. Default: 0.
    #[serde(default)]
    pub latency: Time,
}

/// The queue pairs that carry the flows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePairs {
    /// Each flow has a new queue pair, which is destroyed when the flow ends.
    #[default]
    Fresh,
    /// All flows between two hosts share one queue pair, one after the other, so its rate and window persist.
    Kept,
}

/// A link failure.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Failure {
    /// Node numbers of the two ends of the link.
    pub ends: [u32; 2],
    /// Index of the link among the parallel links between these nodes, from 0. Default: 0.
    #[serde(default)]
    pub nth: u32,
    /// Time at which the link goes down.
    pub at: Time,
    /// Time at which the link comes up again. By default it stays down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

impl Failure {
    /// Returns the index of the link in the topology, or `None` if no such link exists.
    pub fn link(&self, topology: &Topology) -> Option<u32> {
        let [a, b] = self.ends;
        let joins =
            |link: &remora_fabric::topology::Link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a);
        let mut links = (0..).zip(&topology.links).filter(|(_, link)| joins(link));
        links.nth(self.nth as usize).map(|(number, _)| number)
    }
}

/// The format and extent of the output files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Output {
    /// Format of the output files. Default: `"own"`.
    #[serde(default)]
    pub format: OutputFormat,
    /// Node numbers of the nodes whose packets are traced. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<u32>,
    /// Start and end of the interval in which the queue lengths of switches are sampled. By default they are
    /// not sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<[Time; 2]>,
    /// Interval between samples of uplinks and queue pairs; CNPs are then counted in steps of 100 µs. By
    /// default nothing is sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Time>,
}

/// The format of the output files.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// CSV files and lines of JSON, in Remora's own columns.
    #[default]
    Own,
    /// The output files of HPCC's ns-3 program.
    Hpcc,
    /// The output files of ConWeave's ns-3 program.
    Conweave,
    /// The line that htsim prints for each flow.
    Htsim,
}

impl Scenario {
    /// Returns a scenario on this network without flows and with default values for all other keys.
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

    /// Returns the topology of the network. Links without a loss of their own get the scenario's loss.
    ///
    /// # Errors
    /// Fails if the parameters do not describe a network, or if the network is in a file whose contents were
    /// not supplied.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let mut topology = self.network.topology()?;
        for link in topology.links.iter_mut().filter(|link| link.loss == 0.0) {
            link.loss = self.loss;
        }
        topology.check()?;
        Ok(topology)
    }

    /// Returns the flows of all workloads in ascending order of their start. Flows that start at the same
    /// time are in the order of the workloads; flows that wait for others come last.
    ///
    /// # Errors
    /// Fails if a workload does not fit the network, if there are more than [`FLOWS_MAX`](crate::FLOWS_MAX)
    /// flows, or if the contents of a file were not supplied.
    pub fn flows(&self, topology: &Topology) -> Result<Vec<Flow>, WorkloadError> {
        generate(&self.workloads, topology, self.seed)
    }

    /// Checks that all numbers are in range. The network and its links are checked by [`Scenario::topology`].
    ///
    /// # Errors
    /// The message is one line that says what is wrong and how to correct it.
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
