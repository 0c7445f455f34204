//! The progress of a listing.

use crate::words::{set_u64, u64_at};

/// The position of a listing in the table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The next index position. From the end of the index on, the listing visits positions that keys moved
    /// to.
    pub(super) position: u64,
    /// Number of the first move that the listing has not visited.
    pub(super) unseen: u64,
}

pub(super) const UNKNOWN: u64 = u64::MAX;

impl Cursor {
    /// Bytes of an encoded cursor.
    pub const LEN: usize = 16;
    /// The beginning of a listing.
    pub const START: Cursor = Cursor { position: 0, unseen: UNKNOWN };
    /// The end of a listing.
    pub(super) const END: Cursor = Cursor { position: UNKNOWN, unseen: UNKNOWN };

    /// Encodes the cursor as the key of a LIST request.
    pub fn encode(self) -> [u8; Cursor::LEN] {
        let mut out = [0; Cursor::LEN];
        set_u64(&mut out, 0, self.position);
        set_u64(&mut out, 8, self.unseen);
        out
    }

    pub(super) fn decode(bytes: &[u8; Cursor::LEN]) -> Cursor {
        Cursor { position: u64_at(bytes, 0), unseen: u64_at(bytes, 8) }
    }
}
