//! A program's requests to the daemon, and the daemon's replies: one packet each, in the format of
//! [`remora_host::codec`]. The first request of a program begins with [`MAGIC`] and the version, whose place
//! does not depend on the version.

use remora_host::codec::{Bounded, Text, decode, encode};
use remora_host::connect::LinkPeer;
use remora_host::{EngineId, PortFacts, PortKind, sent_as};
use remora_memory::{Access, Error as TableError, Key, Pd};
use remora_nic::rma::{RegionKey, Rights};
use remora_nic::{BellOwner, Command, CommandError, ObjectName};
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Peer};
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub(crate) use remora_host::codec::MAX_PACKET;

/// Version of this format.
pub(crate) const VERSION: u16 = 8;
/// Bytes of a name at most.
pub(crate) const MAX_NAME: usize = 64;
/// Ranges of a region at most, each with a descriptor of its own.
pub(crate) const MAX_RANGES: usize = 60;
/// Bytes of the facts that a program stores with an object, at most.
pub(crate) const MAX_NOTE: usize = 1600;
/// Bytes of a link's name at most.
const MAX_LINK_NAME: usize = 108;
/// Bytes of the text of a refusal at most.
const MAX_WORDS: usize = 1024;
/// First bytes of the first packet, behind its kind.
pub(super) const MAGIC: [u8; 8] = *b"RemoraNd";

sent_as! {
    first: u16 as ([u8; 8], [u8; 2]), |version| (MAGIC, version.to_le_bytes()),
        |(magic, version)| (magic == MAGIC).then_some(u16::from_le_bytes(version));
    key: RegionKey as [u8; 16], |key| *key.bytes(), |bytes| RegionKey::new(bytes);
    rights: Rights as u8, |rights| rights.0,
        |bits| Some(Rights(bits)).filter(|rights| (Rights::READ | Rights::WRITE | Rights::REKEY).contains(*rights));
    endpoint: Endpoint as ([u8; 16], u16), |endpoint| (endpoint.address.0, endpoint.udp_port),
        |(address, udp_port)| Some(Endpoint { address: Address(address), udp_port });
    engine_id: EngineId as u128, |id| id.0, |id| Some(EngineId(id));
    link_peer: LinkPeer as (u128, [u8; 16], u16),
        |peer| (peer.id.0, peer.endpoint.address.0, peer.endpoint.udp_port),
        |(id, address, udp_port)| {
            Some(LinkPeer { id: EngineId(id), endpoint: Endpoint { address: Address(address), udp_port } })
        };
    port: PortFacts as (PortKind, [([u8; 16], u16); 2], u32),
        |port| {
            let ends = [port.endpoint, port.source].map(|end| (end.address.0, end.udp_port));
            (port.kind, ends, port.path_mtu)
        },
        |(kind, ends, path_mtu)| {
            let end = |(address, udp_port)| Endpoint { address: Address(address), udp_port };
            let [endpoint, source] = ends.map(end);
            Some(PortFacts { kind, endpoint, source, path_mtu, manner: "through its daemon" })
        };
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

/// A command of the memory table. The memory of a region comes with it, as descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TableCommand {
    AllocDomain,
    FreeDomain(Pd),
    Register {
        pd: Pd,
        access: Access,
        #[serde(with = "Bounded::<MAX_RANGES>")]
        ranges: Vec<SentRange>,
        /// True if the bytes are memory of the program itself, which must keep them as long as it runs.
        own: bool,
    },
    RegisterNull(Pd),
    Deregister(Key),
    Revoke(Key),
    AllocWindow {
        pd: Pd,
        /// True for type 2B.
        second: bool,
    },
    QueryWindow(Key),
    FreeWindow(Key),
    /// Deregisters a region whose memory keeps its bytes until `FreeMemory` names the number in the reply.
    Retire(Key),
    FreeMemory(u32),
}

/// A range of a region: a part of the memory of one of the descriptors.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentRange {
    pub descriptor: u8,
    pub offset: u64,
    pub len: u64,
    pub iova: u64,
}

/// A request for a RegionId of 1RMA, for bytes of the region with this key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegisterRma {
    pub region: u32,
    pub base: u64,
    pub len: u64,
    #[serde(with = "rights")]
    pub rights: Rights,
    /// K_r, which Debug output does not have.
    #[serde(with = "key")]
    pub key: RegionKey,
}

/// A request that may take long. The answer comes over a socket that is sent with the request, so that other
/// requests can proceed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LongRequest {
    /// Finds the way to a NIC. The answer is a peer.
    Reach {
        address: u8,
        #[serde(with = "endpoint")]
        endpoint: Endpoint,
        patience: Duration,
    },
    /// Takes the link that another engine offers under a name. The answer is a peer.
    TakeLink {
        #[serde(with = "link_peer")]
        from: LinkPeer,
        #[serde(with = "Text::<MAX_LINK_NAME>")]
        name: String,
        patience: Duration,
    },
    /// Waits until another engine has taken the link that was offered last. The answer is a peer. Comes with
    /// the TCP connection of the set-up, if there is one.
    GiveLink {
        #[serde(with = "link_peer")]
        to: LinkPeer,
        offer: u32,
        patience: Duration,
    },
}

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Hands over the memory of a queue, which comes as a descriptor. The reply is the number by which a
    /// command names the memory.
    HandRing,
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
    /// Hands over the code of a shipped kernel, once for each lane. The reply is its number.
    HandKernel {
        kernel: u32,
        lanes: u32,
    },
    /// Hands over the module of a kernel, whose bytes are the descriptor's. Each lane has at most `memory`
    /// bytes. The reply is its number.
    HandModule {
        lanes: u32,
        memory: u64,
    },
    /// A command of the NIC, which names objects of this program only.
    Execute(Command),
    /// A command of the memory table, which names objects of this program only.
    Table(TableCommand),
    /// Gives a region a name, by which a later program recognises it.
    NameRegion {
        key: u32,
        #[serde(with = "Text::<MAX_NAME>")]
        name: String,
    },
    /// Assigns a doorbell. The reply is its number.
    AssignBell(BellOwner),
    CreateChannel,
    DestroyChannel(u32),
    /// Makes a channel report a completion queue by this tag.
    SetChannel {
        cq: u32,
        tag: u64,
        channel: u32,
    },
    /// Requests the peer that stands for a living link to this engine.
    ReuseLink(#[serde(with = "engine_id")] EngineId),
    /// Requests the peer that stands for the link of the NIC to itself.
    LoopBack,
    /// Offers a link to one other engine. The reply is the link's name.
    OfferLink,
    /// Withdraws an offered link that is not given.
    WithdrawLink(u32),
    ReleasePeer(Peer),
    Long(LongRequest),
    JoinGroup {
        qp: Qpn,
        #[serde(with = "endpoint")]
        group: Endpoint,
    },
    LeaveGroup {
        qp: Qpn,
        #[serde(with = "endpoint")]
        group: Endpoint,
    },
    /// Stores facts with an object, which is kept from now on when the program ends. The daemon does not read
    /// them. For a queue pair, the TCP connection of its set-up may come with them.
    Note {
        object: ObjectName,
        #[serde(with = "Bounded::<MAX_NOTE>")]
        note: Vec<u8>,
    },
    /// The kept object with this index.
    Kept(u32),
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
}

/// An object that the daemon has kept. Its memory comes with it, as descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeptObject {
    Domain(Pd),
    Region {
        key: Key,
        pd: Pd,
        /// The first range of the region.
        first: SentRange,
        #[serde(with = "Text::<MAX_NAME>")]
        name: String,
    },
    /// Comes with the memory of its queues, then the connection of its set-up, if that is kept.
    Object {
        object: ObjectName,
        bell: u32,
        #[serde(with = "Bounded::<MAX_NOTE>")]
        note: Vec<u8>,
    },
}

/// A reply of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// A refusal, and its text.
    Refused(#[serde(with = "Text::<MAX_WORDS>")] String),
    /// With the memory of the doorbells, the eventfd that wakes the engine, and the socket of asynchronous
    /// events.
    Attached {
        #[serde(with = "port")]
        port: PortFacts,
        #[serde(with = "engine_id")]
        engine: EngineId,
        irn_reach: u32,
        places: u32,
    },
    Number(u32),
    /// A new protection domain.
    Domain(Pd),
    /// The key of a region or window.
    Key(Key),
    Peer(Peer),
    /// The name of an offered link, and the number of the offer.
    Link {
        #[serde(with = "Text::<MAX_LINK_NAME>")]
        name: String,
        offer: u32,
    },
    /// The reply to a command.
    Executed(remora_nic::Reply),
    /// The refusal of a command by the NIC.
    RefusedByNic(CommandError),
    /// A refusal because the user has as much as it may have, and its text.
    AtLimit(#[serde(with = "Text::<MAX_WORDS>")] String),
    /// The refusal of a command by the memory table.
    RefusedByTable(TableError),
    Kept(Box<KeptObject>),
    /// There is no kept object with this index.
    Nothing,
    /// The process number and incarnation that the NIC writes into the program's requests.
    Identity {
        pid: u32,
        incarnation: u32,
    },
    RmaKey(#[serde(with = "key")] RegionKey),
    /// A tenant in the list of tenants; `Nothing` ends the list.
    Tenant(TenantFacts),
}

/// The reason why the daemon does not do what a request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is wrong; contains the text.
    Request(String),
    /// The user has as much as it may have; contains the text.
    Limit(String),
    /// The memory table refuses.
    Table(TableError),
}

impl From<String> for Refusal {
    fn from(words: String) -> Refusal {
        Refusal::Request(words)
    }
}

impl From<&str> for Refusal {
    fn from(words: &str) -> Refusal {
        Refusal::Request(words.to_owned())
    }
}

impl From<TableError> for Refusal {
    fn from(error: TableError) -> Refusal {
        Refusal::Table(error)
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Reply {
        match refusal {
            Refusal::Request(words) => Reply::Refused(words),
            Refusal::Limit(words) => Reply::AtLimit(words),
            Refusal::Table(error) => Reply::RefusedByTable(error),
        }
    }
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
