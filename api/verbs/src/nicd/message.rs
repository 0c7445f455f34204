//! A program's requests to the daemon, and the daemon's replies: one packet each, in the format of
//! [`remora_host::codec`]. The first request of a program begins with [`MAGIC`] and the version, whose place
//! does not depend on the version.

use remora_host::codec::{Bounded, Text, decode, encode};
use remora_host::connect::{Agreement, Full, Hello, Message};
use remora_host::{PortFacts, PortKind, sent_as};
use remora_nic::rma::{RegionKey, Rights};
use remora_nic::{Command, CommandError, Service};
use remora_wire::frame::{Address, Endpoint};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::QpOptions;

pub(crate) use remora_host::codec::MAX_PACKET;

/// Version of this format.
pub(crate) const VERSION: u16 = 6;
/// Bytes of a name at most.
pub(crate) const MAX_NAME: usize = 64;
/// Parts of a code region, and regions of a kernel, at most.
pub(crate) const MAX_PARTS: usize = 64;
/// Bytes of the text of a refusal at most.
const MAX_WORDS: usize = 1024;
/// First bytes of the first packet, behind its kind.
const MAGIC: [u8; 8] = *b"RemoraNd";

sent_as! {
    first: u16 as ([u8; 8], [u8; 2]), |version| (MAGIC, version.to_le_bytes()),
        |(magic, version)| (magic == MAGIC).then_some(u16::from_le_bytes(version));
    service: Service as u8, |service| *service as u8,
        |number| Service::ALL.into_iter().find(|service| *service as u8 == number);
    key: RegionKey as [u8; 16], |key| *key.bytes(), |bytes| RegionKey::new(bytes);
    rights: Rights as u8, |rights| rights.0,
        |bits| Some(Rights(bits)).filter(|rights| (Rights::READ | Rights::WRITE | Rights::REKEY).contains(*rights));
    endpoint: Endpoint as ([u8; 16], u16), |endpoint| (endpoint.address.0, endpoint.udp_port),
        |(address, udp_port)| Some(Endpoint { address: Address(address), udp_port });
    address: SocketAddr as ([u8; 16], u16), |address| (mapped(address.ip()), address.port()),
        |(ip, port)| Some(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port));
    hello: Box<Hello> as Vec<u8>, |hello| Message::Request(Hello::clone(hello)).emit(), |bytes| {
        match Message::parse(&bytes) {
            Ok(Message::Request(hello)) => Some(Box::new(hello)),
            _ => None,
        }
    };
    port: PortFacts as (PortKind, [u8; 16], u16, u32),
        |port| (port.kind, port.endpoint.address.0, port.endpoint.udp_port, port.path_mtu),
        |(kind, address, udp_port, path_mtu)| {
            let endpoint = Endpoint { address: Address(address), udp_port };
            Some(PortFacts { kind, endpoint, source: endpoint, path_mtu, manner: "through its daemon" })
        };
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A tenant, as the daemon's owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantFacts {
    /// The user id of its programs.
    pub uid: u32,
    /// Name of the tenant; empty if the tenant ends with its program.
    #[serde(with = "Text::<MAX_NAME>")]
    pub name: String,
    /// True while a program is attached.
    pub attached: bool,
    /// Regions of the tenant.
    pub regions: usize,
    /// Completion queues of the tenant.
    pub queues: usize,
    /// Queue pairs of the tenant.
    pub pairs: usize,
    /// Bytes of its regions and queues.
    pub bytes: u64,
    /// Command slots of 1RMA.
    pub rma_slots: usize,
    /// Regions of 1RMA.
    pub rma_regions: usize,
}

/// A request for memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Allocate {
    pub domain: u32,
    pub len: u64,
    pub access: u32,
    #[serde(with = "Text::<MAX_NAME>")]
    pub name: String,
}

/// A request for a completion queue. Channel 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CreateCq {
    pub depth: u32,
    pub channel: u32,
    pub tag: u64,
    pub counted: bool,
}

/// A request for a code region: fresh memory, and the slots of send queues, under one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CreateCode {
    pub domain: u32,
    /// Bytes of the memory.
    pub len: u64,
    #[serde(with = "Bounded::<MAX_PARTS>")]
    pub parts: Vec<CodePart>,
}

/// A part of a code region, and its address there.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodePart {
    pub of: CodeOf,
    pub iova: u64,
}

/// A request to deploy a kernel that ships.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deploy {
    pub domain: u32,
    pub kernel: u32,
    pub lanes: u32,
    pub opcode: Option<u64>,
    pub longest: u32,
    pub answers: u32,
    pub limit: u64,
    /// Keys of regions.
    #[serde(with = "Bounded::<MAX_PARTS>")]
    pub grants: Vec<u32>,
}

/// The source of a part of a code region.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CodeOf {
    /// Offset and length in bytes of newly allocated memory.
    Memory(u64, u64),
    /// All slots of this queue pair's send queue.
    Pair(u32),
}

/// A request for a RegionId of 1RMA, for the region with this key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegisterRma {
    pub region: u32,
    #[serde(with = "rights")]
    pub rights: Rights,
    /// K_r, which Debug output does not have.
    #[serde(with = "key")]
    pub key: RegionKey,
}

/// A request for a command portal of 1RMA.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CreatePortal {
    pub domain: u32,
    pub cq: u32,
    pub slots: u16,
    /// True if all commands of the portal are in the bulk class.
    pub bulk_only: bool,
}

/// A request for a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CreateQp {
    pub domain: u32,
    pub send_cq: u32,
    pub receive_cq: u32,
    #[serde(with = "service")]
    pub service: Service,
    pub options: Box<QpOptions>,
}

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    AllocDomain,
    /// The first: the tenant's name, and whether its objects outlive the program.
    Attach {
        #[serde(with = "first")]
        version: u16,
        #[serde(with = "Text::<MAX_NAME>")]
        name: String,
        kept: bool,
    },
    /// In place of the first message: the tenants.
    List {
        #[serde(with = "first")]
        version: u16,
    },
    /// In place of the first message: ends a kept tenant.
    End {
        #[serde(with = "first")]
        version: u16,
        uid: u32,
        #[serde(with = "Text::<MAX_NAME>")]
        name: String,
    },
    FreeDomain(u32),
    /// Allocates memory for a queue with at least this number of slots. The reply has the memory, and the
    /// number by which a command names the memory.
    Hand(u32),
    /// A command of the NIC, which names objects of this program only.
    Execute(Command),
    Allocate(Allocate),
    Deregister(u32),
    CreateChannel,
    DestroyChannel(u32),
    CreateCq(CreateCq),
    CreateQp(CreateQp),
    /// With a socket for the answer, as the next two.
    Connect {
        number: u32,
        #[serde(with = "address")]
        address: SocketAddr,
    },
    ConnectPair {
        one: u32,
        other: u32,
    },
    /// With the TCP connection too.
    Answer {
        number: u32,
        #[serde(with = "hello")]
        hello: Box<Hello>,
    },
    Agreement(u32),
    /// The kept object with this index.
    Kept(u32),
    SetChannel {
        number: u32,
        channel: u32,
    },
    /// A queue pair that is connected to itself.
    CreateLoopback(CreateQp),
    CreateCode(CreateCode),
    Deploy(Deploy),
    /// Requests the identity that this program has at servers of 1RMA.
    Identify,
    RegisterRma(RegisterRma),
    /// Of this RegionId, as the next two.
    DeregisterRma(u32),
    RekeyRma {
        region: u32,
        #[serde(with = "key")]
        key: RegionKey,
    },
    /// The key that it has now.
    RmaKey(u32),
    CreatePortal(CreatePortal),
    /// Finds the way to a server of 1RMA.
    Reach(#[serde(with = "endpoint")] Endpoint),
}

/// A command portal that the daemon lends.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortalFacts {
    pub number: u32,
    pub bell: u32,
    /// The first of its slots.
    pub first: u16,
}

/// A region that the daemon lends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegionFacts {
    pub domain: u32,
    pub key: u32,
    pub iova: u64,
    #[serde(with = "Text::<MAX_NAME>")]
    pub name: String,
}

/// A completion queue that the daemon lends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueFacts {
    pub number: u32,
    pub tag: u64,
}

/// A queue pair that the daemon lends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairFacts {
    pub number: u32,
    pub bell: u32,
    pub domain: u32,
    pub send_cq: u32,
    pub receive_cq: u32,
    #[serde(with = "service")]
    pub service: Service,
    pub options: Box<QpOptions>,
    pub agreement: Option<Agreement>,
}

/// A reply of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// A refusal, and its text.
    Refused(#[serde(with = "Text::<MAX_WORDS>")] String),
    /// With the memory of the doorbells, and the eventfd that wakes the engine.
    Attached {
        #[serde(with = "port")]
        port: PortFacts,
        places: u32,
    },
    Number(u32),
    /// With its memory.
    Region(RegionFacts),
    /// With its memory.
    Queue(QueueFacts),
    /// With the memory of both queues, and the connection of the set-up if it is kept.
    Pair(Box<PairFacts>),
    Agreed(Box<Agreement>),
    /// The reply to a command.
    Executed(remora_nic::Reply),
    /// The refusal of a command by the NIC.
    RefusedByNic(CommandError),
    Domain(u32),
    /// A kernel that was kept.
    Kernel {
        number: u32,
        domain: u32,
    },
    /// There is no kept object with this index.
    Nothing,
    /// The other side of a connection is full.
    Full(Full),
    /// The process number and incarnation that the NIC writes into the program's requests.
    Identity {
        pid: u32,
        incarnation: u32,
    },
    RmaKey(#[serde(with = "key")] RegionKey),
    /// With the memory of its ring.
    Portal(PortalFacts),
    /// A tenant in the list of tenants; `Nothing` ends the list.
    Tenant(TenantFacts),
}

/// Overwrites the bytes of a packet, which may hold a key.
pub(crate) fn wipe(packet: &mut [u8]) {
    packet.fill(0);
    // The stores stay, although nobody reads them.
    std::hint::black_box(packet);
}

impl Request {
    /// The packet with this request.
    pub(crate) fn emit(&self) -> Vec<u8> {
        encode(self)
    }

    /// The request in exactly these bytes; None: they are no request.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Request> {
        decode(bytes)
    }
}

impl Reply {
    /// The packet with this reply.
    pub(crate) fn emit(&self) -> Vec<u8> {
        encode(self)
    }

    /// The reply in exactly these bytes; None: they are no reply.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Reply> {
        decode(bytes)
    }
}
