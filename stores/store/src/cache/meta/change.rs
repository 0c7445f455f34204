//! The commands `md` and `ma`, which remove and count items.

use super::{Request, Wrong};
use crate::cache::Cache;
use crate::cache::attributes::Marks;
use crate::cache::command::expiry;
use crate::cache::count::Uncounted;
use crate::cache::items::Name;
use remora_transport::Instant;
use std::io::Write as _;

impl Cache {
    /// Executes `md`: removes an item, or marks it as stale.
    pub(in crate::cache) fn meta_delete(
        &mut self,
        request: &Request<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let Some(name) = self.items.find(request.key(), now) else {
            self.counters.delete_misses += 1;
            request.answer("NF", out);
            return Ok(());
        };
        if request.unique.is_some_and(|unique| unique != self.items.attributes(name).unique) {
            request.answer("EX", out);
            return Ok(());
        }
        if request.invalidate {
            if request.flags.iter().any(|flag| flag[0] == b'T') {
                self.items.set_expiry(name, expiry(request.expires, now));
            }
            let unique = self.next_unique();
            self.items.invalidate(name, unique);
        } else {
            self.counters.delete_hits += 1;
            self.items.counts(name).delete_hits += 1;
            self.items.remove(name);
        }
        if !request.quiet {
            request.answer("HD", out);
        }
        Ok(())
    }

    /// Executes `ma`: counts an item up or down.
    pub(in crate::cache) fn meta_count(
        &mut self,
        request: &Request<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let up = match request.mode.unwrap_or(b'I') {
            b'I' | b'+' => true,
            b'D' | b'-' => false,
            _ => return Err(Wrong::Mode),
        };
        match self.count(request.key(), request.delta, up, request.unique, now) {
            Ok((name, number)) => {
                let before = out.len();
                self.number(request, name, number, false, now, out);
                if request.quiet {
                    out.truncate(before);
                }
            }
            Err(Uncounted::NotFound) if request.make.is_some() => {
                match self.make(request.key(), Some(request.initial), Marks::default(), now) {
                    Ok(name) => self.number(request, name, request.initial, true, now, out),
                    Err(_) => out.extend_from_slice(b"SERVER_ERROR Out of memory allocating new item\r\n"),
                }
            }
            Err(Uncounted::NotFound) => request.answer("NF", out),
            Err(Uncounted::Exists) => request.answer("EX", out),
            Err(other) => {
                out.extend_from_slice(other.text().as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    /// Appends the answer with the new number of an item.
    fn number(
        &mut self,
        request: &Request<'_>,
        name: Name,
        number: u64,
        made: bool,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        match request.value {
            true => {
                let digits = number.checked_ilog10().unwrap_or(0) + 1;
                write!(out, "VA {digits}").expect("a Vec takes bytes");
            }
            false => out.extend_from_slice(b"HD"),
        }
        for flag in request.flags {
            match flag[0] {
                b'T' => self.items.set_expiry(name, expiry(request.expires, now)),
                b'N' if made => self.items.set_expiry(name, expiry(request.make.unwrap_or(0), now)),
                b't' | b'c' => self.tell(request, flag, name, now, out),
                _ => request.reflect(flag, out),
            }
        }
        out.extend_from_slice(b"\r\n");
        if request.value {
            write!(out, "{number}\r\n").expect("a Vec takes bytes");
        }
    }
}
