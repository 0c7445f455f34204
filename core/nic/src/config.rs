//! The configuration of an engine and of queue pairs, and the errors of making them.

use remora_memory::Pd;
use remora_transport::congestion;
use remora_transport::rc::irn;
use remora_transport::state::Service;
use remora_wire::Qpn;
use remora_wire::frame::{Class, Endpoint};

use crate::ring::Ring;
use crate::send_queue::Fetching;
use crate::turn::TURN_PACKETS;

/// Limits of one engine, and what its port is like.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its number among the engines that share a table of memory: windows of type 2B tell queue pairs apart
    /// by it.
    pub engine: u16,
    /// Queue pairs, up to 65 536; with a QPN range up to 32 766.
    pub max_qps: u32,
    /// Its QPN range, 0 to 127: the upper seven bits of each queue pair's number, by which NICs that share an
    /// address are told apart. Behind them stand bits that change when a number is used again, and the index.
    /// `None`: all numbers are its own.
    pub qpn_range: Option<u8>,
    /// A random number, from which the numbers of queue pairs follow, so that strangers cannot guess them.
    /// `None`, the default: they are counted up, as the same simulation has them each time.
    pub qpn_seed: Option<u64>,
    /// Completion queues.
    pub max_cqs: u32,
    /// Shared receive queues, up to 65 536.
    pub max_srqs: u32,
    /// XRC domains.
    pub max_xrc_domains: u32,
    /// Address handles, up to 2^20.
    pub max_address_handles: u32,
    /// Multicast groups.
    pub max_groups: u32,
    /// Queue pairs attached to one group.
    pub max_group_members: u32,
    /// What the port is called by peers: where datagrams come to.
    pub endpoint: Endpoint,
    /// Payload bytes that the port carries in a packet: the longest datagram.
    pub mtu: u32,
    /// Asynchronous events that wait to be taken; further ones are counted and lost.
    pub max_events: u32,
    /// Arriving frames carry an ICRC that must be checked.
    pub checks_icrc: bool,
    /// Packets in flight per queue pair, 1 to 65 536. IRN has its cap besides.
    pub window: u32,
    /// Packets after which go-back-N asks for an acknowledgement, at the latest: 32; 1 for one per packet.
    pub ack_every: u32,
    /// Go-back-N's retransmission timeout in nanoseconds, in place of the attribute `timeout`, whose values
    /// double. `NEVER_NS`: none, as in a network that loses nothing. IRN's times are among its settings.
    pub rto_ns: Option<u64>,
    /// The attribute `retry_cnt` does not count: what is lost is sent again for ever. Default: no.
    pub retries_forever: bool,
    /// Packets that one queue pair sends before the next one's turn, 1 or more. A turn also ends after 16
    /// KiB.
    pub turn_packets: u32,
    /// Path MTUs may be any number of bytes from 256 to 4096, as in other simulators. Default: only powers of
    /// two, as IBTA has it.
    pub any_path_mtu: bool,
    /// Packets that one READ request asks for at most.
    pub read_piece: u32,
    /// How IRN works on queue pairs that agree on it.
    pub irn: irn::Settings,
    /// How queue pairs control their rate.
    pub congestion: congestion::Settings,
    /// The traffic class of connections' responses without data: ACKs, NAKs, and IRN's (N)ACKs of READ
    /// responses. `None`, the default: that of the queue pair. An ACK may overtake READ responses of another
    /// class, which go-back-N takes for lost then.
    pub ack_class: Option<Class>,
    /// The traffic class of CNPs. `None`, the default: that of the queue pair.
    pub cnp_class: Option<Class>,
    /// Free lists of PRISM.
    pub max_free_lists: u32,
    /// Kernels of StRoM that are deployed.
    pub max_kernels: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            engine: 0,
            max_qps: 1 << 14,
            qpn_range: None,
            qpn_seed: None,
            max_cqs: 1 << 10,
            max_srqs: 1 << 10,
            max_xrc_domains: 1 << 8,
            max_address_handles: 1 << 14,
            max_groups: 1 << 8,
            max_group_members: 1 << 6,
            endpoint: Endpoint::default(),
            mtu: 4096,
            max_events: 1 << 10,
            checks_icrc: true,
            window: 256,
            ack_every: 32,
            rto_ns: None,
            retries_forever: false,
            turn_packets: TURN_PACKETS as u32,
            any_path_mtu: false,
            read_piece: 64,
            irn: irn::Settings::default(),
            congestion: congestion::Settings::default(),
            ack_class: None,
            cnp_class: None,
            max_free_lists: 1 << 8,
            max_kernels: 1 << 5,
        }
    }
}

/// Packets in flight per queue pair at most: of the 24-bit circle only a small part may be in doubt.
pub(crate) const MAX_WINDOW: u32 = 1 << 16;

/// What a queue pair is made of.
pub struct QueuePairInit {
    /// Its transport service.
    pub service: Service,
    /// Its protection domain.
    pub pd: Pd,
    /// Memory of the send queue.
    pub send_ring: Ring,
    /// Where its receive work requests come from.
    pub receives: Receives,
    /// Completion queue of the send queue.
    pub send_cq: u32,
    /// Completion queue of the receive queue.
    pub receive_cq: u32,
    /// Every send work request is signaled.
    pub signal_all: bool,
    /// How far the send queue is fetched.
    pub fetching: Fetching,
}

/// Where a queue pair's receive work requests come from.
pub enum Receives {
    /// A receive queue of its own.
    Own {
        /// Its memory.
        ring: Ring,
        /// Elements per work request.
        max_sge: u32,
    },
    /// The shared receive queue of this number.
    Shared(Qpn),
    /// Nowhere: the initiator of an extended reliable connection receives nothing.
    None,
}

/// Why a resource cannot be made or used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NicError {
    /// As many as there may be (ENOMEM).
    Full,
    /// No such resource (EINVAL).
    Unknown,
    /// Something still uses it (EBUSY).
    Busy,
    /// What it holds does not fit (EINVAL).
    TooSmall,
    /// Its transport service has no such thing (EINVAL).
    NotThisService,
    /// The address is no multicast group's (EINVAL).
    NotAGroup,
}

impl std::fmt::Display for NicError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NicError::Full => "as many resources of this kind as the NIC was configured for",
            NicError::Unknown => "no such resource",
            NicError::Busy => "the resource is still in use",
            NicError::TooSmall => "what it holds does not fit",
            NicError::NotAGroup => "the address is no multicast group's",
            NicError::NotThisService => "queue pairs of this transport service have none",
        })
    }
}

impl std::error::Error for NicError {}
