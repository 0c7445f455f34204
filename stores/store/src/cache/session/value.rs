//! The reception of a value: at once, or in pieces that are kept until the value is complete.

use super::{PATIENCE, Session, State};
use crate::cache::store::{Ended, Store, Value};
use crate::cache::{Cache, MAX_VALUE};
use remora_transport::Instant;

const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";

impl Session {
    /// Notes that a value of this length follows.
    pub(in crate::cache) fn begin(
        &mut self,
        store: Store,
        key: &[u8],
        len: u64,
        cache: &mut Cache,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        if len > MAX_VALUE as u64 {
            cache.too_large(store.verb, key, now);
            self.answer("SERVER_ERROR object too large for cache", out);
            self.state = State::Swallow { left: len + 2, then: None };
            return;
        }
        self.key[..key.len()].copy_from_slice(key);
        self.key_len = key.len();
        self.state = State::Value { store, len: len as usize, filled: 0, arrival: None };
    }

    /// Processes the available bytes of a value, and then its end.
    pub(super) fn value(
        &mut self,
        cache: &mut Cache,
        now: Instant,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let State::Value { store, len, filled, arrival } = &mut self.state else { return None };
        let store = *store;
        let len = *len;
        let at_once = *filled == 0 && input.len() >= len + 2;
        if *filled < len && !at_once {
            let piece = &input[..input.len().min(len - *filled)];
            if piece.is_empty() {
                return None;
            }
            if cache.arrivals.append(arrival, piece).is_err() {
                let left = (len - *filled + 2) as u64;
                self.gave_way(store, len, left, cache, now, out);
                return Some(0);
            }
            *filled += piece.len();
            return Some(piece.len());
        }
        let (bytes, rest) = input.split_at(if at_once { len } else { 0 });
        let end = rest.get(..2)?;
        let State::Value { arrival, .. } = std::mem::replace(&mut self.state, State::Line) else {
            return None;
        };
        let taken = bytes.len() + 2;
        if end != b"\r\n" {
            arrival.into_iter().for_each(|arrival| cache.arrivals.end(arrival));
            // The bytes that follow belong to the value, whose end is unknown.
            self.state = State::Refused {
                answer: "CLIENT_ERROR bad data chunk",
                until: now.after(PATIENCE),
                value: None,
            };
            return Some(taken);
        }
        let ended = match &arrival {
            None => cache.finish(store, &self.key[..self.key_len], Value::Bytes(bytes), now),
            Some(arrival) if cache.arrivals.is_whole(arrival, len) => {
                cache.finish(store, &self.key[..self.key_len], Value::Arrived(arrival, len), now)
            }
            Some(_) => {
                self.gave_way(store, len, 0, cache, now, out);
                return Some(taken);
            }
        };
        arrival.into_iter().for_each(|arrival| cache.arrivals.end(arrival));
        self.stored(ended, out);
        Some(taken)
    }

    /// Handles a value for which there was no memory and of which `left` bytes have not arrived.
    fn gave_way(
        &mut self,
        store: Store,
        len: usize,
        left: u64,
        cache: &mut Cache,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        cache.out_of_memory(store.verb, &self.key[..self.key_len], len, now);
        self.answer(OUT_OF_MEMORY, out);
        self.state = if left > 0 { State::Swallow { left, then: None } } else { State::Line };
    }

    fn stored(&mut self, ended: Ended, out: &mut Vec<u8>) {
        let (plain, code) = match ended {
            Ended::Stored(_) => ("STORED", "HD"),
            Ended::NotStored => ("NOT_STORED", "NS"),
            Ended::Exists => ("EXISTS", "EX"),
            Ended::NotFound => ("NOT_FOUND", "NF"),
            Ended::OutOfMemory => (OUT_OF_MEMORY, OUT_OF_MEMORY),
        };
        let unique = if let Ended::Stored(unique) = ended { Some(unique) } else { None };
        match self.reply.take() {
            Some(reply) if ended != Ended::OutOfMemory => reply.write(code, unique, out),
            _ => self.answer(plain, out),
        }
    }
}
