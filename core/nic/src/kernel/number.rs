//! Numbers in parameters and in memory, little-endian.

/// The 8 bytes from `offset` on.
pub(super) fn long(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The 4 bytes from `offset` on.
pub(super) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}
