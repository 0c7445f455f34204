//! Parsing of sizes in bytes as users write them.

/// Parses a number of bytes, with an optional suffix k, m or g for multiples of 1024, 1024² and 1024³.
///
/// # Errors
/// A message if the text is not such a number, or if the number is too large.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, unit) = match lower.strip_suffix(['k', 'm', 'g']) {
        None => (lower.as_str(), 0),
        Some(digits) => (
            digits,
            if lower.ends_with('k') {
                10
            } else if lower.ends_with('m') {
                20
            } else {
                30
            },
        ),
    };
    let parsed = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << unit));
    parsed.ok_or_else(|| format!("`{text}` is not a number of bytes: write it as 1000000, 500k, 64m or 1g"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_number_and_perhaps_a_letter() {
        for (text, bytes) in [("0", 0), ("512", 512), ("4k", 4096), ("64M", 64 << 20), ("1g", 1 << 30)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", " 1g", "1é", "g", "1.5g", "-1", "1t", "1gg", "20000000000g"] {
            assert!(parse_bytes(text).unwrap_err().contains("64m"), "{text}");
        }
    }
}
