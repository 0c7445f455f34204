//! Escapes in texts for a terminal or a line: printed values and keys, and keys on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Returns the bytes in a form that fits on one line of text: backslashes are doubled, control characters
/// become `\n`, `\t` or `\x1f`, and bytes that are not UTF-8 become `\xff`.
pub fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            match character {
                '\\' => out.extend(b"\\\\"),
                '\n' => out.extend(b"\\n"),
                '\t' => out.extend(b"\\t"),
                // This includes U+0080 to U+009F: terminals treat U+009B as ESC [.
                _ if character.is_control() => {
                    bytes.iter().for_each(|byte| out.extend(format!("\\x{byte:02x}").bytes()));
                }
                _ => out.extend(bytes),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.extend(format!("\\x{byte:02x}").bytes()));
    }
    out
}

/// Reverses [`escape`]. In addition, `\s` stands for a space.
///
/// # Errors
/// Returns a message if a backslash is followed by anything else.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (byte, len) = match rest {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b's', ..] => (b' ', 1),
            [b'x', high, low, ..] => {
                let digits = [*high, *low];
                let digits =
                    std::str::from_utf8(&digits).ok().and_then(|text| u8::from_str_radix(text, 16).ok());
                (digits.ok_or("\\x needs two hexadecimal digits, as in \\x1f")?, 3)
            }
            _ => {
                return Err(
                    "unknown escape: use \\\\ for a backslash, \\n, \\t, \\s (space) or \\x1f".to_owned()
                );
            }
        };
        out.push(byte);
        rest = &rest[len..];
    }
    Ok(out)
}

/// Options for keys on the command line.
#[derive(clap::Args, Clone, Debug)]
pub struct KeyWords {
    /// Read escapes in keys, as they are printed: \xff is a byte, \s a space, \n a line feed, \t a tab, \\
    /// a backslash [default: keys are taken literally].
    #[arg(long)]
    pub escaped: bool,
}

impl KeyWords {
    /// Returns the bytes of a key.
    ///
    /// # Errors
    /// Fails if `--escaped` is set and the key contains an invalid escape.
    pub fn bytes(&self, word: &OsStr) -> anyhow::Result<Vec<u8>> {
        if !self.escaped {
            return Ok(word.as_bytes().to_vec());
        }
        unescape(word.as_bytes()).map_err(|words| anyhow::anyhow!("{}: {words}", shown(word.as_bytes())))
    }
}

/// Returns a key in a printable form for messages.
pub fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&escape(key)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: U+0080 to U+009F were printed as they are.
    #[test]
    fn every_byte_comes_back_as_it_went() {
        let all: Vec<u8> = (0..=255).collect();
        let shown = escape(&all);
        assert!(
            shown.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f) && std::str::from_utf8(&shown).is_ok()
        );
        assert_eq!(escape("\u{9b}31m".as_bytes()), b"\\xc2\\x9b31m");
        assert_eq!(escape("blå\u{e9}".as_bytes()), "blå\u{e9}".as_bytes());
        assert_eq!(unescape(&shown), Ok(all));
    }
}
