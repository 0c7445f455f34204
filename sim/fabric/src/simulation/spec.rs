//! What a flow is, where it ends, and how its queue pairs are made.

use remora_nic::Status;
use remora_transport::congestion::Algorithm;

use crate::engine::Picos;
use crate::network::FlowKey;

/// How data moves.
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

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Host that has the data.
    pub source: u32,
    /// Host that gets it.
    pub destination: u32,
    /// Bytes; 0 counts as 1.
    pub bytes: u64,
    /// When it starts.
    pub start: Picos,
    /// How the data moves.
    pub verb: Verb,
    /// Class of its data; that of the configuration, if not given.
    pub class: Option<u8>,
    /// UDP source port of its data; chosen by its number, if not given.
    pub source_port: Option<u16>,
    /// What switches hash of its data and of its acknowledgements, where they hash as another program does;
    /// chosen by hosts and ports, if not given.
    pub keys: Option<[FlowKey; 2]>,
    /// Whoever runs the simulation hears of it when the destination has all bytes, too. The last bytes of a
    /// WRITE then bring immediate data, as programs do it. A READ's destination hears of its end anyway.
    pub tells_received: bool,
    /// Packets in flight at most; as the NIC is configured, if not given.
    pub window: Option<u32>,
    /// The path of its data, as [`crate::network::path`] packs it; chosen by hashes, if not given.
    pub path: Option<u32>,
}

impl FlowSpec {
    /// A WRITE, with all else as the simulation is configured.
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

/// Where a flow has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EndAt {
    /// Its destination has all bytes: [`FlowSpec::tells_received`].
    Destination,
    /// The last acknowledgement is there, or the last data of a READ. Nothing of the flow follows.
    Poster,
}

/// A flow has ended at one of its hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Its number.
    pub flow: u32,
    /// Where.
    pub end: EndAt,
    /// When.
    pub at: Picos,
    /// How: all but success means that its queue pair failed.
    pub status: Status,
}

/// How queue pairs are made and connected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Payload bytes of a packet.
    pub mtu: u32,
    /// IRN, with peers that remember so many packets ahead of the order; without it the queue pairs go back
    /// N.
    pub irn: Option<u32>,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Flows between two hosts share one connection, which stays. Otherwise each has its own.
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

/// The queue pairs by which a host sends data of flows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    /// Those of flows that have started and not ended.
    pub all: u64,
    /// Of these, those with data that was never sent.
    pub unsent: u64,
}
