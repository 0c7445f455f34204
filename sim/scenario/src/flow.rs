//! A flow: one message of a host to another, and when it starts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How the bytes move.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// The source writes into the destination's memory.
    #[default]
    Write,
    /// The destination reads from the source's memory: the bytes go from `src` to `dst` all the same.
    Read,
    /// The source sends, and the destination has a receive posted.
    Send,
}

/// Which end of a flow another one waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The sender has the last ACK.
    Acknowledged,
    /// The receiver has the last byte.
    Received,
}

/// What a flow waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// Ids of flows, and which end of each counts.
    pub flows: Vec<Dependency>,
    /// How many of them must have ended; at least 1.
    pub count: u32,
    /// Then it waits so long, in picoseconds.
    pub delay: u64,
}

/// One end of one flow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Id of the flow.
    pub flow: u64,
    /// Which end of it.
    pub end: End,
}

/// When a flow starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time, in picoseconds from the start of the simulation.
    At(u64),
    /// When other flows have ended. Flows behind one barrier share what they wait for.
    After(Arc<After>),
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its number, which no other flow of the scenario has.
    pub id: u64,
    /// The host that has the bytes.
    pub src: u32,
    /// The host that gets them: another one.
    pub dst: u32,
    /// Bytes; at least 1.
    pub size: u64,
    /// When it starts.
    pub start: Start,
    /// Its class for PFC, from 0 to 7.
    pub class: u8,
    /// How the bytes move.
    pub verb: Verb,
    /// Ports of the flow as the peers' outputs and hashes have them: source, then destination; 0: none.
    pub ports: [u16; 2],
}

/// The class of data where a format has none: ns-3's files use it.
pub const DATA_CLASS: u8 = 3;

impl Flow {
    /// A WRITE at a time, in the class of data and without ports.
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
