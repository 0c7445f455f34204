//! Listings: all keys of a table, page by page, while others change it.
//!
//! A listing goes through the positions of the table's index. The client holds its cursor; the server stores
//! nothing for it. A key that moves to a position behind the cursor is noted in the table's
//! [`Moves`](super::Moves), whose number the cursor holds. After the last position the listing visits the
//! positions that keys moved to since it began. So a key that is in the table throughout is listed at least
//! once. When more keys moved than are noted, the listing starts over.
//!
//! ```text
//! cursor: the key of a request              page: the value of its response
//!  0  position  u64  0: the beginning        0  cursor of the next page, or the end
//!  8  move      u64  all ones: unknown      16  records: key len u32, key
//! ```
//! The end is a position of all ones.

use super::cursor::{Cursor, UNKNOWN};
use super::table::Table;
use crate::words::u32_at;

/// Maximum number of positions per page, so that a listing of an empty table does not delay other clients.
const POSITIONS: u64 = 4096;

/// Writes a page of at most `most` bytes to `page`: the next cursor, then keys. A record that is longer than
/// a page is left out.
pub(super) fn list(table: &impl Table, cursor: Cursor, most: usize, page: &mut Vec<u8>) {
    page.clear();
    page.resize(Cursor::LEN, 0);
    let mut current = cursor;
    for _ in 0..POSITIONS {
        let Some((position, next)) = step(table, current) else {
            current = Cursor::END;
            break;
        };
        let before = page.len();
        let empty = page.len() == Cursor::LEN;
        if let Some(position) = position {
            table.key_at(position, page);
        }
        if page.len() > most {
            page.truncate(before);
            if !empty {
                break;
            }
        }
        current = next;
    }
    page[..Cursor::LEN].copy_from_slice(&current.encode());
}

/// Returns the position at a cursor, if it is to be visited, and the next cursor. Returns `None` at the end
/// of the listing.
fn step(table: &impl Table, cursor: Cursor) -> Option<(Option<u64>, Cursor)> {
    let moves = table.moves();
    let unseen = if cursor.unseen == UNKNOWN { moves.count } else { cursor.unseen };
    if cursor.position < table.positions() {
        return Some((Some(cursor.position), Cursor { position: cursor.position + 1, unseen }));
    }
    if cursor == Cursor::END || unseen >= moves.count {
        return None;
    }
    Some(match moves.get(unseen) {
        Some(position) => (Some(position), Cursor { unseen: unseen + 1, ..cursor }),
        None => (None, Cursor::START),
    })
}

/// Appends a record to a page: a key of `len` bytes, which `read` writes.
pub(crate) fn push(page: &mut Vec<u8>, len: usize, read: impl FnOnce(&mut [u8])) {
    page.extend_from_slice(&(len as u32).to_le_bytes());
    let start = page.len();
    page.resize(start + len, 0);
    read(&mut page[start..]);
}

/// A page of a listing, as a client reads it.
#[derive(Copy, Clone, Debug)]
pub struct Page<'a> {
    /// The cursor of the next page; `None` after the last page.
    pub next: Option<Cursor>,
    records: &'a [u8],
}

impl<'a> Page<'a> {
    /// Parses the value of a response. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Page<'a>> {
        let (cursor, records) = bytes.split_first_chunk()?;
        let cursor = Cursor::decode(cursor);
        let page = Page { next: (cursor != Cursor::END).then_some(cursor), records };
        let mut rest = records;
        while !rest.is_empty() {
            (_, rest) = record(rest)?;
        }
        Some(page)
    }

    /// Returns the keys of the page.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let (key, behind) = record(rest)?;
            rest = behind;
            Some(key)
        })
    }
}

fn record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = bytes.split_at_checked(4)?;
    rest.split_at_checked(u32_at(bytes, 0) as usize)
}
