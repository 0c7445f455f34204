//! Retrievals: commands with any number of keys, whose values are sent a piece at a time.

use super::retrieval::{After, Retrieval, Touch};
use super::{Session, State};
use crate::cache::attributes::Attributes;
use crate::cache::command::{Wrong, key, signed};
use crate::cache::items::Name;
use crate::cache::{Cache, MAX_KEY, MAX_LINE, OUTPUT};
use remora_transport::Instant;
use std::io::Write as _;

impl Session {
    /// Processes the verb of a retrieval. A line that is not too long is checked first: an invalid key is
    /// reported before any value, as in memcached. The session waits for the whole line, so answers do not
    /// depend on how the bytes arrive.
    pub(super) fn begin_retrieval(
        &mut self,
        retrieval: Retrieval,
        verb_end: usize,
        seen: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.quiet = false;
        match seen.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                if let Some(wrong) = retrieval.wrong(&seen[verb_end..end]) {
                    self.answer(wrong.text(), out);
                    return Some(end + 1);
                }
            }
            None if seen.len() < MAX_LINE + 2 => return None,
            None => {}
        }
        self.state = State::Keys(retrieval);
        Some(verb_end)
    }

    /// Processes the next word of a retrieval, or its end.
    pub(super) fn keys(
        &mut self,
        mut retrieval: Retrieval,
        cache: &mut Cache,
        now: Instant,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let spaces = input.iter().take_while(|byte| **byte == b' ').count();
        let rest = &input[spaces..];
        let waits = (spaces > 0).then_some(spaces);
        let Some(end) = rest.iter().take(MAX_KEY + 2).position(|byte| matches!(byte, b' ' | b'\n')) else {
            // The word is too long for a key, or its end has not arrived yet.
            return if rest.len() < MAX_KEY + 2 { waits } else { self.refuse(Wrong::Format, spaces, out) };
        };
        let word = match &rest[..end] {
            word if rest[end] == b'\n' => word.strip_suffix(b"\r").unwrap_or(word),
            word => word,
        };
        if word.is_empty() {
            self.answer(if retrieval.any { "END" } else { "ERROR" }, out);
            self.state = State::Line;
            return Some(spaces + end + 1);
        }
        let taken = spaces + word.len();
        retrieval.any = true;
        let touch = match retrieval.touch {
            Touch::Awaited => {
                let Some(seconds) = signed(word) else { return self.refuse(Wrong::Expiry, taken, out) };
                retrieval.touch = Touch::Seconds(seconds);
                self.state = State::Keys(retrieval);
                return Some(taken);
            }
            Touch::Seconds(seconds) => Some(seconds),
            Touch::No => None,
        };
        let Some(key) = key(word) else { return self.refuse(Wrong::Format, taken, out) };
        self.state = State::Keys(retrieval);
        if let Some((stored, attributes)) = cache.get(key, touch, now) {
            head(key, stored.len, retrieval.unique, attributes, out);
            cache.items.hold(stored);
            self.state = State::Sending { then: After::Keys(retrieval), held: stored, left: stored.len };
        }
        Some(taken)
    }

    fn refuse(&mut self, wrong: Wrong, taken: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.answer(wrong.text(), out);
        self.state = State::RestOfLine;
        Some(taken)
    }

    /// Starts to send a value whose head was written.
    pub(in crate::cache) fn send_value(&mut self, cache: &mut Cache, name: Name) {
        let held = cache.items.stored(name);
        cache.items.hold(held);
        self.state = State::Sending { then: After::Line, held, left: held.len };
    }

    /// Copies as much of a value as the output has space for.
    pub(super) fn send(&mut self, cache: &mut Cache, out: &mut Vec<u8>) -> Option<usize> {
        let State::Sending { then, held, left } = &mut self.state else { return None };
        let start = out.len();
        let piece = (*left).min(OUTPUT - start);
        out.resize(start + piece, 0);
        cache.items.read(held.offset + held.len - *left, &mut out[start..]);
        *left -= piece;
        if *left > 0 || out.len() + 2 > OUTPUT {
            return None;
        }
        out.extend_from_slice(b"\r\n");
        cache.items.release(*held);
        self.state = match *then {
            After::Keys(retrieval) => State::Keys(retrieval),
            After::Line => State::Line,
        };
        Some(0)
    }
}

/// Appends the line before a value.
fn head(key: &[u8], len: usize, unique: bool, attributes: Attributes, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    write!(out, " {} {len}", attributes.flags).expect("a Vec takes bytes");
    if unique {
        write!(out, " {}", attributes.unique).expect("a Vec takes bytes");
    }
    out.extend_from_slice(b"\r\n");
}
