//! Errors in workloads and their flows.

use std::collections::BTreeSet;
use std::sync::Arc;

use remora_fabric::topology::Topology;

use crate::error::FLOWS_MAX;
use crate::flow::{After, Flow, Start};

/// The reason why a workload cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// The workload names a node that is not a host of the network.
    #[error("the workload names node {host}, which is not a host of the network: name a host")]
    UnknownHost {
        /// Number of the node.
        host: u32,
    },
    /// A host sends to itself.
    #[error("host {host} sends to itself: name another host")]
    Loop {
        /// Node number of the host.
        host: u32,
    },
    /// The pattern needs more hosts than take part.
    #[error("the workload needs {needs} hosts and has {has}: lower its senders or add hosts")]
    TooFewHosts {
        /// Number of hosts that the pattern needs.
        needs: u64,
        /// Number of hosts that take part.
        has: usize,
    },
    /// Two flows have the same id.
    #[error("two flows have the id {id}: give each its own")]
    SameId {
        /// Id of both flows.
        id: u64,
    },
    /// A flow waits for a flow that does not exist, for itself, or for more flows than it names.
    #[error("flow {id} waits for flows that do not exist: name flows of its workload")]
    Dependency {
        /// Id of the waiting flow.
        id: u64,
    },
    /// There are more than [`FLOWS_MAX`] flows.
    #[error("there are more than {flows_max} flows: lower the load or the duration", flows_max = FLOWS_MAX)]
    TooMany,
    /// A number is out of range. The text says which one, and how to correct it.
    #[error("{0}")]
    Numbers(String),
    /// The flows are in a file whose contents were not supplied.
    #[error("the flows are in {path}: supply its text first")]
    File {
        /// Path of the file.
        path: String,
    },
}

/// Checks the flows of one workload: both ends are different hosts, ids are unique, and dependencies exist
/// and can be met.
pub(crate) fn check_flows(flows: &[Flow], topology: &Topology) -> Result<(), WorkloadError> {
    let mut ids: Vec<u64> = flows.iter().map(|flow| flow.id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(WorkloadError::SameId { id: pair[0] });
    }
    // A list that several flows share is checked once.
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
