//! The commands that count numeric values up and down.

use super::attributes::{Attributes, Marks};
use super::command::{expiry, unsigned};
use super::items::{Name, OutOfMemory};
use super::{Cache, MAX_VALUE};
use remora_transport::Instant;

/// The reason for which an item was not counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Uncounted {
    NotFound,
    NotANumber,
    /// The item has another number for `cas`.
    Exists,
    OutOfMemory,
}

impl Uncounted {
    /// Returns the answer to this error.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Uncounted::NotFound => "NOT_FOUND",
            Uncounted::Exists => "EXISTS",
            Uncounted::NotANumber => "CLIENT_ERROR cannot increment or decrement non-numeric value",
            Uncounted::OutOfMemory => "SERVER_ERROR out of memory storing object",
        }
    }
}

/// Bytes of a value within which a number must have ended.
const NUMBER: usize = 64;
/// Maximum length of a numeric value, as in memcached.
const MAX_NUMBER: usize = MAX_VALUE / 2;
/// Number of digits of the largest number.
const DIGITS: usize = 20;

impl Cache {
    /// Counts up, with wraparound at 64 bits, or down to 0. If the new number is shorter, the value keeps
    /// its length and is padded with spaces, as in memcached. With `unique`, the item is counted only if it
    /// has that number.
    pub(super) fn count(
        &mut self,
        key: &[u8],
        delta: u64,
        up: bool,
        unique: Option<u64>,
        now: Instant,
    ) -> Result<(Name, u64), Uncounted> {
        let item = self.items.find(key, now);
        self.count_hit(item, up);
        let name = item.ok_or(Uncounted::NotFound)?;
        self.items.touch(name, now);
        let stored = self.items.stored(name);
        let is_its = |unique: u64| unique == 0 || unique == self.items.attributes(name).unique;
        if stored.len > 0 && !unique.is_none_or(is_its) {
            return Err(Uncounted::Exists);
        }
        let mut text = [b' '; NUMBER + DIGITS];
        let head = &mut text[..stored.len.min(NUMBER)];
        self.items.read(stored.offset, head);
        let number = number(head, stored.len).ok_or(Uncounted::NotANumber)?;
        let number = if up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let digits = write(number, &mut text);
        let mut attributes = Attributes { unique: self.next_unique(), ..self.items.attributes(name) };
        if digits > stored.len {
            // As in memcached, the result is a new item without marks.
            attributes.marks = Marks::default();
        }
        let len = digits.max(stored.len);
        let draft = self.items.draft(key, len, now).map_err(|_| Uncounted::OutOfMemory)?;
        self.items.fill(&draft, 0, &text[..len.min(text.len())]);
        for offset in (text.len()..len).step_by(SPACES.len()) {
            self.items.fill(&draft, offset, &SPACES[..(len - offset).min(SPACES.len())]);
        }
        let name = self.items.publish(key, draft, attributes, now);
        Ok((name, number))
    }

    fn count_hit(&mut self, item: Option<Name>, up: bool) {
        let hit = u64::from(item.is_some());
        if up {
            self.counters.incr_hits += hit;
            self.counters.incr_misses += 1 - hit;
        } else {
            self.counters.decr_hits += hit;
            self.counters.decr_misses += 1 - hit;
        }
        if let Some(name) = item {
            let counts = self.items.counts(name);
            let count = if up { &mut counts.incr_hits } else { &mut counts.decr_hits };
            *count += 1;
        }
    }

    /// Stores a new item with a number or an empty value, for a meta command that found no item.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn make(
        &mut self,
        key: &[u8],
        number: Option<u64>,
        marks: Marks,
        now: Instant,
    ) -> Result<Name, OutOfMemory> {
        let mut text = [b' '; DIGITS];
        let len = number.map_or(0, |number| write(number, &mut text));
        let draft = self.items.draft(key, len, now)?;
        self.items.fill(&draft, 0, &text[..len]);
        // The flag with the expiry is applied later; until then the item does not expire.
        let attributes = Attributes { flags: 0, expires: expiry(0, now), unique: self.next_unique(), marks };
        Ok(self.publish(key, draft, attributes, now))
    }
}

const SPACES: [u8; 256] = [b' '; 256];

/// Returns the number in a value of `len` bytes that begins with `head`. White space may surround the
/// number.
fn number(head: &[u8], len: usize) -> Option<u64> {
    let word = head.trim_ascii_start();
    let end = word.iter().position(u8::is_ascii_whitespace);
    let ends = end.is_some() || head.len() == len;
    (ends && len <= MAX_NUMBER).then(|| unsigned(&word[..end.unwrap_or(word.len())])).flatten()
}

/// Writes a number, followed by spaces. Returns the number of its digits.
fn write(number: u64, text: &mut [u8]) -> usize {
    text.fill(b' ');
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for place in text[..digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}
