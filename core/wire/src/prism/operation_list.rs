//! PRISM operation lists: the short operations of a list in one packet, and their answers in another.
//!
//! ```text
//!        0               1               2               3
//!  +---------------+---------------+-------------------------------+
//! 0|    op-code    |     flags     |  bytes behind the header (n)  |
//!  +---------------+---------------+-------------------------------+
//! 4|  RETH or AtomicETH, by the op-code (h bytes)                  |
//!  +---------------------------------------------------------------+
//! 4 + h: n bytes as in a packet of that op-code and these flags, then zeros to a multiple of four; the next
//! ```
//! This is the payload of a packet with op-code [`Opcode::OPERATION_LIST`]. The BTH has the PSN of the first
//! operation, and the number of operations in the seven bits beside AckReq; each operation uses one PSN. The
//! answer, [`Opcode::OPERATION_LIST_ANSWER`], has the PSN of the last operation that was executed, and the
//! number of PSNs that it answers in the seven bits. Its payload has an entry for each operation except plain
//! WRITEs:
//!
//! ```text
//!  +---------------+---------------+-------------------------------+
//! 0|    verdict    |   bytes (n)   |               0               |
//!  +---------------+---------------+-------------------------------+
//! 4: n bytes: a number in network order, or the data of a READ; then zeros to a multiple of four
//! ```
//!
//! The verdict is encoded like the AETH credits of a single answer.

use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

use super::{Flags, Verdict};
use crate::{Extensions, Opcode, Syndrome, WireError, atomic_eth, reth};

/// Length of the header of an operation or an answer, in bytes.
pub const HEAD: usize = 4;
/// Maximum number of operations in one packet.
pub const MOST: usize = 16;

/// The extension header of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// RETH of a READ, WRITE or ALLOCATE.
    Range(reth::Repr),
    /// AtomicETH of an atomic.
    Atomic(atomic_eth::Repr),
}

impl Target {
    /// Returns the extension headers of a packet that carries this operation alone.
    pub fn extensions(&self) -> Extensions {
        match *self {
            Target::Range(reth) => Extensions { reth: Some(reth), ..Extensions::NONE },
            Target::Atomic(eth) => Extensions { atomic: Some(eth), ..Extensions::NONE },
        }
    }

    /// Writes the header at the start of `out` and returns its length. Panics if `out` is shorter.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Target::Range(reth) => {
                reth.emit(out);
                reth::LEN
            }
            Target::Atomic(eth) => {
                eth.emit(out);
                atomic_eth::LEN
            }
        }
    }

    #[inline(always)]
    fn parse(opcode: Opcode, bytes: &[u8]) -> Result<Target, WireError> {
        match opcode {
            Opcode::RC_RDMA_READ_REQUEST | Opcode::RC_RDMA_WRITE_ONLY => {
                Ok(Target::Range(reth::Repr::parse(&reth::View::new(bytes)?)))
            }
            Opcode::RC_COMPARE_SWAP | Opcode::RC_FETCH_ADD => {
                Ok(Target::Atomic(atomic_eth::Repr::parse(&atomic_eth::View::new(bytes)?)))
            }
            other => Err(WireError::UnknownOpcode(other.0)),
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        match self {
            Target::Range(_) => reth::LEN,
            Target::Atomic(_) => atomic_eth::LEN,
        }
    }
}

/// An operation of an operation list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// RC op-code: READ Request, WRITE Only, CmpSwap or FetchAdd.
    pub opcode: Opcode,
    /// The PRISM flags of the operation.
    pub flags: Flags,
    /// Extension header of the operation.
    pub target: Target,
    /// Addresses, operands and payload.
    pub bytes: &'a [u8],
}

/// Returns `len` rounded up to a multiple of four.
#[inline(always)]
const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Returns the length of an operation in the packet, with `bytes` bytes after its header.
#[inline]
pub fn len_of(opcode: Opcode, bytes: usize) -> usize {
    HEAD + opcode.header_len() - crate::bth::LEN + padded(bytes)
}

/// Writes an operation at the start of `out`, without its `len` bytes. Returns the place for those bytes and
/// the total length, or `None` if `out` is shorter.
#[inline(always)]
pub fn emit<'o>(
    opcode: Opcode,
    flags: Flags,
    target: &Target,
    len: usize,
    out: &'o mut [u8],
) -> Option<(&'o mut [u8], usize)> {
    let start = HEAD + target.len();
    let total = start + padded(len);
    let out = out.get_mut(..total)?;
    out[0] = opcode.0;
    out[1] = flags.bits();
    out[2..HEAD].copy_from_slice(U16::new(len as u16).as_bytes());
    target.emit(&mut out[HEAD..]);
    if !len.is_multiple_of(4) {
        out[start + len..].fill(0);
    }
    Some((&mut out[start..start + len], total))
}

/// Iterator over the operations in the payload of an operation list.
#[derive(Copy, Clone, Debug)]
pub struct Operations<'a>(&'a [u8]);

/// Returns the operations in the payload of an operation list.
#[inline]
pub fn operations(payload: &[u8]) -> Operations<'_> {
    Operations(payload)
}

impl<'a> Operations<'a> {
    #[inline(always)]
    fn operation(&mut self) -> Result<Operation<'a>, WireError> {
        let (&[code, flags, high, low], rest) = self.0.split_first_chunk().ok_or(WireError::Truncated)?;
        let opcode = Opcode(code);
        let len = usize::from(u16::from_be_bytes([high, low]));
        let target = Target::parse(opcode, rest)?;
        let start = target.len();
        let bytes = rest.get(start..start + len).ok_or(WireError::Truncated)?;
        self.0 = rest.get(start + padded(len)..).ok_or(WireError::Truncated)?;
        Ok(Operation { opcode, flags: Flags::from_bits(flags), target, bytes })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, WireError>;

    /// Ends after the first invalid operation.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let operation = self.operation();
        if operation.is_err() {
            self.0 = &[];
        }
        Some(operation)
    }
}

/// Returns the length of an answer with `bytes` bytes of data.
#[inline]
pub const fn answer_len(bytes: usize) -> usize {
    HEAD + padded(bytes)
}

/// Writes the answer to one operation at the start of `out`. Returns its length, or `None` if `out` is
/// shorter.
#[inline(always)]
pub fn emit_answer(verdict: Verdict, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let total = answer_len(bytes.len());
    let out = out.get_mut(..total)?;
    out[..HEAD].copy_from_slice(&[verdict.credits(), bytes.len() as u8, 0, 0]);
    let (own, zeros) = out[HEAD..].split_at_mut(bytes.len());
    own.copy_from_slice(bytes);
    if !zeros.is_empty() {
        zeros.fill(0);
    }
    Some(total)
}

/// Iterator over the answers in the payload of an operation list's answer.
#[derive(Copy, Clone, Debug)]
pub struct Answers<'a>(&'a [u8]);

/// Returns the answers in the payload of an operation list's answer.
#[inline]
pub fn answers(payload: &[u8]) -> Answers<'_> {
    Answers(payload)
}

impl Answers<'_> {
    /// Returns true if all answers were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Answers<'a> {
    type Item = (Verdict, &'a [u8]);

    /// Returns `None` at the end and at an invalid answer. At an invalid answer the iterator does not
    /// advance, so `is_empty` stays false.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (&[verdict, len, ..], rest) = self.0.split_first_chunk::<HEAD>()?;
        let verdict = Verdict::of(Syndrome(verdict))?;
        let bytes = rest.get(..usize::from(len))?;
        self.0 = rest.get(padded(bytes.len())..)?;
        Some((verdict, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RETH: reth::Repr = reth::Repr { va: 0x1122_3344_5566_7788, rkey: 0x0102_0304, dma_len: 5 };

    /// Returns a conditional WRITE of five bytes, followed by a CmpSwap without payload.
    fn two() -> Vec<u8> {
        let mut bytes = vec![0x5a; 64];
        let flags = Flags::CONDITIONAL;
        let (payload, first) =
            emit(Opcode::RC_RDMA_WRITE_ONLY, flags, &Target::Range(RETH), 5, &mut bytes).unwrap();
        payload.copy_from_slice(b"hello");
        let eth = atomic_eth::Repr { va: 8, rkey: 7, swap_add: 6, compare: 5 };
        let swap = Opcode::RC_COMPARE_SWAP;
        let flags = Flags::EXTENDED;
        let (_, second) = emit(swap, flags, &Target::Atomic(eth), 0, &mut bytes[first..]).unwrap();
        assert_eq!(
            [first, second],
            [len_of(Opcode::RC_RDMA_WRITE_ONLY, 5), len_of(Opcode::RC_COMPARE_SWAP, 0)]
        );
        bytes.truncate(first + second);
        bytes
    }

    #[test]
    fn literal_bytes() {
        let bytes = two();
        let first = [
            &[0x0a, 0x08, 0, 5][..],
            &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 0, 0, 0, 5],
            b"hello\0\0\0",
        ];
        assert_eq!(bytes[..28], first.concat());
        assert_eq!(bytes[28..32], [0x13, 0x01, 0, 0]);
        let list: Vec<_> = operations(&bytes).map(Result::unwrap).collect();
        assert_eq!((list[0].target, list[0].bytes), (Target::Range(RETH), &b"hello"[..]));
        assert_eq!((list[1].opcode, list[1].flags), (Opcode::RC_COMPARE_SWAP, Flags::EXTENDED));
        assert_eq!((list.len(), list[1].bytes.len()), (2, 0));

        let mut answer = [0x5a; 16];
        assert_eq!(emit_answer(Verdict::NotSwapped, b"oh", &mut answer), Some(8));
        assert_eq!(answer[..8], [1, 2, 0, 0, b'o', b'h', 0, 0]);
        let mut parsed = answers(&answer[..8]);
        assert_eq!(parsed.next(), Some((Verdict::NotSwapped, &b"oh"[..])));
        assert!(parsed.is_empty() && parsed.next().is_none());
    }

    #[test]
    fn what_makes_no_sense_ends_it() {
        let bytes = two();
        for len in 1..bytes.len() {
            let list: Vec<_> = operations(&bytes[..len]).collect();
            let whole = usize::from(len >= 28);
            let ends = if len == 28 { 0 } else { 1 };
            assert_eq!(list.iter().filter(|operation| operation.is_ok()).count(), whole, "{len}");
            assert_eq!(list.iter().filter(|operation| operation.is_err()).count(), ends, "{len}");
        }
        let send = [&[Opcode::RC_SEND_ONLY.0, 0, 0, 0][..], &bytes[4..]].concat();
        let unknown = Err(WireError::UnknownOpcode(Opcode::RC_SEND_ONLY.0));
        assert_eq!(operations(&send).collect::<Vec<_>>(), [unknown]);
        for bad in [&[5, 0, 0, 0][..], &[0, 0, 0, 0], &[31, 4, 0, 0], &[31, 1, 0, 0, 9], &[31, 0, 0]] {
            let mut parsed = answers(bad);
            assert!(parsed.next().is_none() && !parsed.is_empty());
        }
        assert!(
            emit(Opcode::RC_RDMA_WRITE_ONLY, Flags::NONE, &Target::Range(RETH), 5, &mut [0; 27]).is_none()
        );
        assert!(emit_answer(Verdict::Done, &[0; 9], &mut [0; 15]).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes: Vec<u8>) {
            let len = |operation: Operation<'_>| len_of(operation.opcode, operation.bytes.len());
            let taken: usize = operations(&bytes).flatten().map(len).sum();
            prop_assert!(taken <= bytes.len());
            prop_assert!(answers(&bytes).count() <= bytes.len() / HEAD);
        }
    }
}
