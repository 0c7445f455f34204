//! One client's connection: bytes in, bytes out.

use super::command::{self, Command, Wrong, signed};
use super::items::Attributes;
use super::store::{Ended, Refused, Store, Uncounted};
use super::{Cache, MAX_KEY, MAX_LINE, OUTPUT};
use crate::kv::Stored;
use crate::kv::two_sided::Draft;
use std::io::Write as _;
use transport::Instant;

/// The longest answer that is not a value: `stats`.
const ANSWER: usize = 4 << 10;
/// First byte of each request of memcached's binary protocol.
const BINARY: u8 = 0x80;

/// A retrieval under way.
#[derive(Copy, Clone)]
struct Retrieval {
    /// Does each value come with the number for `cas`?
    unique: bool,
    /// Is the first word an expiry, and which is it?
    touch: Touch,
    /// Did a key come?
    any: bool,
}

#[derive(Copy, Clone)]
enum Touch {
    No,
    Awaited,
    Seconds(i64),
}

/// What the next bytes are.
enum State {
    /// A command.
    Line,
    /// Keys of a retrieval.
    Keys(Retrieval),
    /// None: so many bytes of this value must leave first.
    Sending { retrieval: Retrieval, held: Stored, left: usize },
    /// A value, of which so much has come, and its end.
    Value { store: Store, draft: Draft, len: usize, filled: usize },
    /// Bytes of a value that is not stored.
    Swallow(u64),
    /// The rest of a line that was refused.
    RestOfLine,
    /// Of no interest.
    Closed,
}

/// A connection. It takes room in its [`Cache`] while a value is on its way: [`close`](Session::close) gives that back.
pub struct Session {
    state: State,
    /// Is the command under way not to be answered?
    quiet: bool,
    /// The key of the value that comes.
    key: [u8; MAX_KEY],
    key_len: usize,
}

impl Session {
    /// A client connected.
    pub fn new(cache: &mut Cache) -> Session {
        cache.sessions += 1;
        cache.counters.total_connections += 1;
        Session { state: State::Line, quiet: false, key: [0; MAX_KEY], key_len: 0 }
    }

    /// It is gone.
    pub fn close(mut self, cache: &mut Cache) {
        cache.sessions -= 1;
        self.abandon(cache);
    }

    /// Has it ended? Then nothing more is read, and what was answered is still to be sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Takes bytes of `input` and appends the answers to `out`, which never grows beyond [`OUTPUT`] bytes; how many it took.
    /// It leaves bytes when more of them are needed, or when `out` is full: call again with the same ones, and more or with an
    /// emptier `out`. With an empty `out`, [`MAX_LINE`] + 2 bytes are always enough to go on.
    pub fn run(&mut self, cache: &mut Cache, now: Instant, input: &[u8], out: &mut Vec<u8>) -> usize {
        cache.tick(now);
        let mut taken = 0;
        loop {
            let answered = out.len();
            let step = self.step(cache, now, &input[taken..], out);
            cache.counters.bytes_written += (out.len() - answered) as u64;
            let Some(bytes) = step else { return taken };
            cache.counters.bytes_read += bytes as u64;
            taken += bytes;
        }
    }

    /// One step: the bytes that it took, none if it waits.
    fn step(&mut self, cache: &mut Cache, now: Instant, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        match &mut self.state {
            State::Sending { .. } => self.send(cache, out),
            State::Closed => None,
            _ if out.len() + ANSWER > OUTPUT => None,
            State::Line => self.line(cache, now, input, out),
            State::Keys(retrieval) => {
                let retrieval = *retrieval;
                self.keys(retrieval, cache, now, input, out)
            }
            State::Value { .. } => self.value(cache, now, input, out),
            State::Swallow(left) => {
                let bytes = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes as u64;
                if *left == 0 {
                    self.state = State::Line;
                    return Some(bytes);
                }
                (bytes > 0).then_some(bytes)
            }
            State::RestOfLine => match input.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    self.state = State::Line;
                    Some(end + 1)
                }
                None => (!input.is_empty()).then_some(input.len()),
            },
        }
    }

    /// The beginning of a command: all of its line, or the verb of a retrieval.
    fn line(&mut self, cache: &mut Cache, now: Instant, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if input.first() == Some(&BINARY) {
            return Some(self.hang_up("CLIENT_ERROR the binary protocol is not spoken here", out, input));
        }
        if let Some((verb_end, retrieval)) = retrieval(input) {
            self.quiet = false;
            self.state = State::Keys(retrieval);
            return Some(verb_end);
        }
        let seen = &input[..input.len().min(MAX_LINE + 2)];
        let line = match seen.iter().position(|byte| *byte == b'\n') {
            Some(end) => seen[..end].strip_suffix(b"\r").unwrap_or(&seen[..end]),
            None if seen.len() < MAX_LINE + 2 => return None,
            None => seen,
        };
        if line.len() > MAX_LINE {
            return Some(self.hang_up("CLIENT_ERROR line too long", out, input));
        }
        let taken = seen.iter().position(|byte| *byte == b'\n').map_or(seen.len(), |end| end + 1);
        let (command, quiet) = command::parse(line);
        self.quiet = quiet;
        match command {
            Ok(command) => self.execute(command, cache, now, out),
            Err(wrong) => self.answer(wrong.text(), out),
        }
        Some(taken)
    }

    fn hang_up(&mut self, words: &str, out: &mut Vec<u8>, input: &[u8]) -> usize {
        self.quiet = false;
        self.answer(words, out);
        self.state = State::Closed;
        input.len()
    }

    fn execute(&mut self, command: Command<'_>, cache: &mut Cache, now: Instant, out: &mut Vec<u8>) {
        match command {
            Command::Store { verb, key, flags, expires, len } => match cache.begin(verb, key, len, now) {
                Ok(draft) => {
                    self.key[..key.len()].copy_from_slice(key);
                    self.key_len = key.len();
                    let store = Store { verb, flags, expires };
                    self.state = State::Value { store, draft, len: len as usize, filled: 0 };
                }
                Err(refused) => {
                    self.answer(refusal(refused), out);
                    self.state = State::Swallow(len + 2);
                }
            },
            Command::Delete { key } => {
                let deleted = cache.delete(key, now);
                self.answer(if deleted { "DELETED" } else { "NOT_FOUND" }, out);
            }
            Command::Count { key, delta, up } => match cache.count(key, delta, up, now) {
                Ok(_) if self.quiet => {}
                Ok(number) => write!(out, "{number}\r\n").expect("a Vec takes bytes"),
                Err(why) => self.answer(uncounted(why), out),
            },
            Command::Touch { key, expires } => {
                let touched = cache.touch(key, expires, now);
                self.answer(if touched { "TOUCHED" } else { "NOT_FOUND" }, out);
            }
            Command::Flush { delay } => {
                cache.flush(delay, now);
                self.answer("OK", out);
            }
            Command::Stats(which) => cache.stats(which, now, out),
            Command::Version => {
                write!(out, "VERSION {}\r\n", cache.config.version).expect("a Vec takes bytes");
            }
            Command::Verbosity => self.answer("OK", out),
            Command::Quit => self.state = State::Closed,
        }
    }

    fn answer(&self, words: &str, out: &mut Vec<u8>) {
        if !self.quiet {
            out.extend_from_slice(words.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The next word of a retrieval, or its end.
    fn keys(
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
            // A word that is no key, however it ends; or the end is yet to come.
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
        let Some(key) = command::key(word) else { return self.refuse(Wrong::Format, taken, out) };
        self.state = State::Keys(retrieval);
        if let Some((stored, attributes)) = cache.get(key, touch, now) {
            head(key, stored.len, retrieval.unique, attributes, out);
            cache.items.hold(stored);
            self.state = State::Sending { retrieval, held: stored, left: stored.len };
        }
        Some(taken)
    }

    fn refuse(&mut self, wrong: Wrong, taken: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.answer(wrong.text(), out);
        self.state = State::RestOfLine;
        Some(taken)
    }

    /// Copies as much of a value as there is room for.
    fn send(&mut self, cache: &mut Cache, out: &mut Vec<u8>) -> Option<usize> {
        let State::Sending { retrieval, held, left } = &mut self.state else { return None };
        let at = out.len();
        let piece = (*left).min(OUTPUT - at);
        out.resize(at + piece, 0);
        cache.items.read(held.offset + held.len - *left, &mut out[at..]);
        *left -= piece;
        if *left > 0 || out.len() + 2 > OUTPUT {
            return None;
        }
        out.extend_from_slice(b"\r\n");
        cache.items.release(*held);
        self.state = State::Keys(*retrieval);
        Some(0)
    }

    /// Takes what there is of a value, and then its end.
    fn value(&mut self, cache: &mut Cache, now: Instant, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let State::Value { draft, len, filled, .. } = &mut self.state else { return None };
        if filled < len {
            let piece = &input[..input.len().min(*len - *filled)];
            cache.items.fill(draft, *filled, piece);
            *filled += piece.len();
            return (!piece.is_empty()).then_some(piece.len());
        }
        let end = input.get(..2)?;
        let State::Value { store, draft, .. } = std::mem::replace(&mut self.state, State::Line) else {
            return None;
        };
        if end != b"\r\n" {
            cache.discard(draft);
            self.answer("CLIENT_ERROR bad data chunk", out);
            return Some(2);
        }
        let ended = cache.finish(store, &self.key[..self.key_len], draft, now);
        self.answer(outcome(ended), out);
        Some(2)
    }

    /// Gives back what a value on its way takes.
    fn abandon(&mut self, cache: &mut Cache) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Value { draft, .. } => cache.discard(draft),
            State::Sending { held, .. } => cache.items.release(held),
            _ => {}
        }
    }
}

/// Is this the beginning of a retrieval? Where its verb ends.
fn retrieval(input: &[u8]) -> Option<(usize, Retrieval)> {
    let spaces = input.iter().take_while(|byte| **byte == b' ').count();
    let verb = input[spaces..].iter().take(5).position(|byte| *byte == b' ')?;
    let (unique, touch) = match &input[spaces..spaces + verb] {
        b"get" => (false, Touch::No),
        b"gets" => (true, Touch::No),
        b"gat" => (false, Touch::Awaited),
        b"gats" => (true, Touch::Awaited),
        _ => return None,
    };
    Some((spaces + verb, Retrieval { unique, touch, any: false }))
}

/// The line before a value.
fn head(key: &[u8], len: usize, unique: bool, attributes: Attributes, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    write!(out, " {} {len}", attributes.flags).expect("a Vec takes bytes");
    if unique {
        write!(out, " {}", attributes.unique).expect("a Vec takes bytes");
    }
    out.extend_from_slice(b"\r\n");
}

fn outcome(ended: Ended) -> &'static str {
    match ended {
        Ended::Stored => "STORED",
        Ended::NotStored => "NOT_STORED",
        Ended::Exists => "EXISTS",
        Ended::NotFound => "NOT_FOUND",
    }
}

fn refusal(refused: Refused) -> &'static str {
    match refused {
        Refused::TooLarge => "SERVER_ERROR object too large for cache",
        Refused::OutOfMemory => "SERVER_ERROR out of memory storing object",
    }
}

fn uncounted(why: Uncounted) -> &'static str {
    match why {
        Uncounted::NotFound => "NOT_FOUND",
        Uncounted::NotANumber => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        Uncounted::OutOfMemory => "SERVER_ERROR out of memory storing object",
    }
}
