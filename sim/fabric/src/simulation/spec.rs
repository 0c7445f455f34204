//! Flows, their ends, and the settings of their connections.

use remora_nic::Status;
use remora_transport::congestion::Algorithm;

use crate::engine::Picos;
use crate::network::FlowKey;

/// The RDMA operation that moves the data of a flow.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// RDMA WRITE by the source.
    #[default]
    Write,
    /// RDMA READ by the destination.
    Read,
    /// SEND by the source.
    Send,
}

/// A flow: bytes that one host transfers to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Number of the sending host.
    pub source: u32,
    /// Number of the receiving host.
    pub destination: u32,
    /// Size in bytes; 0 counts as 1.
    pub bytes: u64,
    /// Start of the flow.
    pub start: Picos,
    /// RDMA operation that transfers the data.
    pub verb: Verb,
    /// Traffic class of the data. Default:
    /// [`SimulationConfig::data_class`](super::SimulationConfig::data_class).
    pub class: Option<u8>,
    /// UDP source port of the data. By default it is derived from the flow's number.
    pub source_port: Option<u16>,
    /// Keys of the data and of the acknowledgements, for networks with
    /// [`Balancing::Keyed`](crate::network::Balancing::Keyed). By default they are derived from hosts and
    /// ports.
    pub keys: Option<[FlowKey; 2]>,
    /// If true, [`Simulation::run`](super::Simulation::run) also returns when the destination has all bytes.
    /// The last bytes of a WRITE then carry immediate data. The destination of a READ learns of the end in
    /// any case.
    pub tells_received: bool,
    /// Largest number of packets in flight. Default: the window of the NIC.
    pub window: Option<u32>,
    /// Path of the data, as packed by [`crate::network::path`]. By default hashes choose the path.
    pub path: Option<u32>,
}

impl FlowSpec {
    /// Returns a WRITE with default values for everything else.
    pub fn write(source: u32, destination: u32, bytes: u64, start: Picos) -> FlowSpec {
        FlowSpec {
            source,
            destination,
            bytes,
            start,
            verb: Verb::Write,
            class: None,
            source_port: None,
            keys: None,
            tells_received: false,
            window: None,
            path: None,
        }
    }
}

/// The end at which a flow has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EndAt {
    /// The destination has all bytes. Reported only with [`FlowSpec::tells_received`].
    Destination,
    /// The poster has the last acknowledgement, or the last data of a READ. Nothing of the flow follows.
    Poster,
}

/// The end of a flow at one of its hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Number of the flow.
    pub flow: u32,
    /// End at which the flow has ended.
    pub end: EndAt,
    /// Time of the end.
    pub at: Picos,
    /// Status; every status but success means that the queue pair failed.
    pub status: Status,
}

/// The settings of connections.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Payload of a full packet, in bytes.
    pub mtu: u32,
    /// With `Some`, queue pairs use IRN with this bitmap size: the number of packets that a receiver can
    /// record ahead of a gap. With `None` they use go-back-N.
    pub irn: Option<u32>,
    /// Congestion control of the queue pairs.
    pub congestion: Algorithm,
    /// Local ACK timeout, as the 5-bit code of the InfiniBand specification.
    pub timeout: u8,
    /// Number of retries after a timeout.
    pub retry_cnt: u8,
    /// If true, flows between two hosts share a connection, which is kept. Otherwise each flow has its own.
    pub kept: bool,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            mtu: 1024,
            irn: None,
            congestion: Algorithm::None,
            timeout: 10,
            retry_cnt: 7,
            kept: false,
        }
    }
}

/// The number of queue pairs by which a host sends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    /// Queue pairs of flows that have started and not ended.
    pub all: u64,
    /// Number of these that have data left which was never sent.
    pub unsent: u64,
}
