//! The configuration of an engine and of a queue pair, and the errors of resource calls.

use remora_memory::Pd;
use remora_transport::congestion;
use remora_transport::rc::irn;
use remora_transport::state::Service;
use remora_wire::Qpn;
use remora_wire::frame::{Class, Endpoint};
use serde::{Deserialize, Serialize};

use crate::part_number::PartNumber;
use crate::send_queue::Fetching;
use crate::turn::TURN_PACKETS;

/// Limits of one engine, and properties of its port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Number of this engine among the engines that share one table of memory regions. Type 2B memory windows
    /// are bound to a queue pair, which is identified by engine and number.
    pub engine: u16,
    /// Maximum number of queue pairs: at most 65 536, or 32 766 with a QPN range.
    pub max_qps: u32,
    /// QPN range of this NIC, 0 to 127, or `None` if all queue pair numbers belong to this NIC. The range is
    /// the upper seven bits of each queue pair number and tells apart NICs that share one IP address. The
    /// lower bits hold a generation, which changes when a slot is reused, and the slot's index.
    pub qpn_range: Option<u8>,
    /// Random seed of the queue pair numbers, so that other hosts cannot guess them. With `None`, the
    /// default, the numbers are sequential and a simulation is reproducible.
    pub qpn_seed: Option<u64>,
    /// Maximum number of completion queues.
    pub max_cqs: u32,
    /// Maximum number of shared receive queues, at most 65 536.
    pub max_srqs: u32,
    /// Maximum number of XRC domains.
    pub max_xrc_domains: u32,
    /// Maximum number of address handles, at most 2^20.
    pub max_address_handles: u32,
    /// Maximum number of multicast groups.
    pub max_groups: u32,
    /// Maximum number of queue pairs attached to one multicast group.
    pub max_group_members: u32,
    /// IP address and UDP port at which peers reach this port; datagrams are received there.
    pub endpoint: Endpoint,
    /// Maximum payload of a packet in bytes, and so the longest datagram.
    pub mtu: u32,
    /// Capacity of the queue of asynchronous events; events beyond it are counted and lost.
    pub max_events: u32,
    /// Checks the ICRC of received frames. Set to false only where frames carry no valid ICRC.
    pub checks_icrc: bool,
    /// Maximum number of packets in flight per queue pair, 1 to 65 536. IRN limits them further (BDP-FC).
    pub window: u32,
    /// Maximum number of packets between two acknowledgement requests of go-back-N. The default is 32; with 1
    /// every packet requests an acknowledgement.
    pub ack_every: u32,
    /// Retransmission timeout of go-back-N in nanoseconds. `None` uses the attribute `timeout`, which only
    /// allows powers of two times 4.096 µs; `NEVER_NS` disables the timeout, for lossless networks. IRN has
    /// its own timeouts in `irn`.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub rto_ns: Option<u64>,
    /// Retransmits without limit and ignores the attribute `retry_cnt`. The default is false.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub retries_forever: bool,
    /// Number of packets that one queue pair sends in its turn, at least 1. A turn also ends after 16 KiB.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub turn_packets: u32,
    /// Allows a path MTU of any number of bytes from 256 to 4096, as other simulators do. By default, only
    /// the powers of two of the IBTA specification are allowed.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub any_path_mtu: bool,
    /// Maximum number of response packets that one READ request packet asks for; longer READs are split.
    pub read_piece: u32,
    /// Settings of IRN for queue pairs that use it.
    pub irn: irn::Settings,
    /// Settings of congestion control.
    pub congestion: congestion::Settings,
    /// Traffic class of a connection's responses without data: ACKs, NAKs, and IRN's (N)ACKs of READ
    /// responses. With `None`, the default, they use the queue pair's class. In a class of its own an ACK may
    /// overtake READ responses, and go-back-N then treats these responses as lost.
    pub ack_class: Option<Class>,
    /// Traffic class of CNPs (congestion notification packets). `None`, the default, uses the queue pair's
    /// class.
    pub cnp_class: Option<Class>,
    /// Maximum number of PRISM free lists.
    pub max_free_lists: u32,
    /// Maximum number of deployed StRoM kernels.
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
            #[cfg(feature = "experiments")]
            rto_ns: None,
            #[cfg(feature = "experiments")]
            retries_forever: false,
            #[cfg(feature = "experiments")]
            turn_packets: TURN_PACKETS as u32,
            #[cfg(feature = "experiments")]
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

/// The settings of experiments.
pub(crate) struct Experiments {
    pub rto_ns: Option<u64>,
    pub retries_forever: bool,
    pub turn_packets: usize,
    pub any_path_mtu: bool,
}

impl Config {
    /// Returns the settings of experiments, with their defaults where the feature is off.
    pub(crate) fn experiments(&self) -> Experiments {
        #[cfg(feature = "experiments")]
        {
            let Config { rto_ns, retries_forever, turn_packets, any_path_mtu, .. } = *self;
            let turn_packets = turn_packets.max(1) as usize;
            Experiments { rto_ns, retries_forever, turn_packets, any_path_mtu }
        }
        #[cfg(not(feature = "experiments"))]
        Experiments { rto_ns: None, retries_forever: false, turn_packets: TURN_PACKETS, any_path_mtu: false }
    }
}

/// Upper limit of `Config::window`. The window must be a small part of the 24-bit PSN space, so that old and
/// new PSNs can be told apart.
pub(crate) const MAX_WINDOW: u32 = 1 << 16;

/// The parameters with which a queue pair is created.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairInit {
    /// Transport service, for example RC or UD.
    pub service: Service,
    /// Protection domain of the object.
    pub pd: Pd,
    /// Memory of the send queue.
    pub send_ring: PartNumber,
    /// Source of the receive work requests.
    pub receives: Receives,
    /// Number of the send queue's completion queue.
    pub send_cq: u32,
    /// Number of the receive queue's completion queue.
    pub receive_cq: u32,
    /// Makes every send work request signaled (`sq_sig_all`).
    pub signal_all: bool,
    /// Fetch mode of the send queue: up to the producer index, or up to the slot that ENABLE requests allow.
    pub fetching: Fetching,
}

/// The source of a queue pair's receive work requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receives {
    /// A receive queue of the queue pair itself.
    Own {
        /// Memory of the receive queue.
        ring: PartNumber,
        /// Maximum number of scatter/gather elements per work request.
        max_sge: u32,
    },
    /// A shared receive queue, by its number.
    Shared(Qpn),
    /// No receive queue: the initiator side of an extended reliable connection (XRC) receives no messages.
    None,
}

/// The reason why a resource cannot be created or used.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NicError {
    /// The configured maximum number of resources of this kind is reached (ENOMEM).
    #[error("as many resources of this kind as the NIC was configured for")]
    Full,
    /// The resource does not exist (EINVAL).
    #[error("no such resource")]
    Unknown,
    /// Another resource still uses the resource (EBUSY).
    #[error("the resource is still in use")]
    Busy,
    /// A size is too small: for one entry, for the current entries, or for the limit that is set (EINVAL).
    #[error("the size is too small for the entries or the limit of the resource")]
    TooSmall,
    /// A count is larger than the NIC allows in one command (EINVAL).
    #[error("the count is larger than the NIC allows in one command")]
    TooLarge,
    /// The host has not handed over the memory or code that the command names (EINVAL).
    #[error("the host has not handed over the memory or code that the command names")]
    NoPart,
    /// The transport service of the queue pair does not support the operation (EINVAL).
    #[error("queue pairs of this transport service have none")]
    NotThisService,
    /// The address is not a multicast group (EINVAL).
    #[error("the address is no multicast group's")]
    NotAGroup,
}
