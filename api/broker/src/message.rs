//! A program's requests to the broker, and the broker's replies: one packet each, in the format of
//! [`remora_host::codec`]. The first request of a program begins with its kind, [`MAGIC`] and the version, in
//! places that do not depend on the version; the text of a refusal does not depend on it either.

mod cm;
mod id_event;
#[cfg(test)]
mod tests;

use remora_host::codec::{Bounded, Text, decode, encode};
use remora_host::sent_as;
use remora_wire::mad::PortSpace;
use remora_wire::mad::req::ConnectedService;
use remora_wire::{Address, Psn, Qpn};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{GIDS, Tally};
pub(crate) use cm::{CmReply, CmRequest, MAX_PRIVATE};
pub use cm::{Connect, Posted};
pub use id_event::{IdEvent, IdEventKind};
pub(crate) use remora_host::codec::MAX_PACKET;

/// Version of this format, and of the page that a program shares with the broker. The preload library
/// (`api/paths`) repeats the version, because that library depends on no other crate.
pub(crate) const VERSION: u16 = 8;
/// First bytes of the first packet, behind its kind.
const MAGIC: [u8; 8] = *b"RemoraBr";

/// A text; the end of a longer one is cut.
type Words = Text<{ MAX_PACKET / 2 }>;

sent_as! {
    first: u16 as ([u8; 8], [u8; 2]), |version| (MAGIC, version.to_le_bytes()),
        |(magic, version)| (magic == MAGIC).then_some(u16::from_le_bytes(version));
    address: SocketAddr as SentAddress, |address| SentAddress::of(*address), |sent| Some(sent.address());
    addresses: Vec<SocketAddr> as Vec<SentAddress>,
        |addresses| addresses.iter().take(GIDS).map(|address| SentAddress::of(*address)).collect(),
        |sent| (sent.len() <= GIDS).then(|| sent.iter().map(SentAddress::address).collect());
    ip_port: SocketAddr as (SentAddress, u16), |address| (SentAddress::of(*address), address.port()), |(sent, port)| {
        let mut address = sent.address();
        address.set_port(port);
        Some(address)
    };
    range: u8 as u8, |range| *range, |range| Some(range).filter(|range| (1..=127).contains(range));
    tally: Tally as Vec<u64>, |tally| tally.values(), |values| Some(Tally::of(&values));
    qpn: Qpn as u32, |qpn| qpn.get(), |number| (number < 1 << 24).then(|| Qpn::new(number));
    psn: Psn as u32, |psn| psn.get(), |number| (number < 1 << 24).then(|| Psn::new(number));
    gid: Address as [u8; 16], |gid| gid.0, |bytes| Some(Address(bytes));
    space: PortSpace as u8, |space| *space as u8, |number| {
        [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib].into_iter().find(|space| *space as u8 == number)
    };
    service: ConnectedService as u8, |service| service.codes()[0], |code| {
        let known = [ConnectedService::Rc, ConnectedService::Uc, ConnectedService::Xrc];
        known.into_iter().find(|service| service.codes()[0] == code)
    };
}

/// An address without its port: 16 bytes (IPv4 mapped), and the number of the interface of a link-local one.
#[derive(Serialize, Deserialize)]
struct SentAddress([u8; 16], u32);

impl SentAddress {
    fn of(address: SocketAddr) -> SentAddress {
        match address {
            SocketAddr::V4(v4) => SentAddress(v4.ip().to_ipv6_mapped().octets(), 0),
            SocketAddr::V6(v6) => SentAddress(v6.ip().octets(), v6.scope_id()),
        }
    }

    fn address(&self) -> SocketAddr {
        crate::name::standard(match Ipv6Addr::from(self.0).to_canonical() {
            IpAddr::V4(ip) => (ip, 0).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, self.1).into(),
        })
    }
}

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// A share of a further address, with the range that the program has.
    Address(#[serde(with = "address")] SocketAddr),
    /// First request: a QPN range, and a share of this address.
    Open {
        #[serde(with = "first")]
        version: u16,
        #[serde(with = "address")]
        address: SocketAddr,
        /// Number of counters that the program publishes.
        counters: u16,
        /// True if the program's device has all addresses of the network namespace.
        every_address: bool,
    },
    /// First request of a program that only asks.
    Ask {
        #[serde(with = "first")]
        version: u16,
    },
    /// The program that has this range, or the next range that is lent. A program that continues with the
    /// range behind the last answer misses no other program, even if some end meanwhile.
    Program(u16),
    /// The user with this number, or the next one that has connections.
    User(u32),
    /// Ends all connections of a user, which is no longer admitted.
    EndUser(u32),
    /// First request of a program that reads the device's paths. The tree exists while the connection does.
    Paths {
        #[serde(with = "first")]
        version: u16,
        /// Addresses of the tree's GID table, in their order. Empty: all of the network namespace.
        #[serde(with = "addresses")]
        addresses: Vec<SocketAddr>,
    },
    /// First request of a program that connects by the communication manager.
    OpenCm {
        #[serde(with = "first")]
        version: u16,
    },
    /// First and only request of a program that reads a counter: the counter's file below the port's folder.
    Counter {
        #[serde(with = "first")]
        version: u16,
        #[serde(with = "Words")]
        name: String,
    },
    /// Ends the program that has this QPN range.
    EndProgram(#[serde(with = "range")] u8),
    /// The sums of all programs' counters.
    Counters,
    /// The port with all addresses of the broker.
    Port,
    /// A socket by which the program is introduced to its neighbours.
    Neighbours,
    /// On that socket: a link to the program with this QPN range.
    Link(#[serde(with = "range")] u8),
    /// A socket by which the program learns of changes of the port.
    PortEvents,
    /// A request to the communication manager.
    Cm(CmRequest),
}

/// A broker's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerFacts {
    /// Process id of the broker in its own PID namespace.
    pub pid: u32,
    /// User that owns the process.
    pub uid: u32,
    /// First address of the broker, with RoCE's UDP port.
    #[serde(with = "address")]
    pub address: SocketAddr,
    /// Number of addresses whose sockets the broker has bound.
    pub bound: u16,
    /// True if the broker reads the only socket and forwards frames, because the kernel cannot steer them.
    pub relays: bool,
    /// True if the broker is a thread of the only program at the address.
    pub alone: bool,
    /// Programs that have a QPN range.
    pub programs: u16,
    /// Counters of the program.
    #[serde(with = "tally")]
    pub tally: Tally,
}

/// A program that has a QPN range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// The range, 1 to 127.
    pub range: u8,
    /// Process id of the program; 0 if the program is in a PID namespace that the broker cannot see.
    pub pid: u32,
    /// User that owns the process.
    pub uid: u32,
    /// Links to neighbours, by shared memory.
    pub links: u16,
    /// The process's name, as the kernel has it; empty if it cannot be read.
    #[serde(with = "Words")]
    pub name: String,
}

/// A user of a broker, with counts of what the user holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFacts {
    /// User identifier (uid).
    pub uid: u32,
    /// True if the user is not the broker's. The broker relays the frames of such a user and limits its
    /// programs.
    pub guest: bool,
    /// Connections to the broker.
    pub connections: u32,
    /// Number of QPN ranges.
    pub ranges: u32,
    /// Ids of rdma_cm.
    pub ids: u32,
    /// Event channels of rdma_cm.
    pub channels: u32,
}

/// The state of a program's port, as its addresses and their interfaces are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// The interface of the first address is up, and has a carrier.
    pub active: bool,
    /// The GID table: all addresses of the broker, or those that the program has chosen, in the order of its
    /// shares. `None`: no interface has the address now.
    #[serde(with = "Bounded::<{ MAX_PACKET / 32 }>")]
    pub gids: Vec<Option<GidEntry>>,
}

/// An entry of the GID table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidEntry {
    /// The address that the GID is.
    pub ip: IpAddr,
    /// The interface that has it, by the kernel's number; 0: unknown.
    pub interface: u32,
}

impl GidEntry {
    /// The socket address with RoCE's UDP port; a link-local one names its interface.
    pub fn address(&self) -> SocketAddr {
        crate::name::standard(match self.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, 0, 0, self.interface).into()
            }
            ip => SocketAddr::new(ip, 0),
        })
    }
}

/// A reply of the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// No program has this range or one behind it.
    Nothing,
    /// A refusal, and its text.
    Refused(#[serde(with = "Words")] String),
    /// With the socket, the channel and the page.
    Lent {
        #[serde(with = "range")]
        range: u8,
        #[serde(with = "address")]
        address: SocketAddr,
    },
    Facts(BrokerFacts),
    Program(ProgramFacts),
    User(UserFacts),
    Counters(#[serde(with = "Bounded::<{ MAX_PACKET / 16 }>")] Vec<u64>),
    /// The folder of the tree of paths.
    Paths(#[serde(with = "Words")] String),
    /// With the file.
    Counter,
    /// With a socket by which neighbours are introduced.
    Neighbours,
    /// With the socket of a link to this QPN range, and its process where the broker has it.
    Linked {
        #[serde(with = "range")]
        range: u8,
        /// True if the two programs have different users. Only the broker can compare them, in its own user
        /// namespace.
        foreign: bool,
    },
    /// No link leads to this QPN range: the reason.
    Unlinked {
        #[serde(with = "range")]
        range: u8,
        #[serde(with = "Words")]
        words: String,
    },
    /// With a socket by which the program learns of changes of the port.
    PortEvents,
    /// The state of the port: on that socket, at once and after each change, and as the answer to `Port`.
    Port(PortState),
    /// Number of connections that were ended.
    Ended(u32),
    Cm(CmReply),
    /// A refusal because the broker's own process lacks something. No program uses the broker, so it ends: a
    /// broker that this program starts has this program's limits and folders.
    Ends(#[serde(with = "Words")] String),
}

impl Request {
    /// Returns true for a request that begins a connection.
    pub(crate) fn is_first(&self) -> bool {
        match self {
            Request::Open { .. } | Request::Ask { .. } | Request::OpenCm { .. } => true,
            Request::Paths { .. } | Request::Counter { .. } => true,
            Request::User(_) | Request::EndUser(_) | Request::EndProgram(_) => false,
            Request::Address(_) | Request::Program(_) | Request::Counters | Request::Cm(_) => false,
            Request::Neighbours | Request::Link(_) | Request::PortEvents | Request::Port => false,
        }
    }

    /// Returns the packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        encode(self)
    }

    /// Returns the request in a packet, or `None` if the packet holds no request. Of another version only the
    /// version is read.
    pub(crate) fn parse(packet: &[u8]) -> Option<Request> {
        match packet {
            [_, magic @ ..] if magic.starts_with(&MAGIC) => {
                let version = u16::from_le_bytes(*magic[MAGIC.len()..].first_chunk()?);
                if version == VERSION { decode(packet) } else { Some(Request::Ask { version }) }
            }
            _ => decode(packet),
        }
    }
}

impl Reply {
    /// Returns the packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        encode(self)
    }

    /// Returns the reply in a packet, or `None` if the packet holds no reply.
    pub(crate) fn parse(packet: &[u8]) -> Option<Reply> {
        decode(packet)
    }
}
