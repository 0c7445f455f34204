//! Flows that are made, and what they are made from.
//!
//! Everything random comes from streams by hash of the seed, the workload's number, a purpose and a host. So
//! neither the order of hosts nor another workload changes what a host sends.

pub mod distribution;
mod error;
mod pattern;
mod poisson;
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
pub use sizes::{NamedSizes, Sizes};
pub use text::FlowText;

/// Flows that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// Who sends what to whom.
    pub traffic: Traffic,
    /// How the bytes move.
    #[serde(default)]
    pub verb: Verb,
    /// Class of the flows, from 0 to 7.
    #[serde(default = "default_class")]
    pub class: u8,
    /// When they begin. Listed flows have times of their own, to which it is added.
    #[serde(default)]
    pub start: Time,
    /// The hosts that take part; without them, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<u32>>,
}

fn default_class() -> u8 {
    DATA_CLASS
}

/// Who sends what to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// Each host sends flows at random times to random others.
    Poisson {
        /// Sizes of the flows.
        sizes: Sizes,
        /// Share of each host's link that its flows fill, on average.
        load: f64,
        /// For how long flows start.
        duration: Time,
    },
    /// Several hosts send to one at once.
    Incast {
        /// How many send.
        senders: u32,
        /// Bytes of each.
        size: Size,
        /// The receiver; without it, a random one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u32>,
        /// Again and again at random times, with new senders; without it, once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeat: Option<Repeat>,
    },
    /// Each host sends to one other and receives from one other.
    Permutation {
        /// Bytes of each flow.
        size: Size,
    },
    /// Each host sends to every other.
    AllToAll {
        /// Bytes of each flow.
        size: Size,
    },
    /// The hosts sum their buffers in a ring: 2 (n - 1) rounds, each flow after the one that it needs.
    RingAllReduce {
        /// Bytes of each host's buffer.
        size: Size,
    },
    /// One by one.
    Flows {
        /// The flows.
        flows: Vec<FlowText>,
    },
    /// A file of HPCC's dialects or of htsim, whose text the caller supplies.
    File {
        /// Where it is, seen from the scenario's file.
        path: String,
    },
}

/// How often an incast repeats.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// Share of all hosts' links that the incasts fill, on average.
    pub load: f64,
    /// For how long incasts start.
    pub duration: Time,
}

impl Workload {
    /// WRITEs of this traffic by all hosts, from the start.
    pub fn of(traffic: Traffic) -> Workload {
        Workload { traffic, verb: Verb::Write, class: DATA_CLASS, start: Time(0), hosts: None }
    }

    /// These flows.
    pub fn listed(flows: Vec<Flow>) -> Workload {
        Workload::of(Traffic::Flows { flows: flows.into_iter().map(FlowText).collect() })
    }

    /// Are all numbers within their bounds?
    ///
    /// # Errors
    /// What is wrong and the remedy.
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
            Traffic::Incast { senders, size, to, repeat } => {
                let incast = pattern::Incast { senders: *senders, size: size.0, to: *to };
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
            if let Start::At(at) = &mut flow.start {
                *at = at.saturating_add(start);
            }
            if !is_listed {
                (flow.verb, flow.class) = (self.verb, self.class);
            }
        }
        Ok(flows)
    }
}

/// The flows of all workloads. Ids of the first stay; those of each further one lie above all before.
///
/// # Errors
/// A workload that does not fit the network, more flows than [`FLOWS_MAX`], or a file without its text.
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

/// Adds `base` to the ids of flows and to what they wait for. Lists that are shared stay shared.
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
