//! The answers to meta commands.

use super::Request;
use super::flags::BASE64;
use crate::cache::MAX_KEY;
use base64::Engine as _;
use std::io::Write as _;

/// Maximum length of a key in base64.
const ENCODED: usize = MAX_KEY.div_ceil(3) * 4;

/// Appends the key as a flag, in base64 if it was stored so.
pub(crate) fn key_flag(key: &[u8], binary: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b" k");
    write_key(key, binary, out);
    if binary {
        out.extend_from_slice(b" b");
    }
}

/// Appends a key, in base64 if it was stored so.
pub(crate) fn write_key(key: &[u8], binary: bool, out: &mut Vec<u8>) {
    if !binary {
        return out.extend_from_slice(key);
    }
    let mut encoded = [0; ENCODED];
    let len = BASE64.encode_slice(key, &mut encoded).expect("the longest key fits");
    out.extend_from_slice(&encoded[..len]);
}

impl Request<'_> {
    /// Appends a flag that every answer returns: the key as it was received, or the client's opaque value.
    pub(crate) fn reflect(&self, flag: &[u8], out: &mut Vec<u8>) {
        match flag[0] {
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(flag);
            }
            b'k' => {
                let key = if self.encoded { self.key() } else { self.token };
                key_flag(key, self.encoded, out);
            }
            _ => {}
        }
    }

    /// Appends an answer with only these flags.
    pub(crate) fn answer(&self, code: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(code.as_bytes());
        self.flags.iter().for_each(|flag| self.reflect(flag, out));
        out.extend_from_slice(b"\r\n");
    }
}

/// Maximum length of the flags that an answer to `ms` returns, in addition to its code and the item's
/// number.
const REFLECTED: usize = MAX_KEY + 48;

/// The flags of an answer to `ms`, kept while the value is received.
pub(crate) struct Reply {
    text: [u8; REFLECTED],
    len: usize,
    /// Position of the item's number in the answer, if it was requested.
    unique_at: Option<usize>,
    quiet: bool,
}

impl Reply {
    /// Returns the reply of a command other than `ms`.
    pub(crate) fn none() -> Reply {
        Reply { text: [0; REFLECTED], len: 0, unique_at: None, quiet: false }
    }

    /// Returns the reply to a request.
    pub(crate) fn of(request: &Request<'_>) -> Reply {
        let mut reply = Reply { quiet: request.quiet, ..Reply::none() };
        for flag in request.flags {
            match flag[0] {
                b'c' => reply.unique_at = Some(reply.len),
                b'O' => reply.push(&[b" ", *flag]),
                b'k' if request.encoded => {
                    let mut encoded = [0; ENCODED];
                    let len = BASE64.encode_slice(request.key(), &mut encoded).unwrap_or(0);
                    reply.push(&[b" k", &encoded[..len], b" b"]);
                }
                b'k' => reply.push(&[b" k", request.token]),
                _ => {}
            }
        }
        reply
    }

    fn push(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.text[self.len..][..piece.len()].copy_from_slice(piece);
            self.len += piece.len();
        }
    }

    /// Appends the answer. `unique` is the new number of the item, if it was stored.
    pub(crate) fn write(&self, code: &str, unique: Option<u64>, out: &mut Vec<u8>) {
        if self.quiet && unique.is_some() {
            return;
        }
        let (before, behind) = self.text[..self.len].split_at(self.unique_at.unwrap_or(self.len));
        out.extend_from_slice(code.as_bytes());
        out.extend_from_slice(before);
        if self.unique_at.is_some() {
            write!(out, " c{}", unique.unwrap_or(0)).expect("a Vec takes bytes");
        }
        out.extend_from_slice(behind);
        out.extend_from_slice(b"\r\n");
    }
}
