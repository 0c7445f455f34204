//! The messages of connection set-up as bytes. All integers are little-endian.
//!
//! ```text
//!  0  "RemoraCM"   8  version 16   10  kind of message 16   12  length of the body 32   16  body
//! ```
//!
//! The body of REQUEST and ACCEPT:
//!
//! ```text
//!  0  port kind 4 (1 shm, 2 udp), service 4 (0 RC, 1 UC, 2 UD, 3 XRC initiator, 4 XRC target)
//!  1  link 8 (0 none, 1 existing, 2 new, 3 wanted)   2  path MTU 16   4  queue pair 32
//!  8  PSN 32   12  initiator depth 8   13  responder resources 8   14  UDP port 16
//! 16  address 128   32  engine 128
//! 48  extensions 64   56  length of the link's name 16   58  length of the private data 16   60  Q_Key 32
//! 64  IRN reach 32   68  name, private data
//! ```
//!
//! Extensions: bit 0, IRN; then the IRN reach is the number of packets ahead of the order that this side
//! remembers. It is a power of two from 64 to 65536, else 0. Bit 1, PRISM. Bit 2, StRoM. Bit 3, LASTING: this
//! TCP connection stays open as long as the queue pairs, and its end shows that one of them is gone. Bit 4,
//! SOURCE_PORT: this side's frames come from the UDP port of its address alone, so that others are not its
//! own; one side may have it without the other. Other bits are 0, and ignored: an extension that only one
//! side has is not used.
//!
//! READY and GO are empty; the body of REJECT is UTF-8 for people. The body of FULL (kind 6) is three words
//! of 32 bits: the capacity that is used up (1 clients, 2 connections being set up), how much is in use, and
//! how much there is. Every byte from the wire is checked here.

use remora_nic::Service;
use remora_transport::rc::irn::Bitmap;
use remora_wire::frame::{Address, Endpoint};
use remora_wire::{Psn, Qpn};

use super::full::Full;
use super::{ConnectError, MAX_PRIVATE, VERSION};
use crate::peers::EngineId;
use crate::port_kind::PortKind;

/// The extension bit of IRN.
pub const IRN: u64 = 1;
/// The extension bit of PRISM.
pub const PRISM: u64 = 2;
/// The extension bit of StRoM.
pub const STROM: u64 = 4;
/// The extension bit of a TCP connection that stays open as long as the queue pairs.
pub const LASTING: u64 = 8;
/// The extension bit of a NIC whose frames come from the UDP port that its hello names, and from no other.
pub const SOURCE_PORT: u64 = 16;
/// Bytes of a link's name at most: an abstract socket address has 108.
const MAX_NAME: usize = 107;
/// Bytes of the text of a refusal at most.
const MAX_WORDS: usize = 400;
const MAGIC: [u8; 8] = *b"RemoraCM";
/// Bytes of a message's head.
pub(super) const HEAD: usize = 16;
const HELLO: usize = 68;
/// Bytes of any body at most.
const MAX_BODY: usize = HELLO + MAX_NAME + MAX_PRIVATE;

/// Offer of a shm port for the memory that two ports share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOffer {
    /// Not at all, or as the server decides.
    None,
    /// By the link that the two engines already share.
    Existing,
    /// By the link that is offered under this name.
    New(String),
    /// The client has lost the one that the server remembers and wants a new one.
    Wanted,
}

/// First message of each side: its port, its queue pair and its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Kind of the sender's port.
    pub kind: PortKind,
    /// Offer for the memory that the two ports share.
    pub link: LinkOffer,
    /// Path MTU, bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// Service of the sender's queue pair.
    pub service: Service,
    /// The Q_Key that messages to it must bear; 0 for other services.
    pub qkey: u32,
    /// Number of the sender's queue pair.
    pub qp: Qpn,
    /// First PSN that the sender's queue pair sends.
    pub psn: Psn,
    /// READs and atomics that it wants outstanding, 0 to 128.
    pub initiator_depth: u8,
    /// READs and atomics that it holds for its peer, 0 to 128.
    pub responder_resources: u8,
    /// Address and UDP port of the sender.
    pub endpoint: Endpoint,
    /// Random identifier of the sender's engine, unique over all machines.
    pub engine: EngineId,
    /// Extensions of the sender, one bit each: [`IRN`], [`PRISM`], [`STROM`], [`LASTING`], [`SOURCE_PORT`].
    pub extensions: u64,
    /// Packets ahead of the order that it remembers over IRN; 0 without it.
    pub irn_reach: u32,
    /// Private data for the program.
    pub private_data: Vec<u8>,
}

/// A message of the set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The client's first message.
    Request(Hello),
    /// The server's answer.
    Accept(Hello),
    /// The client's queue pair is up.
    Ready,
    /// The server's queue pair is up.
    Go,
    /// A refusal, and its text.
    Reject(String),
    /// A refusal for now: the server is full.
    Full(Full),
}

impl Message {
    fn number(&self) -> u16 {
        match self {
            Message::Request(_) => 1,
            Message::Accept(_) => 2,
            Message::Ready => 3,
            Message::Go => 4,
            Message::Reject(_) => 5,
            Message::Full(_) => 6,
        }
    }

    /// The message as bytes, head included.
    pub fn emit(&self) -> Vec<u8> {
        let body = match self {
            Message::Request(hello) | Message::Accept(hello) => hello.emit(),
            Message::Ready | Message::Go => Vec::new(),
            Message::Reject(words) => cut(words, MAX_WORDS).as_bytes().to_vec(),
            Message::Full(full) => full.emit(),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.number().to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// Parses the message in exactly these bytes.
    ///
    /// # Errors
    /// [`ConnectError::NotRemora`], [`ConnectError::Version`]; [`ConnectError::BadMessage`] for all else that
    /// is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Message, ConnectError> {
        let (head, body) = bytes.split_first_chunk().ok_or(ConnectError::BadMessage)?;
        let head = Head::parse(head)?;
        if head.len != body.len() {
            return Err(ConnectError::BadMessage);
        }
        Message::of(head.number, body)
    }

    /// Parses a body, whose head was parsed before.
    pub(super) fn of(number: u16, body: &[u8]) -> Result<Message, ConnectError> {
        Ok(match (number, body) {
            (1, _) => Message::Request(Hello::parse(body).ok_or(ConnectError::BadMessage)?),
            (2, _) => Message::Accept(Hello::parse(body).ok_or(ConnectError::BadMessage)?),
            (3, []) => Message::Ready,
            (4, []) => Message::Go,
            (5, _) => Message::Reject(printable(body)),
            (6, _) => Message::Full(Full::parse(body).ok_or(ConnectError::BadMessage)?),
            _ => return Err(ConnectError::BadMessage),
        })
    }
}

/// The head of a message: its kind and the length of its body.
#[derive(Debug)]
pub(super) struct Head {
    /// Kind of message.
    pub number: u16,
    /// Bytes of the body, at most [`MAX_BODY`].
    pub len: usize,
}

impl Head {
    pub(crate) fn parse(head: &[u8; HEAD]) -> Result<Head, ConnectError> {
        if head[..8] != MAGIC {
            return Err(ConnectError::NotRemora);
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            return Err(ConnectError::Version(version));
        }
        let len = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        if len > MAX_BODY {
            return Err(ConnectError::BadMessage);
        }
        Ok(Head { number: u16::from_le_bytes([head[10], head[11]]), len })
    }
}

/// The first `limit` bytes, or a few less, of a text.
fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// A stranger's text, without characters that would upset a terminal.
fn printable(bytes: &[u8]) -> String {
    let words = String::from_utf8_lossy(bytes);
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

impl Hello {
    fn emit(&self) -> Vec<u8> {
        let (link, name) = match &self.link {
            LinkOffer::None => (0, ""),
            LinkOffer::Existing => (1, ""),
            LinkOffer::New(name) => (2, cut(name, MAX_NAME)),
            LinkOffer::Wanted => (3, ""),
        };
        let private = &self.private_data[..self.private_data.len().min(MAX_PRIVATE)];
        let kind = match self.kind {
            PortKind::Shm => 1,
            PortKind::Udp => 2,
            PortKind::Xdp => 3,
        };
        let mut bytes = vec![kind | (self.service as u8) << 4, link];
        bytes.extend((self.path_mtu as u16).to_le_bytes());
        bytes.extend(self.qp.get().to_le_bytes());
        bytes.extend(self.psn.get().to_le_bytes());
        bytes.extend([self.initiator_depth, self.responder_resources]);
        bytes.extend(self.endpoint.udp_port.to_le_bytes());
        bytes.extend(self.endpoint.address.0);
        bytes.extend(self.engine.0.to_le_bytes());
        bytes.extend(self.extensions.to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend((private.len() as u16).to_le_bytes());
        bytes.extend(self.qkey.to_le_bytes());
        bytes.extend(self.irn_reach.to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(private);
        bytes
    }

    fn parse(body: &[u8]) -> Option<Hello> {
        let (fixed, rest) = body.split_first_chunk::<HELLO>()?;
        let half = |offset: usize| u16::from_le_bytes([fixed[offset], fixed[offset + 1]]);
        let word = |offset: usize| u32::from(half(offset)) | u32::from(half(offset + 2)) << 16;
        let wide = |offset: usize| std::array::from_fn::<u8, 16, _>(|i| fixed[offset + i]);
        let name_len = usize::from(half(56));
        let private_len = usize::from(half(58));
        if name_len > MAX_NAME || private_len > MAX_PRIVATE || rest.len() != name_len + private_len {
            return None;
        }
        let (name, private) = rest.split_at(name_len);
        let path_mtu = u32::from(half(2));
        let qp = word(4);
        let psn = word(8);
        let [initiator_depth, responder_resources] = [fixed[12], fixed[13]];
        let extensions = u64::from(word(48)) | u64::from(word(52)) << 32;
        let sane = path_mtu.is_power_of_two()
            && (256..=4096).contains(&path_mtu)
            && qp >> 24 == 0
            && psn >> 24 == 0
            && initiator_depth <= 128
            && responder_resources <= 128
            && reach_fits(extensions, word(64));
        if !sane {
            return None;
        }
        Some(Hello {
            service: Service::ALL.into_iter().find(|service| *service as u8 == fixed[0] >> 4)?,
            qkey: word(60),
            kind: match fixed[0] & 0xf {
                1 => PortKind::Shm,
                2 => PortKind::Udp,
                3 => PortKind::Xdp,
                _ => return None,
            },
            link: match (fixed[1], name) {
                (0, []) => LinkOffer::None,
                (1, []) => LinkOffer::Existing,
                (2, [_, ..]) => LinkOffer::New(std::str::from_utf8(name).ok()?.to_owned()),
                (3, []) => LinkOffer::Wanted,
                _ => return None,
            },
            path_mtu,
            qp: Qpn::new(qp),
            psn: Psn::new(psn),
            initiator_depth,
            responder_resources,
            endpoint: Endpoint { address: Address(wide(16)), udp_port: half(14) },
            engine: EngineId(u128::from_le_bytes(wide(32))),
            extensions,
            irn_reach: if extensions & IRN != 0 { word(64) } else { 0 },
            private_data: private.to_vec(),
        })
    }
}

/// Returns true if `reach` is valid for these extensions.
fn reach_fits(extensions: u64, reach: u32) -> bool {
    let (least, most) = Bitmap::BOUNDS;
    extensions & IRN == 0 || reach.is_power_of_two() && (least..=most).contains(&reach)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
