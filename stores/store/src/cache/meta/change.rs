//! `ms`, `md` and `ma`: items are stored, removed and counted.

use super::{Reply, Request, Wrong};
use crate::cache::Cache;
use crate::cache::command::{MAX_LEN, Verb, expiry, unsigned};
use crate::cache::count::Uncounted;
use crate::cache::items::{Marks, Name};
use crate::cache::session::Session;
use crate::cache::store::Store;
use remora_transport::Instant;
use std::io::Write as _;

impl Session {
    /// `ms`: the value follows.
    pub(super) fn meta_set(
        &mut self,
        token: &[u8],
        len: Option<&&[u8]>,
        flags: &[&[u8]],
        now: Instant,
        cache: &mut Cache,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let len = len.and_then(|len| unsigned(len)).filter(|len| *len <= MAX_LEN as u64);
        let len = len.ok_or(Wrong::Format)?;
        let request = Request::read(token, flags)?;
        let verb = match (request.mode.unwrap_or(b'S'), request.unique) {
            (b'S' | b'R', Some(unique)) => Verb::Cas(unique),
            (b'S', None) => Verb::Set,
            (b'R', None) => Verb::Replace,
            (b'E', _) => Verb::Add,
            (b'A', _) => Verb::Append,
            (b'P', _) => Verb::Prepend,
            _ => return Err(Wrong::Mode),
        };
        let store = Store {
            verb,
            flags: request.client_flags,
            expires: request.expires,
            unique: request.unique,
            stale: request.invalidate,
            binary: request.encoded,
        };
        self.reply = Some(Reply::of(&request));
        self.begin(store, request.key(), len, cache, now, out);
        Ok(())
    }
}

impl Cache {
    /// `md`: removes an item, or marks it as stale.
    pub(super) fn meta_delete(
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

    /// `ma`: counts an item up or down.
    pub(super) fn meta_count(
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
                let made = (0, Marks::default());
                match self.make(request.key(), Some(request.initial), made, now) {
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

    /// The answer with a number that was counted, or made.
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
