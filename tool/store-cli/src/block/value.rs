//! Values, which are shorter than the blocks that hold them.

use anyhow::{Result, ensure};

/// A block without the zeros at its end.
pub fn shown(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &value[..end]
}

/// A value with zeros behind it.
///
/// # Errors
/// It is longer than a block.
pub fn padded(mut value: Vec<u8>, block_len: u32) -> Result<Vec<u8>> {
    let len = block_len as usize;
    ensure!(value.len() <= len, "the value has more than the {len} bytes of a block");
    value.resize(len, 0);
    Ok(value)
}
