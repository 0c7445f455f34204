//! The op-codes that StRoM adds to RoCE (StRoM paper, §5.1 and Table 1). `docs/reference/wire/offloads.md`
//! shows their layout.
//!
//! The five op-codes have the headers of RDMA WRITEs: RPC Params, and RPC WRITE First, Middle, Last and
//! Only. Their RETH has another meaning: the address is the RPC op-code, which selects a kernel of the
//! responder's NIC; the key is the requester's [`Tag`] of the request; the length is that of the message.
//! Parameters start with a RETH of their own: address, key and maximum length of the answers.
//!
//! An answer is an RDMA WRITE with immediate data from the responder; the immediate data is an [`Ending`].
//! An answer without data needs no address, so errors can always be reported.

use core::fmt;

use crate::{WireError, reth};

/// Number that the requester chose for a request, 24 bits; returned with the answer.
pub type Tag = u32;

/// The bits of a [`Tag`].
pub const TAG_MASK: Tag = 0x00ff_ffff;

/// Length of the RETH before the kernel's own parameters, in bytes.
pub const HEAD_LEN: usize = reth::LEN;

/// Splits the parameters of an RPC into the RETH for its answers and the kernel's own parameters.
///
/// # Errors
/// [`WireError::Truncated`] if `params` is shorter than [`HEAD_LEN`].
pub fn split(params: &[u8]) -> Result<(reth::Repr, &[u8]), WireError> {
    let head = reth::Repr::parse(&reth::View::new(params)?);
    Ok((head, &params[HEAD_LEN..]))
}

/// Result of a request to a kernel. Values from 64 on are defined by the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// The kernel succeeded.
    pub const DONE: Status = Status(0);
    /// The object, such as a key, does not exist.
    pub const MISS: Status = Status(1);
    /// No kernel has this op-code, and no program accepts it either.
    pub const NO_KERNEL: Status = Status(2);
    /// The parameters are invalid.
    pub const BAD_PARAMS: Status = Status(3);
    /// The kernel accessed memory without permission.
    pub const ACCESS: Status = Status(4);
    /// The kernel exceeded the maximum number of steps.
    pub const TOO_LONG: Status = Status(5);
    /// The answer is longer than its buffer.
    pub const NO_ROOM: Status = Status(6);
    /// The object kept changing: its check value was wrong in every attempt.
    pub const INCONSISTENT: Status = Status(7);
    /// The kernel was removed before the request ended.
    pub const REMOVED: Status = Status(8);
    /// The kernel crashed.
    pub const FAILED: Status = Status(9);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Status::DONE => "done",
            Status::MISS => "not found",
            Status::NO_KERNEL => "no kernel has this op-code",
            Status::BAD_PARAMS => "the parameters make no sense to the kernel",
            Status::ACCESS => "an address led the kernel to memory that it has no right to",
            Status::TOO_LONG => "the kernel took more steps than a request may",
            Status::NO_ROOM => "the answer is longer than the buffer for it",
            Status::INCONSISTENT => "the check value was wrong in every attempt",
            Status::REMOVED => "the kernel was removed",
            Status::FAILED => "the kernel failed",
            Status(other) => return write!(f, "kernel's own status {other}"),
        })
    }
}

/// The immediate data of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Result of the request.
    pub status: Status,
    /// Number of the request, 24 bits.
    pub tag: Tag,
}

impl Ending {
    /// Decodes immediate data.
    #[inline]
    pub const fn parse(imm: u32) -> Ending {
        Ending { status: Status((imm >> 24) as u8), tag: imm & TAG_MASK }
    }

    /// Encodes immediate data.
    #[inline]
    pub const fn emit(&self) -> u32 {
        (self.status.0 as u32) << 24 | self.tag & TAG_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literal_bytes() {
        let params = [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // address
            0x11, 0x12, 0x13, 0x14, // key
            0x00, 0x00, 0x10, 0x00, // bytes for answers
            0xca, 0xfe, // the kernel's own
        ];
        let head = reth::Repr { va: 0x0102_0304_0506_0708, rkey: 0x1112_1314, dma_len: 4096 };
        assert_eq!(split(&params), Ok((head, &[0xca, 0xfe][..])));
        assert_eq!(Ending { status: Status::MISS, tag: 0x00ab_cdef }.emit(), 0x01ab_cdef);
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..HEAD_LEN {
            assert_eq!(split(&[0; HEAD_LEN][..len]), Err(WireError::Truncated));
        }
    }

    #[test]
    fn every_status_has_words_of_its_own() {
        let words: std::collections::BTreeSet<String> =
            (0..=255).map(|number| Status(number).to_string()).collect();
        assert_eq!(words.len(), 256);
    }

    proptest! {
        #[test]
        fn any_immediate_data_are_an_ending(imm: u32) {
            prop_assert_eq!(Ending::parse(imm).emit(), imm);
        }
    }
}
