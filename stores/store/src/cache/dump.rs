//! Lists of all items, written in part per turn: `lru_crawler metadump` and `stats cachedump`.

use super::attributes::Attributes;
use super::classes::CLASSES;
use super::items::Name;
use super::{Cache, MAX_KEY, OUTPUT};
use remora_transport::Instant;
use std::io::Write as _;

/// Number of places examined per turn.
const WALK: u32 = 256;
/// Maximum length of a line in bytes: each byte of a key may take three.
const LINE: usize = 3 * MAX_KEY + 250;

/// The progress of a list.
#[derive(Copy, Clone)]
pub(crate) struct Dump {
    place: u32,
    /// Bitmap of the requested classes.
    classes: u64,
    form: Form,
}

/// The format of an item in the list.
#[derive(Copy, Clone)]
enum Form {
    /// The format of `lru_crawler metadump`.
    Meta,
    /// The format of `stats cachedump`, with the number of items left to list.
    Cache(u64),
}

/// Returns the class that a word names.
fn class(word: &[u8]) -> Option<usize> {
    super::command::unsigned(word)
        .and_then(|class| usize::try_from(class).ok())
        .filter(|class| (1..64).contains(class))
}

/// Returns the classes that a word names, one bit per class.
pub(crate) fn classes(word: &[u8]) -> Option<u64> {
    if word == b"all" {
        return Some(u64::MAX);
    }
    word.split(|byte| *byte == b',').try_fold(0, |classes, word| Some(classes | 1 << class(word)?))
}

impl Dump {
    /// Starts `lru_crawler metadump` of these classes, of `all`, or of `hash`, which means the same.
    pub(crate) fn meta(word: &[u8]) -> Option<Dump> {
        let classes = if word == b"hash" { Some(u64::MAX) } else { classes(word) };
        classes.map(|classes| Dump { place: 0, classes, form: Form::Meta })
    }

    /// Starts `stats cachedump` of a class with a limit of items; 0 for no limit.
    ///
    /// # Errors
    /// The answer to invalid arguments.
    pub(crate) fn cache([class, limit]: [&[u8]; 2]) -> Result<Dump, &'static str> {
        if limit.is_empty() {
            return Err("CLIENT_ERROR bad command line");
        }
        let number = super::command::unsigned;
        let (Some(class), Some(limit)) = (number(class), number(limit)) else {
            return Err("CLIENT_ERROR bad command line format");
        };
        if class >= CLASSES as u64 {
            return Err("CLIENT_ERROR Illegal slab id");
        }
        let limit = if limit == 0 { u64::MAX } else { limit };
        Ok(Dump { place: 0, classes: 1 << class, form: Form::Cache(limit) })
    }

    /// Lists some more items. Returns true after the last one.
    pub(super) fn step(&mut self, cache: &Cache, now: Instant, out: &mut Vec<u8>) -> bool {
        for _ in 0..WALK {
            if out.len() + LINE > OUTPUT {
                return false;
            }
            let left = !matches!(self.form, Form::Cache(0));
            if !left || self.place as usize >= cache.items.places() {
                out.extend_from_slice(b"END\r\n");
                return true;
            }
            let name = cache.items.at(self.place, now);
            self.place += 1;
            if let Some(name) = name.filter(|name| self.classes >> cache.items.class(*name) & 1 == 1) {
                self.tell(cache, name, now, out);
            }
        }
        false
    }

    fn tell(&mut self, cache: &Cache, name: Name, now: Instant, out: &mut Vec<u8>) {
        const SECOND: u64 = 1_000_000_000;
        let items = &cache.items;
        let mut key = [0; MAX_KEY];
        let len = items.key(name, &mut key);
        let key = &key[..len];
        let Attributes { expires, unique, marks, .. } = items.attributes(name);
        match &mut self.form {
            Form::Meta => {
                out.extend_from_slice(b"key=");
                key.iter().for_each(|byte| encode(*byte, out));
                let accessed = now.0 / SECOND - u64::from(items.idle(name, now));
                match expires {
                    Instant::NEVER => write!(out, " exp=-1"),
                    expires => write!(out, " exp={}", expires.0 / SECOND),
                }
                .expect("a Vec takes bytes");
                let fetched = if marks.fetched { "yes" } else { "no" };
                let class = items.class(name);
                let size = items.size(name);
                writeln!(out, " la={accessed} cas={unique} fetch={fetched} cls={class} size={size}")
                    .expect("a Vec takes bytes");
            }
            Form::Cache(left) => {
                *left -= 1;
                let expires = if expires == Instant::NEVER { 0 } else { expires.0 / SECOND };
                out.extend_from_slice(b"ITEM ");
                out.extend_from_slice(key);
                write!(out, " [{} b; {expires} s]\r\n", items.stored(name).len).expect("a Vec takes bytes");
            }
        }
    }
}

/// Appends a byte, percent-encoded as in a URL if necessary.
fn encode(byte: u8, out: &mut Vec<u8>) {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        out.push(byte);
    } else {
        write!(out, "%{byte:02X}").expect("a Vec takes bytes");
    }
}
