//! The messages between clients and the keeper, in SENDs. All numbers are little-endian.
//!
//! - A client returns buffers: "RRET", their count (32 bits), the grace number that it has reached (64 bits),
//!   their addresses.
//! - A keeper announces a grace number: "RGRC", 32 bits of 0, the number.

use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Maximum number of buffers in one message.
pub const MOST: usize = 30;
/// Bytes before the addresses.
const HEAD: usize = 16;
/// Bytes of the longest message.
pub const LONGEST: usize = HEAD + MOST * 8;
/// Bytes of a keeper's message.
pub(crate) const GRACE: usize = 16;

const RETURN_MAGIC: u32 = u32::from_le_bytes(*b"RRET");
const GRACE_MAGIC: u32 = u32::from_le_bytes(*b"RGRC");

/// Returns the length in bytes of a message with `count` addresses.
pub(crate) fn returned_len(count: usize) -> usize {
    HEAD + count * 8
}

/// Writes a client's message to `out` and returns its length in bytes.
pub(crate) fn emit_returned(
    out: &mut [u8; LONGEST],
    grace: u64,
    addresses: impl Iterator<Item = u64>,
) -> usize {
    let mut count = 0;
    for address in addresses.take(MOST) {
        set_u64(out, HEAD + count * 8, address);
        count += 1;
    }
    set_u32(out, 0, RETURN_MAGIC);
    set_u32(out, 4, count as u32);
    set_u64(out, 8, grace);
    returned_len(count)
}

/// Parses a client's message: the grace number and the addresses. Returns `None` if the message is
/// malformed.
pub(crate) fn parse_returned(bytes: &[u8]) -> Option<(u64, impl Iterator<Item = u64> + '_)> {
    let head = bytes.get(..HEAD)?;
    let count = u32_at(head, 4) as usize;
    let right = u32_at(head, 0) == RETURN_MAGIC && count <= MOST && bytes.len() == returned_len(count);
    right.then(|| (u64_at(head, 8), bytes[HEAD..].chunks_exact(8).map(|word| u64_at(word, 0))))
}

/// Returns the keeper's message that announces a grace number.
pub(crate) fn emit_grace(grace: u64) -> [u8; GRACE] {
    let mut out = [0; GRACE];
    set_u32(&mut out, 0, GRACE_MAGIC);
    set_u64(&mut out, 8, grace);
    out
}

/// Parses a keeper's message and returns the grace number, or `None` if the message is malformed.
pub(crate) fn parse_grace(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == GRACE && u32_at(bytes, 0) == GRACE_MAGIC).then(|| u64_at(bytes, 8))
}
