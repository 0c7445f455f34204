//! How far a listing has come.

use crate::words::{set_u64, u64_at};

/// Where a listing is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The next index position; at or behind the last one: moves are listed.
    pub(super) position: u64,
    /// The first move that the listing has not seen.
    pub(super) unseen: u64,
}

pub(super) const UNKNOWN: u64 = u64::MAX;

impl Cursor {
    /// Bytes of one.
    pub const LEN: usize = 16;
    /// Where a listing begins.
    pub const START: Cursor = Cursor { position: 0, unseen: UNKNOWN };
    /// Where it ends.
    pub(super) const END: Cursor = Cursor { position: UNKNOWN, unseen: UNKNOWN };

    /// The bytes that a request has as its key.
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
