//! The additions of IRN to RoCE packets, by which each can be placed by itself (IRN paper, §5; `docs/WIRE.md`
//! draws all of it).
//!
//! The additions stand between the op-code's own extension headers and the payload, so the packet is still
//! the one that its op-code describes. A peer that has not agreed on IRN would take them for payload. The
//! op-code decides which there are; for acknowledgements the syndrome does:
//! | packet | additions |
//! | ------ | --------- |
//! | SEND, all op-codes | [`message`] |
//! | WRITE Middle, Last | RETH of the rest of the message from this packet on |
//! | WRITE Last with Immediate | that RETH, then [`message`] |
//! | WRITE Only with Immediate | [`message`] |
//! | READ Request, CmpSwap, FetchAdd | [`fetch`] |
//! | RPC WRITE Middle, Last | the RETH of its message, with how many bytes that has from this packet on |
//! | Acknowledge, READ Acknowledge, with NAK code 0 | [`sack`] |
//! | any with a flag of PRISM, between peers that agreed on that too | none |

pub mod fetch;
pub mod message;
pub mod sack;

use crate::aeth::Kind;
use crate::{NakCode, Opcode, Service, Syndrome, WireError, packet, reth};

/// Bytes of additions at most: a RETH and a message header.
pub const MAX_LEN: usize = reth::LEN + message::LEN;

/// The additions of one packet, in wire order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Where this packet's payload goes, and how many bytes the message has from here to its end.
    pub reth: Option<reth::Repr>,
    /// Which receive work request the message takes, and the payload's place in it.
    pub message: Option<message::Repr>,
    /// Place of a READ or atomic among the READs and atomics.
    pub fetch: Option<fetch::Repr>,
    /// The packet that arrived out of order.
    pub sack: Option<sack::Repr>,
}

const RETH: u8 = 1;
const MESSAGE: u8 = 1 << 1;
const FETCH: u8 = 1 << 2;
const SACK: u8 = 1 << 3;

/// Which additions a packet of this op-code has.
#[inline]
fn shape(opcode: Opcode, syndrome: Option<Syndrome>) -> u8 {
    if opcode.service() != Some(Service::Rc) {
        return 0;
    }
    let missing = Kind::Nak(NakCode::PSN_SEQUENCE_ERROR);
    match opcode.0 {
        0x00..=0x05 | 0x0b | 0x16 | 0x17 => MESSAGE,
        0x07 | 0x08 | 0x1a | 0x1b => RETH,
        0x09 => RETH | MESSAGE,
        0x0c | 0x13 | 0x14 => FETCH,
        0x11 | 0x1f if syndrome.is_some_and(|syndrome| syndrome.kind() == missing) => SACK,
        _ => 0,
    }
}

impl Additions {
    /// The additions of a packet between peers that agreed on IRN, and its payload without them.
    ///
    /// Errors: [`WireError::Truncated`] if the packet ends before its additions do. Inlined always: where the
    /// op-code is known, so are the additions.
    #[inline(always)]
    pub fn split<'a>(packet: &packet::View<'a>) -> Result<(Additions, &'a [u8]), WireError> {
        let shape = shape(packet.bth.opcode, packet.aeth().map(|aeth| aeth.syndrome));
        let (mut found, mut rest) = (Additions::default(), packet.payload);
        macro_rules! take {
            ($bit:ident, $field:ident, $header:ident) => {
                if shape & $bit != 0 {
                    found.$field = Some($header::Repr::parse(&$header::View::new(rest)?));
                    rest = &rest[$header::LEN..];
                }
            };
        }
        take!(RETH, reth, reth);
        take!(MESSAGE, message, message);
        take!(FETCH, fetch, fetch);
        take!(SACK, sack, sack);
        Ok((found, rest))
    }

    /// Bytes that they take.
    #[inline]
    pub fn len(&self) -> usize {
        let bytes = |there: bool, len: usize| if there { len } else { 0 };
        bytes(self.reth.is_some(), reth::LEN)
            + bytes(self.message.is_some(), message::LEN)
            + bytes(self.fetch.is_some(), fetch::LEN)
            + bytes(self.sack.is_some(), sack::LEN)
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes them at the start of `out` and returns their bytes; panics if `out` is shorter. Inlined always:
    /// the caller's additions are known to the compiler.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        macro_rules! put {
            ($field:ident, $header:ident) => {
                if let Some(header) = &self.$field {
                    header.emit(&mut out[at..]);
                    at += $header::LEN;
                }
            };
        }
        put!(reth, reth);
        put!(message, message);
        put!(fetch, fetch);
        put!(sack, sack);
        at
    }

    /// Are these the additions that a packet of this op-code, and this syndrome if it has one, must have?
    pub fn fit(&self, opcode: Opcode, syndrome: Option<Syndrome>) -> bool {
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        let mine = bit(self.reth.is_some(), RETH)
            | bit(self.message.is_some(), MESSAGE)
            | bit(self.fetch.is_some(), FETCH)
            | bit(self.sack.is_some(), SACK);
        mine == shape(opcode, syndrome)
    }
}

#[cfg(test)]
mod tests;
