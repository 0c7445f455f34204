//! Values that are shorter than the blocks that hold them.

use anyhow::{Result, ensure};

/// Returns the block without the zeros at its end.
pub(crate) fn shown(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &value[..end]
}

/// Returns the value, filled with zeros to the length of a block.
///
/// # Errors
/// Fails if the value is longer than a block.
pub(crate) fn padded(mut value: Vec<u8>, block_len: u32) -> Result<Vec<u8>> {
    let len = block_len as usize;
    ensure!(value.len() <= len, "the value is longer than a block of {len} bytes");
    value.resize(len, 0);
    Ok(value)
}
