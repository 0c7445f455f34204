//! The format of a key's slot, and of a version's buffer (`docs/internals/stores/transactions.md` draws
//! them).

use super::timestamp::{Timestamp, TxState};
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Bytes of a slot: address and bound of the latest version's buffer, PR, PW.
pub(crate) const SLOT: u64 = 32;
/// Offset of PR and PW in a slot.
pub(crate) const MARKS: u64 = 16;
/// Bytes before the key in a buffer.
pub const HEADER: usize = 64;
/// `value_len` of a version in which the key is absent.
const ABSENT: u32 = u32::MAX;
/// `key_len` of the buffer to which all slots point that never held a key.
const NO_KEY: u32 = u32::MAX;

/// A reference to a version, from a slot or a newer version.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionRef {
    /// Address of the version's buffer.
    pub addr: u64,
    /// Number of used bytes in the buffer.
    pub bound: u64,
    /// The version's timestamp, which is the slot's PW while the version is the latest.
    pub version: Timestamp,
}

impl VersionRef {
    /// Returns the reference of a slot that never held a key.
    pub(crate) fn empty(addr: u64) -> VersionRef {
        VersionRef { addr, bound: HEADER as u64, version: Timestamp::default() }
    }
}

/// The slot of a key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The latest version, committed or pending.
    pub latest: VersionRef,
    /// PR: the slot accepts no version with a lower timestamp.
    pub read: Timestamp,
}

impl Slot {
    pub(crate) fn words(&self) -> [u64; 4] {
        [self.latest.addr, self.latest.bound, self.read.word(), self.latest.version.word()]
    }

    pub(crate) fn of(words: [u64; 4]) -> Slot {
        let [addr, bound, read, version] = words;
        Slot {
            latest: VersionRef { addr, bound, version: Timestamp::of(version) },
            read: Timestamp::of(read),
        }
    }
}

/// The location of a transaction's decision cell.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub shard: u16,
    pub index: u32,
}

/// The header of a version's buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Address of this buffer. It is 0 until the version is committed and a client has written it.
    pub own: u64,
    /// Timestamp of the version.
    pub version: Timestamp,
    /// State of the version's transaction: pending or committed.
    pub tx_state: TxState,
    /// The previous version.
    pub before: VersionRef,
    /// The decision cell of the version's transaction.
    pub cell: Cell,
    /// Length of the key; `None` in the buffer of slots that never held a key.
    pub key_len: Option<u32>,
    /// Length of the value; `None` if the key is absent in this version.
    pub value_len: Option<u32>,
}

impl Header {
    pub(crate) fn emit(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        set_u64(&mut out, 0, self.own);
        set_u64(&mut out, 8, self.version.is(self.tx_state));
        set_u64(&mut out, 16, self.before.addr);
        set_u64(&mut out, 24, self.before.bound);
        set_u64(&mut out, 32, self.before.version.word());
        set_u32(&mut out, 40, self.cell.index);
        set_u32(&mut out, 44, self.cell.shard.into());
        set_u32(&mut out, 48, self.key_len.unwrap_or(NO_KEY));
        set_u32(&mut out, 52, self.value_len.unwrap_or(ABSENT));
        out
    }

    /// Parses a header. Returns `None` if the bytes are not the header of a version.
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Header> {
        let before = VersionRef {
            addr: u64_at(bytes, 16),
            bound: u64_at(bytes, 24),
            version: Timestamp::of(u64_at(bytes, 32)),
        };
        let len = |offset: usize, none: u32| Some(u32_at(bytes, offset)).filter(|len| *len != none);
        Some(Header {
            own: u64_at(bytes, 0),
            version: Timestamp::of(u64_at(bytes, 8)),
            tx_state: TxState::of(u64_at(bytes, 8)).filter(|tx_state| *tx_state != TxState::Aborted)?,
            before,
            cell: Cell { index: u32_at(bytes, 40), shard: u16::try_from(u32_at(bytes, 44)).ok()? },
            key_len: len(48, NO_KEY),
            value_len: len(52, ABSENT),
        })
    }

    /// Returns the number of used bytes in the buffer.
    pub(crate) fn bound(&self) -> u64 {
        let len = |len: Option<u32>| u64::from(len.unwrap_or(0));
        HEADER as u64 + len(self.key_len) + len(self.value_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_slots_come_back_as_they_went() {
        let before = VersionRef { addr: 0x1000, bound: 99, version: Timestamp::new(7, 3) };
        let header = Header {
            own: 0x2000,
            version: Timestamp::new(8, 2),
            tx_state: TxState::Committed,
            before,
            cell: Cell { shard: 3, index: 17 },
            key_len: Some(5),
            value_len: None,
        };
        assert_eq!(Header::parse(&header.emit()), Some(header));
        assert_eq!(header.bound(), 69);
        let slot = Slot { latest: before, read: Timestamp::new(9, 1) };
        assert_eq!(Slot::of(slot.words()), slot);
    }

    #[test]
    fn a_state_that_no_version_has_is_no_header() {
        for state in [2, 3] {
            let mut bytes = [0; HEADER];
            bytes[8] = state;
            assert_eq!(Header::parse(&bytes), None);
        }
        let mut bytes = [0; HEADER];
        bytes[46] = 1;
        assert_eq!(Header::parse(&bytes), None, "a shard beyond 65535");
    }
}
