//! Fingerprints, tokens and keys as people write them.

use std::fmt;

/// The bytes of a text of hexadecimal digits, which colons may part.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut digits = text.chars().filter(|c| *c != ':');
    for byte in &mut bytes {
        let [high, low] = [digits.next()?.to_digit(16)?, digits.next()?.to_digit(16)?];
        *byte = (high << 4 | low) as u8;
    }
    digits.next().is_none().then_some(bytes)
}

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
