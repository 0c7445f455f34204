//! The commands `mg` and `me`, which report an item and its attributes.

use super::answer::{key_flag, write_key};
use super::flags::decode;
use super::{Request, Wrong};
use crate::cache::attributes::Attributes;
use crate::cache::command::{expiry, key};
use crate::cache::items::Name;
use crate::cache::{Cache, MAX_KEY};
use remora_transport::Instant;
use std::io::Write as _;

/// Returns the seconds until `expires`, rounded up.
pub(crate) fn left(expires: Instant, now: Instant) -> u64 {
    expires.since(now).div_ceil(1_000_000_000)
}

impl Cache {
    /// Appends the answer line for an item; `made` is true if this command created it.
    pub(in crate::cache) fn item(
        &mut self,
        request: &Request<'_>,
        name: Name,
        made: bool,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        let len = self.items.stored(name).len;
        match request.value {
            true => write!(out, "VA {len}").expect("a Vec takes bytes"),
            false => out.extend_from_slice(b"HD"),
        }
        let mut marks = self.items.attributes(name).marks;
        let mut won = made;
        for flag in request.flags {
            match flag[0] {
                b'T' => self.items.set_expiry(name, expiry(request.expires, now)),
                b'N' if made => self.items.set_expiry(name, expiry(request.make.unwrap_or(0), now)),
                b'R' => won |= !marks.won && self.is_short(name, request.renew, now),
                _ => self.tell(request, flag, name, now, out),
            }
        }
        if marks.won && !made {
            out.extend_from_slice(b" Z");
        }
        if marks.stale {
            out.extend_from_slice(b" X");
            won |= !marks.won;
        }
        if won {
            out.extend_from_slice(b" W");
            marks.won = true;
            self.items.mark(name, marks);
        }
        out.extend_from_slice(b"\r\n");
        if !request.unused {
            self.items.fetch(name, now);
        }
    }

    /// Returns true if an item expires within `seconds` seconds.
    fn is_short(&self, name: Name, seconds: i64, now: Instant) -> bool {
        let expires = self.items.attributes(name).expires;
        seconds != 0 && expires != Instant::NEVER && left(expires, now) < left(expiry(seconds, now), now)
    }

    /// Appends what a flag requests.
    pub(super) fn tell(
        &self,
        request: &Request<'_>,
        flag: &[u8],
        name: Name,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        let Attributes { flags, expires, unique, marks } = self.items.attributes(name);
        match flag[0] {
            b's' => write!(out, " s{}", self.items.stored(name).len),
            b't' if expires == Instant::NEVER => write!(out, " t-1"),
            b't' => write!(out, " t{}", left(expires, now)),
            b'c' => write!(out, " c{unique}"),
            b'f' => write!(out, " f{flags}"),
            b'l' => write!(out, " l{}", self.items.idle(name, now)),
            b'h' => write!(out, " h{}", u8::from(marks.fetched)),
            b'k' => {
                key_flag(request.key(), marks.binary, out);
                Ok(())
            }
            _ => {
                request.reflect(flag, out);
                Ok(())
            }
        }
        .expect("a Vec takes bytes");
    }

    /// Executes `me`: reports the attributes of an item for debugging.
    pub(in crate::cache) fn debug(
        &mut self,
        token: &[u8],
        encoded: bool,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let (decoded, len) = if encoded {
            decode(token).ok_or(Wrong::Encoding)?
        } else {
            let mut plain = [0; MAX_KEY];
            plain[..token.len()].copy_from_slice(key(token).ok_or(Wrong::Format)?);
            (plain, token.len())
        };
        let key = &decoded[..len];
        let Some(name) = self.items.find(key, now) else {
            out.extend_from_slice(b"EN\r\n");
            return Ok(());
        };
        let Attributes { expires, unique, marks, .. } = self.items.attributes(name);
        out.extend_from_slice(b"ME ");
        write_key(key, marks.binary, out);
        // As in memcached, the time until the expiry is a negative number.
        let expires =
            if expires == Instant::NEVER { -1 } else { 0i64.saturating_sub_unsigned(left(expires, now)) };
        let fetched = if marks.fetched { "yes" } else { "no" };
        let idle = self.items.idle(name, now);
        let class = self.items.class(name);
        let size = self.items.size(name);
        write!(out, " exp={expires} la={idle} cas={unique} fetch={fetched} cls={class} size={size}\r\n")
            .expect("a Vec takes bytes");
        Ok(())
    }
}
