//! The headers that IRN adds to RoCE packets, so that each packet can be processed by itself (IRN paper,
//! §5). `docs/reference/wire/offloads.md` shows their layout.
//!
//! The additions are between the extension headers of the op-code and the payload. A peer that did not agree
//! on IRN would treat them as payload. The op-code determines the additions of a packet; for
//! acknowledgements, the syndrome does:
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

/// Maximum length of the additions in bytes: a RETH and a message header.
pub const MAX_LEN: usize = reth::LEN + message::LEN;

/// The additions of one packet, in wire order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Address of this packet's payload, and length of the message from this packet on.
    pub reth: Option<reth::Repr>,
    /// Receive work request of the message, and offset of the payload.
    pub message: Option<message::Repr>,
    /// Number of a READ or atomic among the READs and atomics.
    pub fetch: Option<fetch::Repr>,
    /// Packet that arrived out of order.
    pub sack: Option<sack::Repr>,
}

const RETH: u8 = 1;
const MESSAGE: u8 = 1 << 1;
const FETCH: u8 = 1 << 2;
const SACK: u8 = 1 << 3;

/// Returns the additions of a packet with this op-code, as a bit set.
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
    /// Splits the payload of a packet between peers that agreed on IRN into its additions and the actual
    /// payload.
    ///
    /// Fails with [`WireError::Truncated`] if the packet ends inside its additions. Always inlined, because
    /// a known op-code fixes the additions at compile time.
    #[inline(always)]
    pub fn split<'a>(packet: &packet::View<'a>) -> Result<(Additions, &'a [u8]), WireError> {
        let shape = shape(packet.bth.opcode(), packet.aeth().map(|aeth| aeth.syndrome));
        let mut additions = Additions::default();
        let mut rest = packet.payload;
        macro_rules! take {
            ($bit:ident, $field:ident, $header:ident) => {
                if shape & $bit != 0 {
                    additions.$field = Some($header::Repr::parse(&$header::View::new(rest)?));
                    rest = &rest[$header::LEN..];
                }
            };
        }
        take!(RETH, reth, reth);
        take!(MESSAGE, message, message);
        take!(FETCH, fetch, fetch);
        take!(SACK, sack, sack);
        Ok((additions, rest))
    }

    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        let bytes = |there: bool, len: usize| if there { len } else { 0 };
        bytes(self.reth.is_some(), reth::LEN)
            + bytes(self.message.is_some(), message::LEN)
            + bytes(self.fetch.is_some(), fetch::LEN)
            + bytes(self.sack.is_some(), sack::LEN)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the additions at the start of `out` and returns their length. Panics if `out` is shorter.
    /// Always inlined, because the compiler knows the caller's additions.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut offset = 0;
        macro_rules! put {
            ($field:ident, $header:ident) => {
                if let Some(header) = &self.$field {
                    header.emit(&mut out[offset..]);
                    offset += $header::LEN;
                }
            };
        }
        put!(reth, reth);
        put!(message, message);
        put!(fetch, fetch);
        put!(sack, sack);
        offset
    }

    /// Returns true if these are the additions of a packet with this op-code and, if it has one, this
    /// syndrome.
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
