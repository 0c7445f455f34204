//! Conversion of fingerprints, tokens and keys from and to hexadecimal text.

use std::fmt;

/// Parses `N` bytes from hexadecimal digits; colons between the digits are ignored. Returns `None` if the
/// text has another character or another number of digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut digits = text.chars().filter(|c| *c != ':');
    for byte in &mut bytes {
        let [high, low] = [digits.next()?.to_digit(16)?, digits.next()?.to_digit(16)?];
        *byte = (high << 4 | low) as u8;
    }
    digits.next().is_none().then_some(bytes)
}

/// Writes bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
