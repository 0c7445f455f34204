//! Little-endian integers at byte offsets of a slice.

#[cfg(not(target_endian = "little"))]
compile_error!("tables are little-endian and are read by word: a big-endian machine needs swaps in `region`");

/// Returns the 16-bit integer at this byte offset.
#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let mut word = [0; 2];
    word.copy_from_slice(&bytes[offset..offset + 2]);
    u16::from_le_bytes(word)
}

/// Returns the 32-bit integer at this byte offset.
#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

/// Returns the 64-bit integer at this byte offset.
#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

/// Stores a 16-bit integer at this byte offset.
#[inline(always)]
pub(crate) fn set_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
}

/// Stores a 32-bit integer at this byte offset.
#[inline(always)]
pub(crate) fn set_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Stores a 64-bit integer at this byte offset.
#[inline(always)]
pub(crate) fn set_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}
