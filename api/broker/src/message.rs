//! A program's requests to the broker, and the broker's replies, as bytes: one packet each, in the grammar of
//! the NIC daemon's messages. Integers are little-endian.
//!
//! ```text
//!  0  kind 8   1  fields in the order of their declaration
//! ```
//!
//! A text or a list begins with its length, 16 bits. An address is 16 bytes (IPv4 mapped), and the number of
//! its interface, 32 bits. The kinds from [`RESERVED`] on are the connection manager's.
//!
//! A packet is not trusted: one that is too short or too long, or has an impossible value, is no message.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::Tally;

/// Version of this format, and of the page that a program shares with the broker.
pub(crate) const VERSION: u16 = 1;
/// Bytes of a packet at most.
pub(crate) const MAX_PACKET: usize = 2048;
/// Kinds from here on belong to the connection manager.
pub(crate) const RESERVED: u8 = 0x40;
/// First bytes of the first packet.
const MAGIC: u64 = u64::from_le_bytes(*b"RemoraBr");

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The first: a QPN range, and a share of this address. `counters`: how many the program publishes.
    Open { version: u16, address: SocketAddr, counters: u16 },
    /// The first of a program that only asks.
    Ask { version: u16 },
    /// A share of a further address, with the same range.
    Address(SocketAddr),
    /// The program with this index, in the order of ranges.
    Program(u16),
    /// The sums of all programs' counters.
    Counters,
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
    /// The process's name, as the kernel has it; empty if it cannot be read.
    pub name: String,
}

/// A reply of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A refusal, and its text.
    Refused(String),
    /// With the socket, the channel and the page.
    Lent {
        range: u8,
        address: SocketAddr,
    },
    Facts(BrokerFacts),
    Program(ProgramFacts),
    /// There is no program with this index.
    Nothing,
    Counters(Vec<u64>),
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
        matches!(self, Request::Open { .. } | Request::Ask { .. })
    }

    /// The packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        match self {
            Request::Open { version, address, counters } => {
                Out::kind(1).u64(MAGIC).u16(*version).address(*address).u16(*counters)
            }
            Request::Ask { version } => Out::kind(2).u64(MAGIC).u16(*version),
            Request::Address(address) => Out::kind(3).address(*address),
            Request::Program(index) => Out::kind(4).u16(*index),
            Request::Counters => Out::kind(5),
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
                Request::Open { version, address: fields.address()?, counters: fields.u16()? }
            }
            2 => Request::Ask { version: fields.magic()? },
            3 => Request::Address(fields.address()?),
            4 => Request::Program(fields.u16()?),
            5 => Request::Counters,
            RESERVED.. => return None,
            _ => return None,
        };
        let known = !matches!(request, Request::Ask { version } if version != VERSION);
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
                Out::kind(4).u8(facts.range).u32(facts.pid).u32(facts.uid).text(&facts.name)
            }
            Reply::Nothing => Out::kind(5),
            Reply::Counters(values) => Out::kind(6).list(values),
        }
        .0
    }

    /// The reply in a packet; `None`: it is none.
    pub(crate) fn parse(packet: &[u8]) -> Option<Reply> {
        let mut fields = In(packet);
        let reply = match fields.u8()? {
            1 => Reply::Refused(fields.text()?),
            2 => Reply::Lent {
                range: fields.u8().filter(|range| (1..=127).contains(range))?,
                address: fields.address()?,
            },
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
                name: fields.text()?,
            }),
            5 => Reply::Nothing,
            6 => Reply::Counters(fields.list()?),
            _ => return None,
        };
        fields.end().map(|()| reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn requests() -> Vec<Request> {
        vec![
            Request::Open { version: VERSION, address: at("127.0.0.1:4791"), counters: 50 },
            Request::Ask { version: VERSION },
            Request::Address(at("[fe80::1%3]:4791")),
            Request::Program(126),
            Request::Counters,
        ]
    }

    fn replies() -> Vec<Reply> {
        vec![
            Reply::Refused("no".to_owned()),
            Reply::Lent { range: 127, address: at("[::1]:4791") },
            Reply::Facts(BrokerFacts {
                pid: 1,
                uid: 2,
                address: at("10.0.0.1:4791"),
                bound: 1,
                relays: true,
                alone: false,
                programs: 3,
                tally: Tally { lent: 4, rma: 5, ..Tally::default() },
            }),
            Reply::Program(ProgramFacts { range: 1, pid: 2, uid: 3, name: "ib_write_bw".to_owned() }),
            Reply::Nothing,
            Reply::Counters(vec![1, u64::MAX]),
        ]
    }

    #[test]
    fn what_is_emitted_is_parsed_and_anything_shorter_or_longer_is_no_message() {
        for request in requests() {
            let packet = request.emit();
            assert_eq!(Request::parse(&packet), Some(request));
            for len in 0..packet.len() {
                assert_eq!(Request::parse(&packet[..len]), None, "{len} bytes of {packet:?}");
            }
            assert_eq!(Request::parse(&[packet, vec![0]].concat()), None);
        }
        for reply in replies() {
            let packet = reply.emit();
            assert!(packet.len() <= MAX_PACKET);
            assert_eq!(Reply::parse(&packet), Some(reply));
            for len in 0..packet.len() {
                assert_eq!(Reply::parse(&packet[..len]), None, "{len} bytes of {packet:?}");
            }
            assert_eq!(Reply::parse(&[packet, vec![0]].concat()), None);
        }
    }

    #[test]
    fn of_another_version_the_version_is_understood_whatever_follows() {
        let open = Request::Open { version: VERSION, address: at("127.0.0.1:4791"), counters: 50 };
        let mut packet = open.emit();
        packet[9..11].copy_from_slice(&7u16.to_le_bytes());
        for len in 11..packet.len() {
            assert_eq!(Request::parse(&packet[..len]), Some(Request::Ask { version: 7 }));
        }
        packet[1] ^= 1;
        assert_eq!(Request::parse(&packet), None, "another protocol's first packet");
    }

    #[test]
    fn kinds_of_the_connection_manager_are_none_of_these() {
        for kind in RESERVED..=255 {
            assert_eq!((Request::parse(&[kind]), Reply::parse(&[kind])), (None, None));
        }
    }

    #[test]
    fn a_text_longer_than_a_packet_is_cut_at_a_character() {
        let packet = Reply::Refused("é".repeat(MAX_PACKET)).emit();
        assert!(packet.len() <= MAX_PACKET);
        assert!(
            matches!(Reply::parse(&packet), Some(Reply::Refused(words)) if words.len() == MAX_PACKET / 2)
        );
    }

    #[test]
    fn no_bytes_make_parsing_panic() {
        let mut state = 0x5eed_u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut packet = state.to_le_bytes().repeat(1 + (state >> 60) as usize);
            packet[0] %= 8;
            let _ = (Request::parse(&packet), Reply::parse(&packet));
        }
    }
}
