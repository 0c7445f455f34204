//! A program's requests to the broker, and the broker's replies, as bytes: one packet each, in the grammar of
//! the NIC daemon's messages. Integers are little-endian.
//!
//! ```text
//!  0  kind 8   1  fields in the order of their declaration
//! ```
//!
//! A text or a list begins with its length, 16 bits. An address is 16 bytes (IPv4 mapped), and the number of
//! its interface, 32 bits. Private data begin with their length, 8 bits. The kinds from [`RESERVED`] on are
//! the communication manager's (`message/cm.rs`); its events have an own numbering (`message/id_event.rs`).
//!
//! A packet is not trusted: one that is too short or too long, or has an impossible value, is no message.

mod cm;
mod id_event;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{GIDS, Tally};
pub(crate) use cm::{CmReply, CmRequest, MAX_PRIVATE};
pub use cm::{Connect, Posted};
pub use id_event::{IdEvent, IdEventKind};

/// Version of this format, and of the page that a program shares with the broker. The
/// preload library (`api/paths`) has it again, since it links nothing of ours.
pub(crate) const VERSION: u16 = 7;
/// Bytes of a packet at most.
pub(crate) const MAX_PACKET: usize = 2048;
/// Kinds from here on belong to the communication manager.
const RESERVED: u8 = 0x40;
/// First bytes of the first packet.
const MAGIC: u64 = u64::from_le_bytes(*b"RemoraBr");

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The first: a QPN range, and a share of this address. `counters`: how many the program publishes.
    /// `every_address`: its device has all addresses of the network namespace.
    Open {
        version: u16,
        address: SocketAddr,
        counters: u16,
        every_address: bool,
    },
    /// The first of a program that only asks.
    Ask {
        version: u16,
    },
    /// The first of a program that connects by the communication manager.
    OpenCm {
        version: u16,
    },
    /// The first of a program that reads the device's paths; the tree stays while the connection does.
    Paths {
        version: u16,
        /// The addresses of the tree's GID table, in their order. Empty: all of the network namespace.
        addresses: Vec<SocketAddr>,
    },
    /// The first, and only one, of a program that reads a counter: its file below the port's folder.
    Counter {
        version: u16,
        name: String,
    },
    /// A share of a further address, with the same range.
    Address(SocketAddr),
    /// The program that has this range, or the next range that is lent. Who asks on with the range behind the
    /// last answer misses no program, though others end meanwhile.
    Program(u16),
    /// The user with this number, or the next one that has connections.
    User(u32),
    /// Ends all connections of a user, which is admitted no more.
    EndUser(u32),
    /// Ends the program that has this QPN range.
    EndProgram(u8),
    /// The sums of all programs' counters.
    Counters,
    /// The port with all addresses of the broker.
    Port,
    /// A socket by which the program is introduced to its neighbours.
    Neighbours,
    /// On that socket: a link to the program with this QPN range.
    Link(u8),
    /// A socket by which the program is told of changes of the port.
    PortEvents,
    Cm(CmRequest),
}

/// What a broker says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerFacts {
    /// Its process, as it sees itself.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// The first of its addresses, with RoCE's UDP port.
    pub address: SocketAddr,
    /// Addresses whose sockets it has bound.
    pub bound: u16,
    /// It reads the only socket and hands frames over, since the kernel cannot steer.
    pub relays: bool,
    /// It is a thread of the one program that has the address.
    pub alone: bool,
    /// Programs that have a QPN range.
    pub programs: u16,
    /// Its counters.
    pub tally: Tally,
}

/// A program that has a QPN range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFacts {
    /// The range, 1 to 127.
    pub range: u8,
    /// Its process; 0: in a pid namespace that the broker cannot see into.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Links to neighbours, by shared memory.
    pub links: u16,
    /// The process's name, as the kernel has it; empty if it cannot be read.
    pub name: String,
}

/// A user of a broker, and its places.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UserFacts {
    /// The user.
    pub uid: u32,
    /// Whether the user is not the broker's: the broker relays its frames, and bounds its places.
    pub guest: bool,
    /// Connections to the broker.
    pub connections: u32,
    /// QPN ranges.
    pub ranges: u32,
    /// Ids of rdma_cm.
    pub ids: u32,
    /// Event channels of rdma_cm.
    pub channels: u32,
}

/// The state of a program's port, as its addresses and their interfaces are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The interface of the first address is up, and has a carrier.
    pub active: bool,
    /// The GID table: all addresses of the broker, or those that the program has chosen, in the order of its
    /// shares. `None`: no interface has the address now.
    pub gids: Vec<Option<GidEntry>>,
}

/// An entry of the GID table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A refusal, and its text.
    Refused(String),
    /// A refusal for lack of what the broker's own process may have. Nobody uses the broker, so it ends: one
    /// that this program starts has this program's limits and folders.
    Ends(String),
    /// With the socket, the channel and the page.
    Lent {
        range: u8,
        address: SocketAddr,
    },
    Facts(BrokerFacts),
    Program(ProgramFacts),
    User(UserFacts),
    /// Connections that were ended.
    Ended(u32),
    /// No program has this range or one behind it.
    Nothing,
    Counters(Vec<u64>),
    /// The folder of the tree of paths.
    Paths(String),
    /// With the file.
    Counter,
    /// With a socket by which neighbours are introduced.
    Neighbours,
    /// With the socket of a link to this QPN range, and its process where the broker has it. `foreign`: the
    /// two programs have different users, which only the broker can compare, in its own user namespace.
    Linked {
        range: u8,
        foreign: bool,
    },
    /// No link leads to this QPN range: the reason.
    Unlinked {
        range: u8,
        words: String,
    },
    /// With a socket by which the program is told of the port.
    PortEvents,
    /// On that socket: at once, and after each change. Also the answer to who asks for it.
    Port(PortState),
    Cm(CmReply),
}

/// A writer of little-endian fields.
struct Out(Vec<u8>);

impl Out {
    fn kind(kind: u8) -> Out {
        Out(vec![kind])
    }

    fn u8(mut self, value: u8) -> Out {
        self.0.push(value);
        self
    }

    fn u16(mut self, value: u16) -> Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(self, text: &str) -> Out {
        let bytes = &text.as_bytes()[..text.floor_char_boundary(MAX_PACKET / 2)];
        let mut out = self.u16(bytes.len() as u16);
        out.0.extend(bytes);
        out
    }

    fn list(self, values: &[u64]) -> Out {
        let values = &values[..values.len().min(MAX_PACKET / 16)];
        values.iter().fold(self.u16(values.len() as u16), |out, value| out.u64(*value))
    }

    /// Zeros where there is none.
    fn gid_entry(mut self, gid: Option<GidEntry>) -> Out {
        let octets = match gid.map(|gid| gid.ip) {
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(ip)) => ip.octets(),
            None => [0; 16],
        };
        self.0.extend(octets);
        self.u32(gid.map_or(0, |gid| gid.interface))
    }

    fn address(mut self, address: SocketAddr) -> Out {
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        self.0.extend(ip.octets());
        self.u32(scope)
    }
}

/// A reader of little-endian fields; it reads nothing beyond the end.
struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A program's QPN range.
    fn range(&mut self) -> Option<u8> {
        self.u8().filter(|range| (1..=127).contains(range))
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn list(&mut self) -> Option<Vec<u64>> {
        let count = self.u16()?;
        (usize::from(count) * 8 <= self.0.len()).then_some(())?;
        (0..count).map(|_| self.u64()).collect()
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = Ipv6Addr::from(self.take::<16>()?);
        let scope = self.u32()?;
        Some(crate::name::standard(match ip.to_canonical() {
            IpAddr::V4(ip) => (ip, 0).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, scope).into(),
        }))
    }

    fn gid_entry(&mut self) -> Option<Option<GidEntry>> {
        let (ip, interface) = (Ipv6Addr::from(self.take::<16>()?), self.u32()?);
        Some((!ip.is_unspecified()).then(|| GidEntry { ip: ip.to_canonical(), interface }))
    }

    fn port_state(&mut self) -> Option<PortState> {
        let (active, count) = (self.flag()?, self.u8()?);
        Some(PortState { active, gids: (0..count).map(|_| self.gid_entry()).collect::<Option<_>>()? })
    }

    fn magic(&mut self) -> Option<u16> {
        (self.u64()? == MAGIC).then_some(())?;
        self.u16()
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Request {
    /// Is it the first of a connection?
    pub(crate) fn is_first(&self) -> bool {
        match self {
            Request::Open { .. } | Request::Ask { .. } | Request::OpenCm { .. } => true,
            Request::Paths { .. } | Request::Counter { .. } => true,
            Request::User(_) | Request::EndUser(_) | Request::EndProgram(_) => false,
            Request::Address(_) | Request::Program(_) | Request::Counters | Request::Cm(_) => false,
            Request::Neighbours | Request::Link(_) | Request::PortEvents | Request::Port => false,
        }
    }

    /// The packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        match self {
            Request::Open { version, address, counters, every_address } => {
                let out = Out::kind(1).u64(MAGIC).u16(*version).address(*address).u16(*counters);
                out.u8((*every_address).into())
            }
            Request::Ask { version } => Out::kind(2).u64(MAGIC).u16(*version),
            Request::Address(address) => Out::kind(3).address(*address),
            Request::Program(range) => Out::kind(4).u16(*range),
            Request::Counters => Out::kind(5),
            Request::Paths { version, addresses } => {
                let addresses = &addresses[..addresses.len().min(GIDS)];
                let out = Out::kind(6).u64(MAGIC).u16(*version).u8(addresses.len() as u8);
                addresses.iter().fold(out, |out, address| out.address(*address))
            }
            Request::Counter { version, name } => Out::kind(7).u64(MAGIC).u16(*version).text(name),
            Request::Neighbours => Out::kind(8),
            Request::Link(range) => Out::kind(9).u8(*range),
            Request::PortEvents => Out::kind(10),
            Request::Port => Out::kind(11),
            Request::User(from) => Out::kind(12).u32(*from),
            Request::EndUser(uid) => Out::kind(13).u32(*uid),
            Request::EndProgram(range) => Out::kind(14).u8(*range),
            Request::OpenCm { version } => Out::kind(RESERVED).u64(MAGIC).u16(*version),
            Request::Cm(request) => request.emit(),
        }
        .0
    }

    /// The request in a packet; `None`: it is none. Of another version only the version is read.
    pub(crate) fn parse(packet: &[u8]) -> Option<Request> {
        let mut fields = In(packet);
        let request = match fields.u8()? {
            1 => {
                let version = fields.magic()?;
                if version != VERSION {
                    return Some(Request::Ask { version });
                }
                let (address, counters, every_address) = (fields.address()?, fields.u16()?, fields.flag()?);
                Request::Open { version, address, counters, every_address }
            }
            2 => Request::Ask { version: fields.magic()? },
            3 => Request::Address(fields.address()?),
            4 => Request::Program(fields.u16()?),
            5 => Request::Counters,
            6 => {
                let version = fields.magic()?;
                if version != VERSION {
                    return Some(Request::Ask { version });
                }
                let count = fields.u8()?;
                (usize::from(count) <= GIDS).then_some(())?;
                let addresses = (0..count).map(|_| fields.address()).collect::<Option<_>>()?;
                Request::Paths { version, addresses }
            }
            7 => {
                let version = fields.magic()?;
                if version != VERSION {
                    return Some(Request::Ask { version });
                }
                Request::Counter { version, name: fields.text()? }
            }
            8 => Request::Neighbours,
            9 => Request::Link(fields.range()?),
            10 => Request::PortEvents,
            11 => Request::Port,
            12 => Request::User(fields.u32()?),
            13 => Request::EndUser(fields.u32()?),
            14 => Request::EndProgram(fields.range()?),
            RESERVED => Request::OpenCm { version: fields.magic()? },
            kind @ RESERVED.. => Request::Cm(CmRequest::parse(kind, &mut fields)?),
            _ => return None,
        };
        let known = !matches!(
            request,
            Request::Ask { version } | Request::OpenCm { version } if version != VERSION
        );
        (!known || fields.end().is_some()).then_some(request)
    }
}

impl Reply {
    /// The packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        match self {
            Reply::Refused(words) => Out::kind(1).text(words),
            Reply::Lent { range, address } => Out::kind(2).u8(*range).address(*address),
            Reply::Facts(facts) => {
                let out = Out::kind(3).u32(facts.pid).u32(facts.uid).address(facts.address).u16(facts.bound);
                let out = out.u8(facts.relays.into()).u8(facts.alone.into()).u16(facts.programs);
                out.list(&facts.tally.values())
            }
            Reply::Program(facts) => {
                Out::kind(4).u8(facts.range).u32(facts.pid).u32(facts.uid).u16(facts.links).text(&facts.name)
            }
            Reply::Nothing => Out::kind(5),
            Reply::Counters(values) => Out::kind(6).list(values),
            Reply::Paths(folder) => Out::kind(7).text(folder),
            Reply::Counter => Out::kind(8),
            Reply::Neighbours => Out::kind(9),
            Reply::Linked { range, foreign } => Out::kind(10).u8(*range).u8((*foreign).into()),
            Reply::Unlinked { range, words } => Out::kind(11).u8(*range).text(words),
            Reply::PortEvents => Out::kind(12),
            Reply::Port(state) => {
                let gids = &state.gids[..state.gids.len().min(MAX_PACKET / 32)];
                let out = Out::kind(13).u8(state.active.into()).u8(gids.len() as u8);
                gids.iter().fold(out, |out, gid| out.gid_entry(*gid))
            }
            Reply::User(facts) => {
                let out = Out::kind(14).u32(facts.uid).u8(facts.guest.into()).u32(facts.connections);
                out.u32(facts.ranges).u32(facts.ids).u32(facts.channels)
            }
            Reply::Ended(count) => Out::kind(15).u32(*count),
            Reply::Ends(words) => Out::kind(16).text(words),
            Reply::Cm(reply) => reply.emit(),
        }
        .0
    }

    /// The reply in a packet; `None`: it is none.
    pub(crate) fn parse(packet: &[u8]) -> Option<Reply> {
        let mut fields = In(packet);
        let reply = match fields.u8()? {
            1 => Reply::Refused(fields.text()?),
            2 => Reply::Lent { range: fields.range()?, address: fields.address()? },
            3 => Reply::Facts(BrokerFacts {
                pid: fields.u32()?,
                uid: fields.u32()?,
                address: fields.address()?,
                bound: fields.u16()?,
                relays: fields.flag()?,
                alone: fields.flag()?,
                programs: fields.u16()?,
                tally: Tally::of(&fields.list()?),
            }),
            4 => Reply::Program(ProgramFacts {
                range: fields.u8()?,
                pid: fields.u32()?,
                uid: fields.u32()?,
                links: fields.u16()?,
                name: fields.text()?,
            }),
            5 => Reply::Nothing,
            6 => Reply::Counters(fields.list()?),
            7 => Reply::Paths(fields.text()?),
            8 => Reply::Counter,
            9 => Reply::Neighbours,
            10 => Reply::Linked { range: fields.range()?, foreign: fields.flag()? },
            11 => Reply::Unlinked { range: fields.range()?, words: fields.text()? },
            12 => Reply::PortEvents,
            13 => Reply::Port(fields.port_state()?),
            14 => Reply::User(UserFacts {
                uid: fields.u32()?,
                guest: fields.flag()?,
                connections: fields.u32()?,
                ranges: fields.u32()?,
                ids: fields.u32()?,
                channels: fields.u32()?,
            }),
            15 => Reply::Ended(fields.u32()?),
            16 => Reply::Ends(fields.text()?),
            kind @ RESERVED.. => Reply::Cm(CmReply::parse(kind, &mut fields)?),
            _ => return None,
        };
        fields.end().map(|()| reply)
    }
}
