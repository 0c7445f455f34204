//! Workloads: the traffic of a scenario, and the flows that are generated from it.
//!
//! Random numbers come from separate streams, each seeded by a hash of the seed, the number of the workload,
//! the purpose and the host. So the flows of a host depend neither on the order of the hosts nor on other
//! workloads.

pub mod distribution;
mod error;
mod pattern;
mod poisson;
mod repeat;
mod ring;
mod sizes;
mod stream;
mod tables;
mod text;

use std::sync::Arc;

use remora_fabric::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::error::FLOWS_MAX;
use crate::flow::{After, DATA_CLASS, Flow, Start, Verb};
use crate::units::{Size, Time};

pub use error::WorkloadError;
pub use repeat::Repeat;
pub use sizes::{NamedSizes, Sizes};
pub use text::FlowText;

/// A workload: flows with a common pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// Pattern of the traffic.
    pub traffic: Traffic,
    /// RDMA operation of generated flows; listed flows have their own. Default: `"write"`.
    #[serde(default)]
    pub verb: Verb,
    /// Traffic class of generated flows, 0 to 7; listed flows have their own. Default: 3.
    #[serde(default = "default_class")]
    pub class: u8,
    /// Start of the workload, which is added to the start time of each flow. Default: 0.
    #[serde(default)]
    pub start: Time,
    /// Node numbers of the hosts that take part in a generated pattern. Default: all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<u32>>,
}

fn default_class() -> u8 {
    DATA_CLASS
}

/// The pattern of a workload's traffic. In a file, `kind` selects the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// Each host starts flows to random other hosts, with exponentially distributed gaps.
    Poisson {
        /// Distribution of the flow sizes.
        sizes: Sizes,
        /// Mean load that the flows of a host put on its links, as a share of their rate; above 0 and at most
        /// 10.
        load: f64,
        /// Length of the interval in which flows start.
        duration: Time,
    },
    /// Several hosts send to one host at once.
    Incast {
        /// Number of senders.
        senders: u32,
        /// Size of each flow.
        size: Size,
        /// Node number of the receiver. Default: a random host, drawn again for each incast.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u32>,
        /// Repeats the incast at random times with new senders. By default it happens once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeat: Option<Repeat>,
    },
    /// Each host sends to one random other host and receives from one.
    Permutation {
        /// Size of each flow.
        size: Size,
    },
    /// Each host sends to every other host.
    AllToAll {
        /// Size of each flow.
        size: Size,
    },
    /// A ring all-reduce of n hosts: 2 (n - 1) rounds, in which each flow starts after the flow that it
    /// depends on.
    RingAllReduce {
        /// Size of the buffer of each host.
        size: Size,
    },
    /// A list of flows.
    Flows {
        /// Flows of the workload.
        flows: Vec<FlowText>,
    },
    /// A flow file of HPCC, ConWeave or htsim. The caller of this crate supplies its contents.
    File {
        /// Path of the file, relative to the scenario file.
        path: String,
    },
}

impl Workload {
    /// Returns a workload of WRITEs with this pattern, by all hosts and from time 0.
    pub fn of(traffic: Traffic) -> Workload {
        Workload { traffic, verb: Verb::Write, class: DATA_CLASS, start: Time(0), hosts: None }
    }

    /// Returns a workload that consists of these flows.
    pub fn listed(flows: Vec<Flow>) -> Workload {
        Workload::of(Traffic::Flows { flows: flows.into_iter().map(FlowText).collect() })
    }

    /// Checks that all numbers are in range.
    ///
    /// # Errors
    /// The message is one line that says what is wrong and how to correct it.
    pub fn check(&self) -> Result<(), String> {
        if self.class > 7 {
            return Err(format!("the class of a workload is {}: choose 0 to 7", self.class));
        }
        let (load, size) = match &self.traffic {
            Traffic::Poisson { load, .. } => (Some(*load), Size(1)),
            Traffic::Incast { size, repeat, .. } => (repeat.map(|repeat| repeat.load), *size),
            Traffic::Permutation { size } | Traffic::AllToAll { size } => (None, *size),
            Traffic::RingAllReduce { size } => (None, *size),
            Traffic::Flows { .. } | Traffic::File { .. } => (None, Size(1)),
        };
        if size.0 == 0 {
            return Err("the size of a workload's flows is 0: choose at least 1 byte".into());
        }
        match load {
            Some(load) if !(load > 0.0 && load <= 10.0) => {
                Err(format!("the load is {load}: choose a share above 0, such as 0.7"))
            }
            _ => Ok(()),
        }
    }

    fn flows(&self, topology: &Topology, hosts: &[u32], seed: u64) -> Result<Vec<Flow>, WorkloadError> {
        let start = self.start.0;
        let mut flows = match &self.traffic {
            Traffic::Poisson { sizes, load, duration } => {
                poisson::flows(topology, hosts, seed, sizes, *load, duration.0)?
            }
            Traffic::Incast { senders, size, to: destination, repeat } => {
                let incast = pattern::Incast { senders: *senders, size: size.0, to: *destination };
                match repeat {
                    None => incast.once(hosts, seed)?,
                    Some(repeat) => incast.repeated(topology, hosts, seed, *repeat)?,
                }
            }
            Traffic::Permutation { size } => pattern::permutation(hosts, seed, size.0),
            Traffic::AllToAll { size } => pattern::all_to_all(hosts, size.0)?,
            Traffic::RingAllReduce { size } => ring::all_reduce(hosts, size.0)?,
            Traffic::Flows { flows } => flows.iter().map(|flow| flow.0.clone()).collect(),
            Traffic::File { path } => return Err(WorkloadError::File { path: path.clone() }),
        };
        let is_listed = matches!(self.traffic, Traffic::Flows { .. });
        for flow in &mut flows {
            if let Start::At(time) = &mut flow.start {
                *time = time.saturating_add(start);
            }
            if !is_listed {
                (flow.verb, flow.class) = (self.verb, self.class);
            }
        }
        Ok(flows)
    }
}

/// Generates the flows of all workloads, in ascending order of their start. The first workload keeps its flow
/// ids. Those of each further workload are raised above all earlier ones.
///
/// # Errors
/// Fails if a workload does not fit the network, if there are more than [`FLOWS_MAX`] flows, or if a workload
/// is in a file whose contents were not supplied.
pub fn generate(workloads: &[Workload], topology: &Topology, seed: u64) -> Result<Vec<Flow>, WorkloadError> {
    let all: Vec<u32> = topology.hosts().collect();
    let mut flows: Vec<Flow> = Vec::new();
    let mut base = 0u64;
    for (number, workload) in (0..).zip(workloads) {
        workload.check().map_err(WorkloadError::Numbers)?;
        let hosts = workload.hosts.as_ref().unwrap_or(&all);
        if let Some(host) = hosts.iter().find(|host| !topology.is_host(**host)) {
            return Err(WorkloadError::UnknownHost { host: *host });
        }
        let mut made = workload.flows(topology, hosts, stream::of_workload(seed, number))?;
        if flows.len() + made.len() > FLOWS_MAX {
            return Err(WorkloadError::TooMany);
        }
        error::check_flows(&made, topology)?;
        let highest = made.iter().map(|flow| flow.id).max();
        if base > 0 {
            raise(&mut made, base);
        }
        base = base.saturating_add(highest.map_or(0, |id| id.saturating_add(1)));
        flows.append(&mut made);
    }
    flows.sort_by_key(|flow| match flow.start {
        Start::At(start) => start,
        Start::After(_) => u64::MAX,
    });
    Ok(flows)
}

/// Adds `base` to the ids of the flows and of their dependencies. Dependencies that several flows share stay
/// shared.
fn raise(flows: &mut [Flow], base: u64) {
    let mut last: Option<[Arc<After>; 2]> = None;
    for flow in flows {
        flow.id = flow.id.saturating_add(base);
        let Start::After(after) = &mut flow.start else { continue };
        let [_, raised] = match last.take() {
            Some(pair) if Arc::ptr_eq(&pair[0], after) => last.insert(pair),
            _ => {
                let mut raised = After::clone(after);
                raised.flows.iter_mut().for_each(|wait| wait.flow = wait.flow.saturating_add(base));
                last.insert([Arc::clone(after), Arc::new(raised)])
            }
        };
        *after = Arc::clone(raised);
    }
}

#[cfg(test)]
mod tests;
