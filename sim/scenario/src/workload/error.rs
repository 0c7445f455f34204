//! What is wrong with the flows of a workload.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use remora_fabric::topology::Topology;

use crate::error::FLOWS_MAX;
use crate::flow::{After, Flow, Start};

/// Why a workload makes no flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadError {
    /// It names a node that is not a host of the network.
    UnknownHost {
        /// The node.
        host: u32,
    },
    /// A host sends to itself.
    Loop {
        /// The host.
        host: u32,
    },
    /// It needs more hosts than take part.
    TooFewHosts {
        /// How many it needs.
        needs: u64,
        /// How many take part.
        has: usize,
    },
    /// Two flows have one id.
    SameId {
        /// The id.
        id: u64,
    },
    /// A flow waits for one that does not exist, or for more than it names.
    Dependency {
        /// Id of the flow that waits.
        id: u64,
    },
    /// More flows than a scenario may have.
    TooMany,
    /// A number that makes no sense, with its remedy.
    Numbers(String),
    /// Its flows stand in a file that was not supplied.
    File {
        /// Where it is.
        path: String,
    },
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadError::UnknownHost { host } => {
                write!(f, "the workload names {host}, which is no host of the network: name a host")
            }
            WorkloadError::Loop { host } => write!(f, "host {host} sends to itself: name another host"),
            WorkloadError::TooFewHosts { needs, has } => {
                write!(f, "the workload needs {needs} hosts and has {has}: lower its senders or add hosts")
            }
            WorkloadError::SameId { id } => write!(f, "two flows have the id {id}: give each its own"),
            WorkloadError::Dependency { id } => {
                write!(f, "flow {id} waits for flows that do not exist: name flows of its workload")
            }
            WorkloadError::TooMany => {
                write!(f, "there are more than {FLOWS_MAX} flows: lower the load or the duration")
            }
            WorkloadError::Numbers(says) => f.write_str(says),
            WorkloadError::File { path } => write!(f, "the flows stand in {path}: supply its text first"),
        }
    }
}

impl std::error::Error for WorkloadError {}

/// Do these flows of one workload go between hosts, with ids of their own and waits that can end?
pub fn check_flows(flows: &[Flow], topology: &Topology) -> Result<(), WorkloadError> {
    let mut ids: Vec<u64> = flows.iter().map(|flow| flow.id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(WorkloadError::SameId { id: pair[0] });
    }
    // Of flows that share a list it is looked at once.
    let mut checked: Option<(&Arc<After>, BTreeSet<u64>)> = None;
    for flow in flows {
        if let Some(host) = [flow.src, flow.dst].into_iter().find(|host| !topology.is_host(*host)) {
            return Err(WorkloadError::UnknownHost { host });
        }
        if flow.src == flow.dst {
            return Err(WorkloadError::Loop { host: flow.src });
        }
        let Start::After(after) = &flow.start else { continue };
        let wrong = WorkloadError::Dependency { id: flow.id };
        let named = match checked.take() {
            Some((list, named)) if Arc::ptr_eq(list, after) => named,
            _ => {
                let named: BTreeSet<u64> = after.flows.iter().map(|wait| wait.flow).collect();
                let enough = (1..=named.len()).contains(&(after.count as usize));
                if !enough || !named.iter().all(|id| ids.binary_search(id).is_ok()) {
                    return Err(wrong);
                }
                named
            }
        };
        if named.contains(&flow.id) {
            return Err(wrong);
        }
        checked = Some((after, named));
    }
    Ok(())
}
