//! The events of a recording.

use remora_memory::TableChange;
use remora_nic::{AsyncEvent, Command, CommandError, PartNumber, Reply};
use remora_port::{Class, Endpoint, IpFields, Origin, Peer, Start};
use remora_transport::{Counters, Instant};
use remora_wire::Qpn;
use serde::{Deserialize, Serialize};
use std::fmt;

use super::abridged::{Abridged, ReceivedFrame};
use crate::port_kind::PortKind;

/// The first part of a recording, which describes the NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of Remora that made the recording.
    pub version: String,
    /// Kind of the NIC's port.
    pub port: PortKind,
    /// Address and UDP port of the NIC.
    pub endpoint: Endpoint,
    /// Configuration of the NIC.
    pub nic: remora_nic::Config,
    /// Limits of the table of regions.
    pub memory: Limits,
}

/// The limits of a table of regions that decide which key belongs to which place.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum number of regions.
    pub regions: u64,
    /// Maximum number of windows.
    pub windows: u64,
    /// Maximum number of ranges of all regions together.
    pub ranges: u64,
}

/// A port's answers about a peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// First header of frames to the peer.
    pub start: Start,
    /// True if frames to the peer have an ICRC.
    pub seals: bool,
}

/// An event of a recording. Rings are numbered in the order in which they were handed to the NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The table of regions changed.
    Table(TableChange),
    /// The memory of a queue was handed to the NIC.
    Handed {
        /// Number that the NIC gave it.
        number: PartNumber,
        /// Number of slots.
        slots: u32,
    },
    /// A command was executed.
    Command {
        /// Time of the call.
        now: Instant,
        /// The command.
        command: Command,
        /// The reply, or the refusal.
        reply: Result<Reply, CommandError>,
    },
    /// The program posted work requests.
    Posted {
        /// Number of the ring.
        ring: u32,
        /// Producer index.
        produced: u64,
        /// Index of the first slot of `slots`.
        first: u64,
        /// Bytes of the new slots.
        slots: Vec<u8>,
    },
    /// The program polled completions.
    Polled {
        /// Number of the ring.
        ring: u32,
        /// Consumer index.
        consumed: u64,
    },
    /// A doorbell was rung.
    Doorbell {
        /// The queue pair.
        qp: Qpn,
    },
    /// The NIC received a frame.
    Received {
        /// Time of the call.
        now: Instant,
        /// The frame.
        frame: ReceivedFrame,
    },
    /// The NIC ran its timers.
    Expired {
        /// Time of the call.
        now: Instant,
        /// Time before which all frames had been received.
        drained: Instant,
        /// Maximum number of queue pairs.
        budget: u32,
    },
    /// The NIC began to transmit; the following events up to [`Event::Transmitted`] are part of the call.
    Transmit {
        /// Time of the call.
        now: Instant,
        /// Number of frames that the call should send at most.
        budget: u32,
    },
    /// The port's answers about a peer, which hold until the next event of this kind about the peer.
    Peer {
        /// The peer.
        peer: Peer,
        /// The answers.
        facts: PeerFacts,
    },
    /// The port named the peer through which a datagram leaves.
    Nearest {
        /// Peer of the address handle.
        peer: Peer,
        /// Queue pair that the datagram is for.
        qp: Qpn,
        /// The port's answer.
        answer: Peer,
    },
    /// The port named the peer of an endpoint.
    PeerOf {
        /// The endpoint.
        endpoint: Endpoint,
        /// Path on which a frame of the endpoint arrived.
        origin: Option<Origin>,
        /// The port's answer.
        answer: Option<Peer>,
    },
    /// The NIC asked for the buffer of a frame.
    Lent {
        /// Destination.
        peer: Peer,
        /// Traffic class.
        class: Class,
        /// Length of the frame in bytes.
        len: u32,
        /// False if the port had no buffer.
        granted: bool,
    },
    /// The NIC sent the frame of the last buffer.
    Sent {
        /// The frame without its payload.
        frame: Abridged,
        /// Fields of the IP header.
        fields: IpFields,
    },
    /// The NIC flushed the port.
    Flushed,
    /// The NIC ended a call of transmit.
    Transmitted {
        /// Result of the call.
        count: u64,
    },
    /// The NIC wrote completions.
    Completions {
        /// Number of the completion queue.
        cq: u32,
        /// Index of the first completion.
        first: u64,
        /// Bytes of the completions.
        slots: Vec<u8>,
    },
    /// The NIC asked to wake the program of a completion queue.
    Woken {
        /// Number of the completion queue.
        cq: u32,
    },
    /// The NIC raised an asynchronous event.
    Raised(AsyncEvent),
    /// The counters of the NIC after the events before.
    Counters(Box<Counters>),
    /// The end of the recording.
    End(End),
}

/// The reason why a recording ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The NIC was closed.
    Closed,
    /// The file has reached its limit in bytes.
    Limit(u64),
    /// The program began to use a feature that is not recorded.
    Feature(Feature),
}

/// A feature that is not recorded, because what the NIC does depends on the contents of memory, or because
/// its commands hold secrets.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feature {
    /// 1RMA, whose commands and regions hold keys.
    Rma,
    /// PRISM.
    Prism,
    /// Kernels of StRoM.
    Strom,
    /// Chains of RedN: managed queues, loopback queue pairs, and queues that are registered as memory.
    Chains,
    /// A region of all addresses of the process.
    ImplicitRegion,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => f.write_str("the NIC was closed"),
            End::Limit(bytes) => write!(f, "the file has reached its limit of {bytes} bytes"),
            End::Feature(feature) => write!(f, "the program began to use {feature}"),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Rma => "1RMA, whose keys are not recorded",
            Feature::Prism => "PRISM, which is not recorded",
            Feature::Strom => "kernels of StRoM, which are not recorded",
            Feature::Chains => "chains, which are not recorded",
            Feature::ImplicitRegion => "a region of all addresses, which is not recorded",
        })
    }
}

impl Event {
    /// Returns the name of the kind of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Table(_) => "change of the regions",
            Event::Handed { .. } => "memory of a queue",
            Event::Command { .. } => "command",
            Event::Posted { .. } => "work requests",
            Event::Polled { .. } => "polled completions",
            Event::Doorbell { .. } => "doorbell",
            Event::Received { .. } => "received frame",
            Event::Expired { .. } => "timers",
            Event::Transmit { .. } => "begin of transmission",
            Event::Peer { .. } | Event::Nearest { .. } | Event::PeerOf { .. } => "question to the port",
            Event::Lent { .. } => "buffer for a frame",
            Event::Sent { .. } => "sent frame",
            Event::Flushed => "flush",
            Event::Transmitted { .. } => "end of transmission",
            Event::Completions { .. } => "completion",
            Event::Woken { .. } => "wake-up",
            Event::Raised(_) => "asynchronous event",
            Event::Counters(_) => "counters",
            Event::End(_) => "end",
        }
    }
}
