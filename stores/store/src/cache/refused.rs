//! The data that follows a refused line. A value must not be executed as commands.

use super::command::{MAX_LEN, signed, unsigned};

/// The data that follows a line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trailer {
    /// Another line follows.
    Line,
    /// A value of this length follows, with its end.
    Value(u64),
    /// A value follows unless the client waits for the answer first. Its length is given if it can be
    /// parsed.
    Perhaps(Option<u64>),
}

/// Commands without a value: even if their lines are invalid, another line follows.
const PLAIN: [&[u8]; 16] = [
    b"delete",
    b"incr",
    b"decr",
    b"touch",
    b"flush_all",
    b"verbosity",
    b"stats",
    b"version",
    b"quit",
    b"mg",
    b"md",
    b"ma",
    b"me",
    b"cache_memlimit",
    b"lru_crawler",
    b"shutdown",
];

/// Returns what follows a refused line with these words.
pub(crate) fn behind(words: &[&[u8]]) -> Trailer {
    let Some(verb) = words.first() else { return Trailer::Line };
    let is = |name: &&[u8]| verb.eq_ignore_ascii_case(name);
    if PLAIN.contains(verb) {
        return Trailer::Line;
    }
    // memcached answers `ERROR` to the line, and once more to a value of one line, which it takes for a
    // command. Clients get the same number of answers here, and the value is not executed as a command.
    if verb == b"cas" && words.len() == 5 && numbers(words, 2..5) {
        return Trailer::Perhaps(length(words, 4));
    }
    let plain_words = if is(&&b"cas"[..]) { 6 } else { 5 };
    if [&b"set"[..], b"add", b"replace", b"append", b"prepend", b"cas"].iter().any(is) {
        // The line has one word too many or too few, so any of them may be the length.
        let one_more = words.len() == plain_words + 1;
        let certain = words.last() == Some(&&b"noreply"[..]) || numbers(words, 2..4);
        let placed = words.len() == plain_words || (one_more && certain);
        return length(words, 4).filter(|_| placed).map_or(Trailer::Perhaps(None), Trailer::Value);
    }
    let meta = verb.len() == 2 && verb[0].eq_ignore_ascii_case(&b'm');
    if meta {
        let flags = words.iter().skip(3).all(|flag| flag[0].is_ascii_alphabetic());
        let len = length(words, 2).filter(|_| flags);
        return len
            .map_or(if is(&&b"ms"[..]) { Trailer::Perhaps(None) } else { Trailer::Line }, Trailer::Value);
    }
    // An unknown command of this form may have a value, too.
    let len = length(words, 4).filter(|_| numbers(words, 2..4));
    len.map_or(Trailer::Line, Trailer::Value)
}

fn length(words: &[&[u8]], index: usize) -> Option<u64> {
    words.get(index).and_then(|word| unsigned(word)).filter(|len| *len <= MAX_LEN as u64)
}

fn numbers(words: &[&[u8]], range: core::ops::Range<usize>) -> bool {
    words.get(range).is_some_and(|words| words.iter().all(|word| signed(word).is_some()))
}

/// Returns true if the input begins with a complete HTTP request line, `METHOD /TARGET HTTP/VERSION`. A web
/// page may name any method, such as `gets`.
pub(crate) fn is_http_request(input: &[u8]) -> bool {
    let line = input.split(|byte| *byte == b'\n').next().filter(|line| line.len() < input.len());
    let line = line.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = line.unwrap_or_default().split(|byte| *byte == b' ').skip(1);
    let [target, version] = [words.next(), words.next()].map(Option::unwrap_or_default);
    target.starts_with(b"/") && version.starts_with(b"HTTP/") && words.next().is_none()
}

/// Returns true if the words are an HTTP request line, which ends with the protocol version.
pub(crate) fn is_http(words: &[&[u8]]) -> bool {
    words.last().is_some_and(|word| word.starts_with(b"HTTP/"))
}
