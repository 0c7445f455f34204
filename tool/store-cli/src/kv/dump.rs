//! `remora kv scan` and `remora kv dump`: print the contents of a table in a format that `remora kv load`
//! reads.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use remora_store::load::{BOM, Pair};
use serde::{Deserialize, Serialize};

use super::load::{Stored, put};
use remora_options::escape::escape;
use remora_options::{output, print};
use remora_service::kv::KvSession;

/// A pair as a line of JSON. Keys and values that are UTF-8 are text, all others base64.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// Returns the bytes as text if they are UTF-8, otherwise in base64.
fn field(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

/// Returns the bytes of a key or value. Exactly one of `text` and `base64` must be present.
fn bytes(text: Option<String>, base64: Option<String>, name: &str) -> Result<Vec<u8>> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => Ok(BASE64_STANDARD.decode(base64)?),
        _ => bail!("give either {name:?} or \"{name}_base64\""),
    }
}

/// Parses the key and the value of a line of `kv dump --json`.
///
/// # Errors
/// Fails if the line is not such a JSON object.
pub(crate) fn parse(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let Record { key, key_base64, value, value_base64 } = serde_json::from_slice(line)?;
    Ok((bytes(key, key_base64, "key")?, bytes(value, value_base64, "value")?))
}

/// Returns the line of JSON for a key, with its value if there is one.
fn json(key: &[u8], value: Option<&[u8]>) -> Result<String> {
    let (key, key_base64) = field(key);
    let (value, value_base64) = value.map_or((None, None), field);
    Ok(serde_json::to_string(&Record { key, key_base64, value, value_base64 })?)
}

/// Returns whether `remora kv load` would read the same pair back from a `key value` line.
fn is_line(key: &[u8], value: &[u8]) -> bool {
    let ends_key = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n');
    !key.is_empty() && !key.iter().any(ends_key) && !value.contains(&b'\n') && !value.ends_with(b"\r")
}

/// Selection of keys and the output format.
pub(crate) struct Wanted {
    /// Required prefix of a key.
    pub prefix: Vec<u8>,
    /// Maximum number of keys.
    pub limit: u64,
    /// True for JSON, false for `key value` lines.
    pub json: bool,
}

/// Returns the selected keys, sorted and without duplicates.
fn keys(session: &mut impl KvSession, wanted: &Wanted) -> Result<Vec<Vec<u8>>> {
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    session.list(&mut |key| {
        if key.starts_with(&wanted.prefix) && (keys.len() as u64) < wanted.limit && seen.insert(key.to_vec())
        {
            keys.push(key.to_vec());
        }
        Ok(())
    })?;
    keys.sort_unstable();
    Ok(keys)
}

/// Prints the selected keys, sorted, one on each line. Control characters and bytes that are not UTF-8 are
/// escaped, unless the output is JSON.
///
/// # Errors
/// Fails if the connection fails.
pub(crate) fn scan(session: &mut impl KvSession, wanted: &Wanted) -> Result<()> {
    for key in keys(session, wanted)? {
        match wanted.json {
            true => print::line(json(&key, None)?),
            false => print::bytes(&[&escape(&key)[..], b"\n"].concat()),
        }
    }
    Ok(())
}

/// Prints the selected pairs, sorted by key, one on each line.
///
/// # Errors
/// Fails if the connection fails, or if some pairs cannot be written as a `key value` line and were left
/// out.
pub(crate) fn dump(session: &mut impl KvSession, wanted: &Wanted) -> Result<()> {
    let mut left_out = 0u64;
    for key in keys(session, wanted)? {
        // The key was deleted after it was listed.
        let Some(value) = session.get(&key)? else { continue };
        if wanted.json {
            print::line(json(&key, Some(&value))?);
        } else if is_line(&key, &value) {
            print::bytes(&[&key[..], b" ", &value, b"\n"].concat());
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        bail!("{left_out} pairs were left out because of spaces in keys or line breaks: use --json");
    }
    Ok(())
}

/// Maximum length of a line in bytes: key and value have 1 MiB each, in base64 or escaped.
const LONGEST_LINE: u64 = 16 << 20;

/// Runs `remora kv load --json`: stores the pairs of a file of JSON lines. Reports the number of each line
/// that has no valid pair and leaves that line out.
///
/// # Errors
/// Fails if the file cannot be read or the connection fails.
pub(crate) fn load(session: &mut impl KvSession, path: &Path) -> Result<()> {
    let (file, name, _) = output::input(path)?;
    let mut reader = BufReader::new(file);
    let mut stored = 0u64;
    let mut left_out = 0u64;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        if read.with_context(|| format!("reading {name}"))? == 0 {
            break;
        }
        let text = line.strip_prefix(BOM).unwrap_or(&line).trim_ascii();
        if text.is_empty() {
            continue;
        }
        let refused = match parse(text) {
            Err(error) => Some(format!("{error:#}")),
            Ok((key, value)) => match put(session, Pair { line: number, key: &key, value: &value })? {
                Stored::Yes => None,
                Stored::No(words) => Some(words),
            },
        };
        match refused {
            None => stored += 1,
            Some(words) => {
                left_out += 1;
                eprintln!("{name}: line {number}: {words}");
            }
        }
    }
    print::line(format_args!("{stored} keys stored, {left_out} lines left out"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_pair_comes_back_from_its_line_of_json() {
        for (key, value) in
            [(&b"a b"[..], &b"one\ntwo"[..]), (b"\xff\0", b""), (b"", b"\xfe"), ("ä".as_bytes(), b"x")]
        {
            let line = json(key, Some(value)).unwrap();
            assert_eq!(parse(line.as_bytes()).unwrap(), (key.to_vec(), value.to_vec()), "{line}");
        }
        for bad in [
            "",
            "{}",
            "{\"key\":\"a\"}",
            "{\"key\":\"a\",\"value_base64\":\"*\"}",
            "{\"key\":\"a\",\"value\":\"b\",\"x\":1}",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_load_would_read_otherwise_is_no_line() {
        assert!(is_line(b"key", b"some value\t"));
        for (key, value) in
            [(&b""[..], &b"v"[..]), (b"a b", b"v"), (b"a\tb", b"v"), (b"a", b"v\nw"), (b"a", b"v\r")]
        {
            assert!(!is_line(key, value), "{key:?} {value:?}");
        }
    }
}
