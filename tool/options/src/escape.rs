//! How bytes are written that would break a line or are no text: values that are shown, and keys that a
//! person names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Bytes as a line shows them: a backslash twice, control characters as `\n`, `\t` or `\x1f`, and bytes that
/// are no UTF-8 as `\xff`.
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
                // U+0080 to U+009F as well: terminals obey U+009B as they do ESC [.
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

/// The bytes of [`escape`]; `\s` is a space.
///
/// # Errors
/// Something else stands behind a backslash.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
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
                (digits.ok_or("\\x wants two hexadecimal digits: \\x1f")?, 3)
            }
            _ => {
                return Err(
                    "behind a \\ stands \\, n, t, s (a space) or x1f: a backslash is written \\\\".to_owned()
                );
            }
        };
        out.push(byte);
        rest = &rest[len..];
    }
    Ok(out)
}

/// A key as a person names it on the command line.
#[derive(clap::Args, Clone, Debug)]
pub struct KeyWords {
    /// Keys are written with escapes, as they are shown: \xff is a byte, \s a space, \n a line feed, \t a
    /// tab, \\ a backslash.
    #[arg(long)]
    pub escaped: bool,
}

impl KeyWords {
    /// The bytes of a key.
    ///
    /// # Errors
    /// Its escapes are none.
    pub fn bytes(&self, word: &OsStr) -> anyhow::Result<Vec<u8>> {
        if !self.escaped {
            return Ok(word.as_bytes().to_vec());
        }
        unescape(word.as_bytes()).map_err(|words| anyhow::anyhow!("{}: {words}", shown(word.as_bytes())))
    }
}

/// A key as a message shows it.
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
