//! The parser of a command line. Retrievals, which have any number of keys, and meta commands have parsers
//! of their own.

use super::MAX_KEY;
use remora_transport::Instant;

/// The condition and mode of a storing command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// Stores the value unconditionally.
    Set,
    /// Stores if the key is new.
    Add,
    /// Stores if the key exists.
    Replace,
    /// Appends to the existing value.
    Append,
    /// Prepends to the existing value.
    Prepend,
    /// Stores if the item still has this number.
    Cas(u64),
}

/// A parsed command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command<'a> {
    /// Store the value that follows.
    Store { verb: Verb, key: &'a [u8], flags: u32, expires: i64, len: u64 },
    /// Removes an item.
    Delete { key: &'a [u8] },
    /// Count up or down.
    Count { key: &'a [u8], delta: u64, up: bool },
    /// Change the expiry of an item.
    Touch { key: &'a [u8], expires: i64 },
    /// Removes all items, now or later.
    Flush { delay: i64 },
    /// Report statistics: their kind, and up to two arguments.
    Stats(&'a [u8], [&'a [u8]; 2]),
    /// Search for dead items: the subcommand, and its argument.
    Crawler(&'a [u8], Option<&'a [u8]>),
    /// Set the memory for keys and values, in mebibytes.
    MemoryLimit(u64),
    /// Ends the server, with an optional mode.
    Shutdown(Option<&'a [u8]>),
    /// Report the version.
    Version,
    /// Accepted without effect.
    Verbosity,
    /// Closes the connection.
    Quit,
}

/// The reason for which a line is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// The command is unknown, or has the wrong number of words.
    Unknown,
    /// A key or a number is invalid.
    Format,
    /// The expiry is invalid.
    Expiry,
    /// The amount to count by is invalid.
    Delta,
    /// `delete` has a time, which is no longer supported.
    DeleteTime,
}

impl Wrong {
    /// Returns the answer to this error.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Wrong::Unknown => "ERROR",
            Wrong::Format => "CLIENT_ERROR bad command line format",
            Wrong::Expiry => "CLIENT_ERROR invalid exptime argument",
            Wrong::Delta => "CLIENT_ERROR invalid numeric delta argument",
            Wrong::DeleteTime => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        }
    }
}

/// Maximum number of words of a line that are parsed; no command has more.
pub(crate) const WORDS: usize = 24;
/// Maximum length of a value. As in memcached, a value and its end are counted in a signed 32-bit number.
pub(crate) const MAX_LEN: i64 = i32::MAX as i64 - 2;

/// Splits a line into its words. Returns them and their number.
pub(crate) fn split(line: &[u8]) -> ([&[u8]; WORDS], usize) {
    let mut words: [&[u8]; WORDS] = [&[]; WORDS];
    let mut count = 0;
    for word in line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(WORDS) {
        words[count] = word;
        count += 1;
    }
    (words, count)
}

/// Parses the words of a line. Also returns true if the last word suppresses the answer.
pub(crate) fn parse<'a>(words: &[&'a [u8]]) -> (Result<Command<'a>, Wrong>, bool) {
    // The first word of `delete` is a key, even if it is `noreply`.
    let quiet = words.len() > if words.first() == Some(&&b"delete"[..]) { 2 } else { 1 }
        && words.last() == Some(&&b"noreply"[..]);
    match command(words, quiet) {
        // A malformed line may end with that word by chance.
        Err(Wrong::Unknown) => (Err(Wrong::Unknown), false),
        // Versions and statistics are always answered.
        Ok(command @ (Command::Version | Command::Stats(..))) => (Ok(command), false),
        other => (other, quiet),
    }
}

fn command<'a>(words: &[&'a [u8]], quiet: bool) -> Result<Command<'a>, Wrong> {
    let Some((verb, rest)) = words.split_first() else { return Err(Wrong::Unknown) };
    match (*verb, rest) {
        (b"set", [rest @ .., _, _, _, _]) if rest.len() < 2 => store(Verb::Set, words),
        (b"add", [rest @ .., _, _, _, _]) if rest.len() < 2 => store(Verb::Add, words),
        (b"replace", [rest @ .., _, _, _, _]) if rest.len() < 2 => store(Verb::Replace, words),
        (b"append", [rest @ .., _, _, _, _]) if rest.len() < 2 => store(Verb::Append, words),
        (b"prepend", [rest @ .., _, _, _, _]) if rest.len() < 2 => store(Verb::Prepend, words),
        (b"cas", [_, _, _, _, unique, rest @ ..]) if rest.len() < 2 => {
            // memcached checks this number last, but all invalid numbers have the same answer.
            store(Verb::Cas(unsigned(unique).ok_or(Wrong::Format)?), words)
        }
        (b"incr" | b"decr", [name, delta, rest @ ..]) if rest.len() < 2 => {
            let key = key(name).ok_or(Wrong::Format)?;
            let delta = unsigned(delta).ok_or(Wrong::Delta)?;
            Ok(Command::Count { key, delta, up: *verb == b"incr" })
        }
        (b"touch", [name, expires, rest @ ..]) if rest.len() < 2 => {
            let key = key(name).ok_or(Wrong::Format)?;
            Ok(Command::Touch { key, expires: signed(expires).ok_or(Wrong::Expiry)? })
        }
        (b"delete", [name, rest @ ..]) if rest.len() < 3 => match rest {
            [] | [b"0"] | [b"noreply"] | [b"0", b"noreply"] => {
                Ok(Command::Delete { key: key(name).ok_or(Wrong::Format)? })
            }
            _ => Err(Wrong::DeleteTime),
        },
        (b"flush_all", []) => Ok(Command::Flush { delay: 0 }),
        (b"flush_all", [_]) if quiet => Ok(Command::Flush { delay: 0 }),
        (b"flush_all", [delay, rest @ ..]) if rest.len() < 2 => {
            signed(delay).map(|delay| Command::Flush { delay }).ok_or(Wrong::Expiry)
        }
        (b"verbosity", [level, rest @ ..]) if rest.len() < 2 => {
            unsigned(level).map(|_| Command::Verbosity).ok_or(Wrong::Format)
        }
        (b"stats", []) => Ok(Command::Stats(&[], [&[]; 2])),
        (b"stats", [kind, rest @ ..]) => {
            let rest = [0, 1].map(|index| rest.get(index).copied().unwrap_or_default());
            Ok(Command::Stats(kind, rest))
        }
        (b"lru_crawler", [action]) => Ok(Command::Crawler(action, None)),
        (b"lru_crawler", [action, argument]) => Ok(Command::Crawler(action, Some(argument))),
        (b"cache_memlimit", [megabytes, rest @ ..]) if rest.len() < 2 => {
            unsigned(megabytes).map(Command::MemoryLimit).ok_or(Wrong::Unknown)
        }
        (b"shutdown", rest) if rest.len() < 2 => Ok(Command::Shutdown(rest.first().copied())),
        (b"version", _) => Ok(Command::Version),
        (b"quit", _) => Ok(Command::Quit),
        _ => Err(Wrong::Unknown),
    }
}

fn store<'a>(verb: Verb, words: &[&'a [u8]]) -> Result<Command<'a>, Wrong> {
    let read = || {
        let flags = u32::try_from(unsigned(words[2])?).ok()?;
        let len = signed(words[4]).filter(|len| (0..=MAX_LEN).contains(len))?;
        Some(Command::Store { verb, key: key(words[1])?, flags, expires: signed(words[3])?, len: len as u64 })
    };
    read().ok_or(Wrong::Format)
}

/// Returns the key if it is valid: 1 to 250 bytes, none of them 0. Keys of real programs contain other
/// control characters, although memcached's protocol.txt forbids them.
pub(crate) fn key(word: &[u8]) -> Option<&[u8]> {
    let whole = !word.contains(&0);
    (whole && (1..=MAX_KEY).contains(&word.len())).then_some(word)
}

/// Parses an unsigned decimal number of 64 bits.
pub(crate) fn unsigned(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Parses a signed decimal number of 64 bits.
pub(crate) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) if !digits.starts_with(b"+") => {
            unsigned(digits).and_then(|number| 0i64.checked_sub_unsigned(number))
        }
        Some(_) => None,
        None => unsigned(word).and_then(|number| i64::try_from(number).ok()),
    }
}

/// Maximum relative expiry in seconds; larger numbers are times since 1970.
const RELATIVE: i64 = 30 * 24 * 60 * 60;

/// Returns the time at which an item with this expiry expires: never for 0, at once for a negative number.
/// `now` counts from 1970.
pub(crate) fn expiry(seconds: i64, now: Instant) -> Instant {
    const SECOND: u64 = 1_000_000_000;
    match u64::try_from(seconds) {
        Err(_) => Instant(0),
        Ok(0) => Instant::NEVER,
        Ok(seconds) if seconds <= RELATIVE as u64 => now.after(seconds * SECOND),
        Ok(seconds) => Instant(seconds.saturating_mul(SECOND)),
    }
}
