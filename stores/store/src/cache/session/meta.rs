//! The session's part of memcached's meta commands.

use super::Session;
use crate::cache::attributes::Marks;
use crate::cache::command::{self, MAX_LEN, unsigned};
use crate::cache::meta::{Reply, Request, Verb, WORDS, Wrong};
use crate::cache::store::Store;
use crate::cache::{Cache, MAX_KEY};
use remora_transport::Instant;

impl Session {
    /// Executes a meta command; `words` are all words of its line.
    ///
    /// # Errors
    /// The reason for which the line is refused.
    pub(super) fn meta(
        &mut self,
        verb: Verb,
        words: &[&[u8]],
        cache: &mut Cache,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        cache.counters.cmd_meta += 1;
        if verb == Verb::Nothing {
            out.extend_from_slice(b"MN\r\n");
            return Ok(());
        }
        // A line without a key was refused before.
        let token = words.get(1).filter(|key| key.len() <= MAX_KEY).ok_or(Wrong::Format)?;
        if verb == Verb::Debug {
            let encoded = words.get(2).is_some_and(|flag| flag[0] == b'b');
            cache.debug(token, encoded, now, out)?;
            return Ok(());
        }
        let first_flag = if verb == Verb::Set { 3 } else { 2 };
        let flags = words.get(first_flag..).unwrap_or(&[]);
        if words.len() > WORDS {
            return Err(Wrong::Long);
        }
        match verb {
            Verb::Set => self.meta_set(token, words.get(2), flags, now, cache, out)?,
            Verb::Get => self.meta_get(&Request::read(token, flags)?, cache, now, out)?,
            Verb::Delete => cache.meta_delete(&Request::read(token, flags)?, now, out)?,
            _ => cache.meta_count(&Request::read(token, flags)?, now, out)?,
        }
        Ok(())
    }

    /// Executes `ms`, whose value follows.
    fn meta_set(
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
            (b'S' | b'R', Some(unique)) => command::Verb::Cas(unique),
            (b'S', None) => command::Verb::Set,
            (b'R', None) => command::Verb::Replace,
            (b'E', _) => command::Verb::Add,
            (b'A', _) => command::Verb::Append,
            (b'P', _) => command::Verb::Prepend,
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

    /// Executes `mg`: reports the value of an item, its attributes, or both.
    fn meta_get(
        &mut self,
        request: &Request<'_>,
        cache: &mut Cache,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let touch = request.flags.iter().any(|flag| flag[0] == b'T');
        let item = cache.retrieve(request.key(), touch, now);
        let name = match item {
            Some(name) => name,
            None if request.make.is_some() => {
                let marks = Marks { won: true, ..Marks::default() };
                let Ok(name) = cache.make(request.key(), None, marks, now) else {
                    out.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
                    return Ok(());
                };
                name
            }
            None => {
                if !request.quiet {
                    request.answer("EN", out);
                }
                return Ok(());
            }
        };
        cache.item(request, name, item.is_none(), now, out);
        if request.value {
            self.send_value(cache, name);
        }
        Ok(())
    }
}
