//! One transport packet: the base header, the extension headers of its op-code, the payload.
//!
//! ```text
//! BTH | XRCETH? | DETH? | RETH? | AtomicETH? | AETH? | AtomicAckETH? | ImmDt? | IETH? | payload | pad | ICRC
//! ```

use core::fmt;

use crate::opcode;
use crate::{WireError, aeth, atomic_ack, atomic_eth, bth, deth, icrc, ieth, immdt, reth, xrceth};

/// The pad count of a packet with `payload_len` bytes: what is missing to a multiple of four.
#[inline]
pub const fn pad_for(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Bytes from the BTH to the end of the ICRC of a packet with `header_len` bytes of BTH and extension headers
/// (see [`crate::Opcode::header_len`]) and `payload_len` bytes of payload.
#[inline]
pub const fn transport_len(header_len: usize, payload_len: usize) -> usize {
    header_len + payload_len + pad_for(payload_len) as usize + icrc::LEN
}

/// The extension headers of a packet, in wire order. Which of them there are follows from the op-code.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Extensions {
    /// Shared receive queue of an XRC request.
    pub xrceth: Option<xrceth::Repr>,
    /// Sender of a datagram.
    pub deth: Option<deth::Repr>,
    /// Remote address of a WRITE or READ.
    pub reth: Option<reth::Repr>,
    /// Operands of an atomic.
    pub atomic: Option<atomic_eth::Repr>,
    /// Acknowledgement.
    pub aeth: Option<aeth::Repr>,
    /// Result of an atomic.
    pub atomic_ack: Option<atomic_ack::Repr>,
    /// Immediate data.
    pub imm: Option<immdt::Repr>,
    /// Key to invalidate.
    pub ieth: Option<ieth::Repr>,
}

impl Extensions {
    /// No extension header.
    pub const NONE: Extensions = Extensions {
        xrceth: None,
        deth: None,
        reth: None,
        atomic: None,
        aeth: None,
        atomic_ack: None,
        imm: None,
        ieth: None,
    };

    /// The extension headers that `shape` announces, from the bytes after the BTH. What busy packets have is taken
    /// here, where the compiler knows each offset; any other combination out of line.
    #[inline(always)]
    fn parse(shape: u32, bytes: &[u8]) -> Result<Extensions, WireError> {
        let none = Extensions::NONE;
        Ok(match shape & opcode::EXTENSIONS {
            0 => none,
            opcode::RETH => Extensions { reth: Some(reth::Repr::parse(&reth::View::new(bytes)?)), ..none },
            opcode::AETH => Extensions { aeth: Some(aeth::Repr::parse(&aeth::View::new(bytes)?)), ..none },
            opcode::IMM => Extensions { imm: Some(immdt::Repr::parse(&immdt::View::new(bytes)?)), ..none },
            _ => return Extensions::parse_any(shape, bytes),
        })
    }

    #[inline(never)]
    fn parse_any(shape: u32, mut bytes: &[u8]) -> Result<Extensions, WireError> {
        let mut found = Extensions::NONE;
        macro_rules! take {
            ($bit:ident, $field:ident, $header:ident) => {
                if shape & opcode::$bit != 0 {
                    found.$field = Some($header::Repr::parse(&$header::View::new(bytes)?));
                    bytes = &bytes[$header::LEN..];
                }
            };
        }
        take!(XRCETH, xrceth, xrceth);
        take!(DETH, deth, deth);
        take!(RETH, reth, reth);
        take!(ATOMIC_ETH, atomic, atomic_eth);
        take!(AETH, aeth, aeth);
        take!(ATOMIC_ACK, atomic_ack, atomic_ack);
        take!(IMM, imm, immdt);
        take!(IETH, ieth, ieth);
        debug_assert!(bytes.is_empty(), "the op-code table's header length is the sum of its headers");
        Ok(found)
    }

    /// Writes the headers that are there in wire order at the start of `out` and returns their bytes; panics if
    /// there is no room. Inlined always: where they are made, the compiler knows which are there.
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
        put!(xrceth, xrceth);
        put!(deth, deth);
        put!(reth, reth);
        put!(atomic, atomic_eth);
        put!(aeth, aeth);
        put!(atomic_ack, atomic_ack);
        put!(imm, immdt);
        put!(ieth, ieth);
        at
    }

    /// The bits of the op-code table for the headers that are there.
    fn shape(&self) -> u32 {
        let bit = |there: bool, bit: u32| if there { bit } else { 0 };
        bit(self.xrceth.is_some(), opcode::XRCETH)
            | bit(self.deth.is_some(), opcode::DETH)
            | bit(self.reth.is_some(), opcode::RETH)
            | bit(self.atomic.is_some(), opcode::ATOMIC_ETH)
            | bit(self.aeth.is_some(), opcode::AETH)
            | bit(self.atomic_ack.is_some(), opcode::ATOMIC_ACK)
            | bit(self.imm.is_some(), opcode::IMM)
            | bit(self.ieth.is_some(), opcode::IETH)
    }
}

/// Writes BTH and extension headers at the start of `out` and returns their bytes. The payload, the pad of
/// `bth.pad` zeros and the ICRC are the caller's to add: this is for those who copy a payload straight into the
/// frame. Panics if there is no room; in debug builds also if the extensions are not those of the op-code.
#[inline(always)]
pub fn emit_headers(bth: &bth::Repr, ext: &Extensions, out: &mut [u8]) -> usize {
    debug_assert_eq!(
        ext.shape(),
        bth.opcode.shape() & opcode::EXTENSIONS,
        "extension headers of {}",
        bth.opcode
    );
    bth.emit(out);
    bth::LEN + ext.emit(&mut out[bth::LEN..])
}

/// Everything from the BTH to before the pad; the payload stays where it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: Extensions,
    /// Payload without the pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// A packet of these parts, its pad count set to fit the payload.
    #[inline]
    pub fn new(bth: bth::Repr, ext: Extensions, payload: &'a [u8]) -> Packet<'a> {
        Packet { bth: bth::Repr { pad: pad_for(payload.len()), ..bth }, ext, payload }
    }

    /// Reads the bytes from the BTH to the end of the ICRC; the last four bytes are taken to be the ICRC and are
    /// not looked at (see [`icrc`]), nor are the pad's, which should be zeros. Whether the op-code may carry a payload
    /// is for the transport to judge.
    ///
    /// Errors: [`WireError::Truncated`], [`WireError::UnknownOpcode`], [`WireError::Length`] if the bytes are not
    /// a multiple of four, [`WireError::Pad`].
    ///
    /// Inlined always, so that a caller pays only for the fields it looks at: about 10 ns less than all of them.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let bth = bth::Repr::parse(&bth::View::new(bytes)?);
        let header_len = bth.opcode.header_len();
        if header_len == 0 {
            return Err(WireError::UnknownOpcode(bth.opcode));
        }
        let Some(padded) = bytes.len().checked_sub(header_len + icrc::LEN) else {
            return Err(WireError::Truncated);
        };
        if !bytes.len().is_multiple_of(4) {
            return Err(WireError::Length);
        }
        let Some(payload_len) = padded.checked_sub(usize::from(bth.pad)) else {
            return Err(WireError::Pad);
        };
        let (headers, rest) = bytes.split_at(header_len);
        let ext = Extensions::parse(bth.opcode.shape(), &headers[bth::LEN..])?;
        Ok(Packet { bth, ext, payload: &rest[..payload_len] })
    }

    /// Bytes that the packet takes on the wire, pad and ICRC included.
    #[inline]
    pub fn buffer_len(&self) -> usize {
        self.bth.opcode.header_len() + self.payload.len() + usize::from(self.bth.pad) + icrc::LEN
    }

    /// Writes headers, payload and pad at the start of `out` and returns their bytes, that is, where the four
    /// bytes of the ICRC belong. Panics if there is no room; see also [`emit_headers`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let payload_at = emit_headers(&self.bth, &self.ext, out);
        let pad_at = payload_at + self.payload.len();
        let end = pad_at + usize::from(self.bth.pad);
        out[payload_at..pad_at].copy_from_slice(self.payload);
        out[pad_at..end].fill(0);
        end
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bth)?;
        macro_rules! show {
            ($($field:ident)*) => {
                $(if let Some(header) = &self.ext.$field { write!(f, " {header}")?; })*
            };
        }
        show!(xrceth deth reth atomic aeth atomic_ack imm ieth);
        if self.payload.is_empty() { Ok(()) } else { write!(f, " payload={}", self.payload.len()) }
    }
}

#[cfg(test)]
mod tests;
