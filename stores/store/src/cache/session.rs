//! The connection of one memcached client: bytes in, bytes out.

mod meta;
mod retrieval;
mod retrieve;
mod stats;
mod value;

use super::arrivals::Arrival;
use super::command::{self, Command};
use super::dump::Dump;
use super::meta::{Reply, Verb as Meta};
use super::refused::{Trailer, behind, is_http, is_http_request};
use super::stats::Listing;
use super::store::Store;
use super::{Cache, MAX_KEY, MAX_LINE, OUTPUT};
use crate::kv::Stored;
use remora_transport::Instant;
use retrieval::{After, Retrieval, retrieval};
use std::io::Write as _;

/// Maximum length of an answer that is written at once and is not a value.
const ANSWER: usize = 5 << 10;
/// First byte of each request of memcached's binary protocol.
const BINARY: u8 = 0x80;
/// First byte of a TLS handshake. An attacker who chose the session ticket may have put commands into it.
const TLS: u8 = 0x16;
/// Nanoseconds that a client has for the value after a line whose length cannot be parsed. A client that
/// waits for the answer sends nothing in that time.
const PATIENCE: u64 = 100_000_000;

/// The meaning of the next bytes.
enum State {
    /// The first bytes of the connection.
    First,
    /// The next command.
    Line,
    /// Keys of a retrieval.
    Keys(Retrieval),
    /// Input is not read: `left` bytes of this value must be sent first.
    Sending { then: After, held: Stored, left: usize },
    /// A value of which `filled` bytes were received, and its end.
    Value { store: Store, len: usize, filled: usize, arrival: Option<Arrival> },
    /// The remaining `left` bytes of a value that is not stored; then the answer is sent.
    Swallow { left: u64, then: Option<&'static str> },
    /// The rest of a refused line.
    RestOfLine,
    /// The value of a refused command, if it arrives before this time. After that the connection is closed,
    /// unless the value's length is known.
    Refused { answer: &'static str, until: Instant, value: Option<u64> },
    /// Input is not read: items are being listed.
    Dump(Dump),
    /// Input is not read: statistics are being listed.
    Listing(Listing),
    /// Input is ignored.
    Closed,
}

/// A client's connection. While a value is being received or sent it holds memory of its [`Cache`], which
/// [`close`](Session::close) releases.
pub struct Session {
    state: State,
    /// True if the current command suppresses its answer.
    quiet: bool,
    /// The key of the value that is being received.
    key: [u8; MAX_KEY],
    key_len: usize,
    /// The reply for the value that is being received, if it belongs to a meta command.
    pub(super) reply: Option<Reply>,
}

impl Session {
    /// Returns the session of a new client.
    pub fn new(cache: &mut Cache) -> Session {
        cache.sessions += 1;
        cache.counters.total_connections += 1;
        Session { state: State::First, quiet: false, key: [0; MAX_KEY], key_len: 0, reply: None }
    }

    /// Ends the session and releases what it holds.
    pub fn close(mut self, cache: &mut Cache) {
        cache.sessions -= 1;
        self.abandon(cache);
    }

    /// Returns true if the session has ended. It reads nothing more, but its output must still be sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Returns true if the session can continue without input. [`run`](Session::run) returns periodically
    /// during a long answer, so that other clients get their turn.
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::Dump(_) | State::Listing(_))
    }

    /// Returns the time at which [`run`](Session::run) must be called even without input.
    pub fn wakes(&self) -> Option<Instant> {
        match self.state {
            State::Refused { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Notes the end of the input, and answers a command that waited for more.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if let State::Refused { answer, .. } = self.state {
            self.answer(answer, out);
            self.state = State::Closed;
        }
    }

    /// Processes bytes of `input`, appends the answers to `out`, and returns the number of bytes consumed.
    /// `out` never grows beyond [`OUTPUT`] bytes.
    ///
    /// Bytes are left if the session needs more of them, or if `out` is full. Then call it with the same
    /// bytes and more, or with an emptier `out`. With an empty `out`, [`MAX_LINE`] + 2 bytes are always
    /// enough to continue.
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

    /// Performs one step, and returns the number of bytes consumed, or `None` if the session waits.
    fn step(&mut self, cache: &mut Cache, now: Instant, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        match &mut self.state {
            State::Sending { .. } => self.send(cache, out),
            State::Closed => None,
            _ if out.len() + ANSWER > OUTPUT => None,
            State::First => self.first(cache, input),
            State::Line => self.line(cache, now, input, out),
            State::Keys(retrieval) => {
                let retrieval = *retrieval;
                self.keys(retrieval, cache, now, input, out)
            }
            State::Value { .. } => self.value(cache, now, input, out),
            State::Swallow { left, then } => {
                let bytes = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes as u64;
                if *left == 0 {
                    if let Some(answer) = *then {
                        self.answer(answer, out);
                    }
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
            State::Refused { answer, until, value } => {
                let answer = *answer;
                let until = *until;
                let value = *value;
                if input.is_empty() && now < until {
                    return None;
                }
                self.answer(answer, out);
                let (state, taken) = match value {
                    _ if input.is_empty() => (State::Line, 0),
                    Some(len) => (State::Swallow { left: len + 2, then: Some(answer) }, 0),
                    None => (State::Closed, input.len()),
                };
                self.state = state;
                Some(taken)
            }
            State::Dump(dump) => {
                let ended = dump.step(cache, now, out);
                if ended {
                    self.state = State::Line;
                }
                ended.then_some(0)
            }
            State::Listing(listing) => {
                let ended = listing.step(cache, now, out);
                if ended {
                    self.state = State::Line;
                }
                Some(0)
            }
        }
    }

    /// Closes the session of a peer that speaks the binary protocol or TLS, which are not supported.
    fn first(&mut self, cache: &mut Cache, input: &[u8]) -> Option<usize> {
        let counter = match *input.first()? {
            BINARY => &mut cache.counters.rejected_binary,
            TLS => &mut cache.counters.rejected_tls,
            _ => {
                self.state = State::Line;
                return Some(0);
            }
        };
        *counter += 1;
        self.state = State::Closed;
        Some(input.len())
    }

    /// Processes the beginning of a command: its whole line, or the verb of a retrieval.
    fn line(&mut self, cache: &mut Cache, now: Instant, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let seen = &input[..input.len().min(MAX_LINE + 2)];
        if let Some((verb_end, retrieval)) = retrieval(input) {
            if is_http_request(seen) {
                self.reject_http(cache);
                return Some(input.len());
            }
            return self.begin_retrieval(retrieval, verb_end, seen, out);
        }
        let line = match seen.iter().position(|byte| *byte == b'\n') {
            Some(end) => seen[..end].strip_suffix(b"\r").unwrap_or(&seen[..end]),
            None if seen.len() < MAX_LINE + 2 => return None,
            None => seen,
        };
        if line.len() > MAX_LINE {
            self.quiet = false;
            self.answer("CLIENT_ERROR line too long", out);
            self.state = State::Closed;
            return Some(input.len());
        }
        let taken = seen.iter().position(|byte| *byte == b'\n').map_or(seen.len(), |end| end + 1);
        cache.items.crawl_on(now);
        let (words, count) = command::split(line);
        let words = &words[..count];
        self.reply = None;
        if words.len() > 2 && is_http(words) {
            self.reject_http(cache);
            return Some(taken);
        }
        match words.first().and_then(|verb| Meta::of(verb)) {
            Some(verb) if words.len() > 1 || matches!(verb, Meta::Nothing | Meta::Debug) => {
                self.quiet = false;
                if let Err(wrong) = self.meta(verb, words, cache, now, out) {
                    self.refuse_line(verb.refusal(wrong), words, cache, now, out);
                }
            }
            _ => {
                let (command, quiet) = command::parse(words);
                self.quiet = quiet;
                match command {
                    Ok(command) => self.execute(command, cache, now, out),
                    Err(wrong) => self.refuse_line(wrong.text(), words, cache, now, out),
                }
            }
        }
        Some(taken)
    }

    /// Refuses a line, and decides how the bytes after it are treated.
    fn refuse_line(
        &mut self,
        answer: &'static str,
        words: &[&[u8]],
        cache: &mut Cache,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        if is_http(words) {
            return self.reject_http(cache);
        }
        match behind(words) {
            Trailer::Line => self.answer(answer, out),
            Trailer::Value(len) => {
                self.answer(answer, out);
                self.state = State::Swallow { left: len + 2, then: None };
            }
            Trailer::Perhaps(value) => {
                self.state = State::Refused { answer, until: now.after(PATIENCE), value }
            }
        }
    }

    /// Closes the session of a browser, whose bytes are not commands.
    fn reject_http(&mut self, cache: &mut Cache) {
        cache.counters.rejected_http += 1;
        self.state = State::Closed;
    }

    fn execute(&mut self, command: Command<'_>, cache: &mut Cache, now: Instant, out: &mut Vec<u8>) {
        match command {
            Command::Store { verb, key, flags, expires, len } => {
                let store = Store { verb, flags, expires, unique: None, stale: false, binary: false };
                self.begin(store, key, len, cache, now, out);
            }
            Command::Delete { key } => {
                let deleted = cache.delete(key, now);
                self.answer(if deleted { "DELETED" } else { "NOT_FOUND" }, out);
            }
            Command::Count { key, delta, up } => match cache.count(key, delta, up, None, now) {
                Ok(_) if self.quiet => {}
                Ok((_, number)) => write!(out, "{number}\r\n").expect("a Vec takes bytes"),
                Err(why) => self.answer(why.text(), out),
            },
            Command::Touch { key, expires } => {
                let touched = cache.touch(key, expires, now);
                self.answer(if touched { "TOUCHED" } else { "NOT_FOUND" }, out);
            }
            Command::Flush { delay } => {
                cache.flush(delay, now);
                self.answer("OK", out);
            }
            Command::Stats(kind, rest) => self.stats(kind, rest, cache, now, out),
            Command::Version => {
                write!(out, "VERSION {}\r\n", cache.config.version).expect("a Vec takes bytes");
            }
            Command::Verbosity => self.answer("OK", out),
            Command::Crawler(action, argument) => self.crawler(action, argument, cache, out),
            Command::MemoryLimit(megabytes) => self.answer(cache.limit(megabytes), out),
            Command::Shutdown(mode) => self.shutdown(mode, cache, out),
            Command::Quit => self.state = State::Closed,
        }
    }

    pub(super) fn answer(&self, words: &str, out: &mut Vec<u8>) {
        if !self.quiet {
            out.extend_from_slice(words.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Starts a list of items.
    pub(super) fn dump(&mut self, dump: Dump) {
        self.state = State::Dump(dump);
    }

    /// Starts a list of statistics.
    pub(super) fn list(&mut self, listing: Listing) {
        self.state = State::Listing(listing);
    }

    /// Stops reading from the connection.
    pub(super) fn hang_up(&mut self) {
        self.state = State::Closed;
    }

    /// Releases what an incomplete value holds.
    fn abandon(&mut self, cache: &mut Cache) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Value { arrival: Some(arrival), .. } => cache.arrivals.end(arrival),
            State::Sending { held, .. } => cache.items.release(held),
            _ => {}
        }
    }
}
