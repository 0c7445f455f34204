//! A transport packet: the BTH, the extension headers of its op-code, and the payload.
//!
//! ```text
//! BTH | XRCETH? | DETH? | RETH? | AtomicETH? | AETH? | AtomicAckETH? | ImmDt? | IETH? | payload | pad | ICRC
//! ```

use core::fmt;

use crate::opcode;
use crate::{WireError, aeth, atomic_ack, atomic_eth, bth, deth, icrc, ieth, immdt, reth, xrceth};

/// Returns the pad count of a packet with `payload_len` bytes, which fills the payload up to a multiple of
/// four.
#[inline]
pub const fn pad_for(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Returns the length of a packet in bytes, from the BTH to the end of the ICRC. The packet has `header_len`
/// bytes of BTH and extension headers (see [`crate::Opcode::header_len`]) and `payload_len` bytes of
/// payload.
#[inline]
pub const fn transport_len(header_len: usize, payload_len: usize) -> usize {
    header_len + payload_len + pad_for(payload_len) as usize + icrc::LEN
}

/// The extension headers of a packet, in wire order. The op-code determines the headers that are present.
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
    /// The acknowledgement header (AETH).
    pub aeth: Option<aeth::Repr>,
    /// Result of an atomic.
    pub atomic_ack: Option<atomic_ack::Repr>,
    /// Immediate data (ImmDt).
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

    /// Writes the present headers in wire order at the start of `out` and returns their length. Panics if
    /// `out` is shorter. Always inlined, because the compiler knows the caller's headers.
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
        put!(xrceth, xrceth);
        put!(deth, deth);
        put!(reth, reth);
        put!(atomic, atomic_eth);
        put!(aeth, aeth);
        put!(atomic_ack, atomic_ack);
        put!(imm, immdt);
        put!(ieth, ieth);
        offset
    }

    /// Returns the bits of the op-code table for the present headers.
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

/// Writes BTH and extension headers at the start of `out` and returns their length. The caller adds the
/// payload, `bth.pad` zeros and the ICRC, and can thus copy the payload directly into the frame. Panics if
/// `out` is shorter; in debug builds also if the extension headers do not match the op-code.
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

/// A packet whose lengths have been checked. Extension headers are parsed on demand, because a queue pair
/// needs one or two of them and parsing all would double the cost.
#[derive(Copy, Clone, Debug)]
pub struct View<'a> {
    /// Base transport header.
    pub bth: bth::Words,
    shape: u32,
    extensions: &'a [u8],
    /// Payload without the pad.
    pub payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses the bytes from the BTH to the end of the ICRC. The ICRC (see [`icrc`]) and the pad bytes are
    /// not checked. The transport decides whether the op-code may carry a payload.
    ///
    /// Fails with [`WireError::Truncated`], [`WireError::UnknownOpcode`], [`WireError::Length`] if the
    /// length is not a multiple of four, or [`WireError::Pad`].
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::before(bytes, icrc::LEN)
    }

    /// Parses bytes from the BTH to the end of the pad, without an ICRC.
    ///
    /// Fails like [`View::new`].
    #[inline(always)]
    pub fn unsealed(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::before(bytes, 0)
    }

    /// Parses a packet without the last `trailer` bytes.
    #[inline(always)]
    fn before(bytes: &'a [u8], trailer: usize) -> Result<View<'a>, WireError> {
        let bth = bth::View::new(bytes)?.words();
        let shape = bth.opcode().shape();
        let header_len = opcode::header_len_of(shape);
        if header_len == 0 {
            return Err(WireError::UnknownOpcode(bth.opcode().0));
        }
        let Some(padded) = bytes.len().checked_sub(header_len + trailer) else {
            return Err(WireError::Truncated);
        };
        if !bytes.len().is_multiple_of(4) {
            return Err(WireError::Length);
        }
        let Some(payload_len) = padded.checked_sub(usize::from(bth.pad())) else {
            return Err(WireError::Pad);
        };
        let (headers, rest) = bytes.split_at(header_len);
        let extensions = &headers[bth::LEN..];
        let payload = &rest[..payload_len];
        Ok(View { bth, shape, extensions, payload })
    }

    /// Returns the bytes from extension header `bit` on, or `None` if the packet does not have it.
    #[inline(always)]
    fn from(&self, bit: u32) -> Option<&'a [u8]> {
        if self.shape & bit == 0 {
            return None;
        }
        let mut offset = 0;
        for (earlier, len) in opcode::EXTENSION_LENS {
            if earlier == bit {
                break;
            }
            offset += if self.shape & earlier == 0 { 0 } else { len };
        }
        self.extensions.get(offset..)
    }
}

macro_rules! extension {
    ($(#[$doc:meta])* $name:ident, $bit:ident, $header:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(&self) -> Option<$header::Repr> {
            let view = $header::View::new(self.from(opcode::$bit)?).ok()?;
            Some($header::Repr::parse(&view))
        }
    };
}

impl View<'_> {
    extension!(
        /// Shared receive queue of an XRC request.
        xrceth, XRCETH, xrceth
    );
    extension!(
        /// Sender of a datagram.
        deth, DETH, deth
    );
    extension!(
        /// Remote address of a WRITE or READ.
        reth, RETH, reth
    );
    extension!(
        /// Operands of an atomic.
        atomic, ATOMIC_ETH, atomic_eth
    );
    extension!(
        /// The acknowledgement header (AETH).
        aeth, AETH, aeth
    );
    extension!(
        /// Result of an atomic.
        atomic_ack, ATOMIC_ACK, atomic_ack
    );
    extension!(
        /// Immediate data (ImmDt).
        imm, IMM, immdt
    );
    extension!(
        /// Key to invalidate.
        ieth, IETH, ieth
    );

    /// Returns all extension headers.
    pub fn ext(&self) -> Extensions {
        Extensions {
            xrceth: self.xrceth(),
            deth: self.deth(),
            reth: self.reth(),
            atomic: self.atomic(),
            aeth: self.aeth(),
            atomic_ack: self.atomic_ack(),
            imm: self.imm(),
            ieth: self.ieth(),
        }
    }
}

/// A parsed packet, from the BTH up to the pad; the payload is borrowed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers of the op-code.
    pub ext: Extensions,
    /// Payload without the pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Returns a packet of these parts, with the pad count that fits the payload.
    #[inline]
    pub fn new(bth: bth::Repr, ext: Extensions, payload: &'a [u8]) -> Packet<'a> {
        Packet { bth: bth::Repr { pad: pad_for(payload.len()), ..bth }, ext, payload }
    }

    /// Parses a packet with all its headers; see [`View::new`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let view = View::new(bytes)?;
        Ok(Packet { bth: view.bth.repr(), ext: view.ext(), payload: view.payload })
    }

    /// Returns the length of the packet in bytes, including pad and ICRC.
    #[inline]
    pub fn buffer_len(&self) -> usize {
        self.bth.opcode.header_len() + self.payload.len() + usize::from(self.bth.pad) + icrc::LEN
    }

    /// Writes headers, payload and pad at the start of `out`. Returns their length, which is the offset of
    /// the ICRC. Panics if `out` is shorter; see also [`emit_headers`].
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
