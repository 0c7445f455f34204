//! Flows: single messages between two hosts, and the conditions on which they start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The RDMA operation that moves the bytes of a flow.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// RDMA WRITE by the source.
    #[default]
    Write,
    /// RDMA READ by the destination. The bytes go from `src` to `dst` here as well.
    Read,
    /// SEND by the source; the destination has posted a receive.
    Send,
}

/// The end of a flow for which another flow waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The sender has received the last ACK.
    Acknowledged,
    /// The receiver has received the last byte.
    Received,
}

/// The condition on which a dependent flow starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// Flows that this flow waits for, with the end that counts for each.
    pub flows: Vec<Dependency>,
    /// Number of `flows` that must have ended; at least 1.
    pub count: u32,
    /// Additional delay after that, in picoseconds.
    pub delay: u64,
}

/// A flow that another flow waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Id of the flow.
    pub flow: u64,
    /// End of the flow that counts.
    pub end: End,
}

/// The time or condition on which a flow starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time, in picoseconds from the start of the simulation.
    At(u64),
    /// After the end of other flows. Flows that wait for the same barrier share the condition.
    After(Arc<After>),
}

/// A message between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Id, unique within the scenario.
    pub id: u64,
    /// Node number of the sending host.
    pub src: u32,
    /// Node number of the receiving host; not `src`.
    pub dst: u32,
    /// Size in bytes; at least 1.
    pub size: u64,
    /// Time or condition of the start.
    pub start: Start,
    /// Traffic class (PFC priority), 0 to 7.
    pub class: u8,
    /// RDMA operation that moves the bytes.
    pub verb: Verb,
    /// UDP source and destination port, as used by the hashes and output files of other simulators; 0 if the
    /// flow has none.
    pub ports: [u16; 2],
}

/// Default traffic class of flows; ns-3's files use it as well.
pub const DATA_CLASS: u8 = 3;

impl Flow {
    /// Returns a WRITE that starts at `start` ps, with class [`DATA_CLASS`] and without ports.
    pub fn write(id: u64, src: u32, dst: u32, size: u64, start: u64) -> Flow {
        Flow {
            id,
            src,
            dst,
            size,
            start: Start::At(start),
            class: DATA_CLASS,
            verb: Verb::Write,
            ports: [0, 0],
        }
    }
}
