//! PRISM addresses at the responder: the target of an operation's output, and the source of a WRITE's data.
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                                                               |
//!   +               redirect address (if REDIRECT)                  +
//!  4|                                                               |
//!   +---------------------------------------------------------------+
//!  8|                                                               |
//!   +       source address (if DATA_INDIRECT, and a WRITE)          +
//! 12|                                                               |
//!   +---------------------------------------------------------------+
//! ```
//!
//! Only the first packet of a request carries them. Both addresses are under the key of the operation or in
//! scratch memory.

use zerocopy::network_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::Flags;
use crate::{Opcode, Operation, WireError};

/// Length of one address in bytes.
const EACH: usize = 8;
/// Maximum length in bytes, for both addresses.
pub const MAX_LEN: usize = 2 * EACH;

/// The addresses of one packet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Repr {
    /// Address to which the output is written.
    pub redirect: Option<u64>,
    /// Address of the data of a WRITE.
    pub source: Option<u64>,
}

/// Returns which of the addresses redirect and source a packet has.
#[inline]
fn shape(opcode: Opcode, flags: Flags) -> (bool, bool) {
    let starts = opcode.is_request() && (opcode.is_first() || opcode.is_only());
    let write = opcode.operation() == Some(Operation::Write);
    (starts && flags.has(Flags::REDIRECT), starts && write && flags.has(Flags::DATA_INDIRECT))
}

impl Repr {
    /// Returns the addresses of a request with these flags and the bytes after them, or
    /// [`WireError::Truncated`].
    #[inline]
    pub fn split(opcode: Opcode, flags: Flags, bytes: &[u8]) -> Result<(Repr, &[u8]), WireError> {
        let (redirect, source) = shape(opcode, flags);
        let mut rest = bytes;
        let mut take = |there: bool| -> Result<Option<u64>, WireError> {
            if !there {
                return Ok(None);
            }
            let (address, behind) = U64::read_from_prefix(rest).map_err(|_| WireError::Truncated)?;
            rest = behind;
            Ok(Some(address.get()))
        };
        let addresses = Repr { redirect: take(redirect)?, source: take(source)? };
        Ok((addresses, rest))
    }

    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        EACH * (usize::from(self.redirect.is_some()) + usize::from(self.source.is_some()))
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the addresses at the start of `out` and returns their length. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut offset = 0;
        for address in [self.redirect, self.source].into_iter().flatten() {
            out[offset..offset + EACH].copy_from_slice(U64::new(address).as_bytes());
            offset += EACH;
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; 16] =
        [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08];
    const BOTH: Repr = Repr { redirect: Some(0x1122_3344_5566_7788), source: Some(0x0102_0304_0506_0708) };

    #[test]
    fn literal_bytes() {
        let flags = Flags::REDIRECT.and(Flags::DATA_INDIRECT);
        let mut packet = BYTES.to_vec();
        packet.extend(b"rest");
        let opcode = Opcode::RC_RDMA_WRITE_ONLY;
        assert_eq!(Repr::split(opcode, flags, &packet), Ok((BOTH, &b"rest"[..])));
        let mut out = [0x5a; 17];
        assert_eq!((BOTH.emit(&mut out), BOTH.len()), (16, MAX_LEN));
        assert_eq!((&out[..16], out[16]), (&BYTES[..], 0x5a));
    }

    #[test]
    fn which_packets_have_which_addresses() {
        let both = Flags::REDIRECT.and(Flags::DATA_INDIRECT);
        let cases = [
            (Opcode::RC_RDMA_READ_REQUEST, Flags::REDIRECT, (true, false)),
            (Opcode::RC_RDMA_READ_REQUEST, both, (true, false)),
            (Opcode::RC_COMPARE_SWAP, both, (true, false)),
            (Opcode::RC_FETCH_ADD, Flags::DATA_INDIRECT, (false, false)),
            (Opcode::RC_RDMA_WRITE_FIRST, both, (true, true)),
            (Opcode::RC_RDMA_WRITE_MIDDLE, both, (false, false)),
            (Opcode::RC_RDMA_WRITE_LAST, both, (false, false)),
            (Opcode::RC_RDMA_WRITE_ONLY, Flags::ALLOCATE, (false, false)),
            (Opcode::RC_RDMA_READ_RESPONSE_ONLY, both, (false, false)),
        ];
        for (opcode, flags, (redirect, source)) in cases {
            let (addresses, rest) = Repr::split(opcode, flags, &BYTES).unwrap();
            assert_eq!(
                (addresses.redirect.is_some(), addresses.source.is_some()),
                (redirect, source),
                "{opcode}"
            );
            assert_eq!(rest.len() + addresses.len(), BYTES.len());
        }
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..16 {
            let split = Repr::split(
                Opcode::RC_RDMA_WRITE_FIRST,
                Flags::REDIRECT.and(Flags::DATA_INDIRECT),
                &BYTES[..len],
            );
            assert_eq!(split, Err(WireError::Truncated));
        }
    }

    proptest! {
        #[test]
        fn any_addresses_round_trip(redirect: u64, source: u64) {
            let repr = Repr { redirect: Some(redirect), source: Some(source) };
            let mut out = [0; MAX_LEN];
            repr.emit(&mut out);
            let flags = Flags::REDIRECT.and(Flags::DATA_INDIRECT);
            prop_assert_eq!(Repr::split(Opcode::RC_RDMA_WRITE_ONLY, flags, &out), Ok((repr, &[][..])));
        }
    }
}
