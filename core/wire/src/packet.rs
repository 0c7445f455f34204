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

/// Bytes from the BTH to the end of the ICRC. The packet has `header_len` bytes of BTH and extension headers
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

    /// Writes the headers that are there in wire order at the start of `out` and returns their bytes; panics
    /// if `out` is shorter. Inlined always: the caller's headers are known to the compiler.
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

/// Writes BTH and extension headers at the start of `out` and returns their bytes. The caller adds the
/// payload, the pad of `bth.pad` zeros and the ICRC: so it can copy a payload straight into the frame. Panics
/// if `out` is shorter; in debug builds also if the extensions are not those of the op-code.
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

/// A packet whose lengths have been checked. Its extension headers are parsed one by one on demand. A queue
/// pair looks at one or two of them, and copying all costs as much as the rest of the parsing.
#[derive(Copy, Clone, Debug)]
pub struct View<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    shape: u32,
    extensions: &'a [u8],
    /// Payload without the pad.
    pub payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses the bytes from the BTH to the end of the ICRC. The last four bytes are taken to be the ICRC and
    /// are not checked (see [`icrc`]). Nor are the pad's, which should be zeros. The transport judges whether
    /// the op-code may carry a payload.
    ///
    /// Errors: [`WireError::Truncated`], [`WireError::UnknownOpcode`], [`WireError::Length`] if the bytes are
    /// not a multiple of four, [`WireError::Pad`].
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::before(bytes, icrc::LEN)
    }

    /// As [`View::new`], for bytes that end with the pad.
    ///
    /// Errors: the same.
    #[inline(always)]
    pub fn unsealed(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::before(bytes, 0)
    }

    /// The last `trailer` bytes are not the packet's.
    #[inline(always)]
    fn before(bytes: &'a [u8], trailer: usize) -> Result<View<'a>, WireError> {
        let bth = bth::Repr::parse(&bth::View::new(bytes)?);
        let header_len = bth.opcode.header_len();
        if header_len == 0 {
            return Err(WireError::UnknownOpcode(bth.opcode.0));
        }
        let Some(padded) = bytes.len().checked_sub(header_len + trailer) else {
            return Err(WireError::Truncated);
        };
        if !bytes.len().is_multiple_of(4) {
            return Err(WireError::Length);
        }
        let Some(payload_len) = padded.checked_sub(usize::from(bth.pad)) else {
            return Err(WireError::Pad);
        };
        let (headers, rest) = bytes.split_at(header_len);
        let (extensions, payload) = (&headers[bth::LEN..], &rest[..payload_len]);
        Ok(View { bth, shape: bth.opcode.shape(), extensions, payload })
    }

    /// The bytes from extension header `bit` on, if the op-code has it.
    #[inline(always)]
    fn from(&self, bit: u32) -> Option<&'a [u8]> {
        if self.shape & bit == 0 {
            return None;
        }
        let mut at = 0;
        for (earlier, len) in opcode::EXTENSION_LENS {
            if earlier == bit {
                break;
            }
            at += if self.shape & earlier == 0 { 0 } else { len };
        }
        self.extensions.get(at..)
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

    /// All of them.
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

/// Everything from the BTH to before the pad; the payload stays where it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// The extension headers of its op-code.
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

    /// The packet in the bytes from the BTH to the end of the ICRC, all its headers read; see [`View::new`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let view = View::new(bytes)?;
        Ok(Packet { bth: view.bth, ext: view.ext(), payload: view.payload })
    }

    /// Bytes that the packet takes on the wire, pad and ICRC included.
    #[inline]
    pub fn buffer_len(&self) -> usize {
        self.bth.opcode.header_len() + self.payload.len() + usize::from(self.bth.pad) + icrc::LEN
    }

    /// Writes headers, payload and pad at the start of `out`. Returns their bytes: there the four bytes of
    /// the ICRC belong. Panics if `out` is shorter; see also [`emit_headers`].
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
