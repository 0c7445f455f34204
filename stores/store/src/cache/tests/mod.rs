//! Tests of the cache through sessions, as clients use it.

mod admin;
mod arriving;
mod bounds;
mod chains;
mod cuts;
mod eviction;
mod meta;
mod protocol;
mod refused;
mod time;

use super::{Cache, Config, MIN_MEMORY, OUTPUT, Session};
use crate::Registered;
use remora_memory::{Bytes, Key};
use remora_transport::Instant;

/// Noon of an arbitrary day, in seconds since 1970.
pub(crate) const NOON: u64 = 1_700_000_000;

/// A cache with one client.
pub(crate) struct TestClient {
    pub cache: Cache,
    pub session: Session,
    /// Nanoseconds since 1970.
    pub now: Instant,
}

/// Returns a configuration for `items` items.
pub(crate) fn config(items: u32) -> Config {
    Config {
        items,
        hash_seed: 1,
        version: "1.2.3",
        remora: "0.0.1",
        pid: 7,
        connections: 10,
        idle_timeout: 0,
        shutdown: false,
    }
}

impl TestClient {
    /// Returns a client of a cache with the minimum memory.
    pub(crate) fn new() -> TestClient {
        TestClient::with(MIN_MEMORY, 1000)
    }

    pub(crate) fn with(memory: usize, items: u32) -> TestClient {
        let memory = Registered { bytes: Bytes::heap(memory).unwrap(), addr: 0, key: Key::new(0) };
        let config = config(items);
        let cache = Cache::new(config, memory, Instant(NOON * 1_000_000_000));
        TestClient::to(cache)
    }

    /// Returns a client of this cache.
    pub(crate) fn to(mut cache: Cache) -> TestClient {
        let session = Session::new(&mut cache);
        TestClient { cache, session, now: Instant(NOON * 1_000_000_000) }
    }

    /// Replaces the client by a new one.
    pub(crate) fn reconnect(&mut self) {
        let next = Session::new(&mut self.cache);
        std::mem::replace(&mut self.session, next).close(&mut self.cache);
    }

    /// Advances the clock by this number of seconds.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * 1_000_000_000);
    }

    /// Returns all answers, to a client that reads slowly.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        say(&mut self.cache, &mut self.session, self.now, bytes)
    }

    /// Returns all answers as text.
    pub(crate) fn tell(&mut self, bytes: impl AsRef<[u8]>) -> String {
        String::from_utf8_lossy(&self.say(bytes.as_ref())).into_owned()
    }

    /// Returns one value of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let all = self.tell("stats\r\n");
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).expect(name);
        line.parse().expect("a number")
    }
}

/// Returns all answers of a session.
pub(crate) fn say(cache: &mut Cache, session: &mut Session, now: Instant, bytes: &[u8]) -> Vec<u8> {
    let mut offset = 0;
    let mut all = Vec::new();
    let mut out = Vec::with_capacity(OUTPUT);
    loop {
        let taken = session.run(cache, now, &bytes[offset..], &mut out);
        assert!(out.len() <= OUTPUT && out.capacity() == OUTPUT, "output has its bound");
        offset += taken;
        if taken == 0 && out.is_empty() && !session.is_busy() {
            // A client that waits for its answer sends nothing more.
            let Some(until) = session.wakes() else { return all };
            session.run(cache, until, &bytes[offset..], &mut out);
        }
        all.append(&mut out);
    }
}

/// Returns a `set` command with a value of `len` bytes.
pub(crate) fn set(key: &str, len: usize) -> Vec<u8> {
    let mut command = format!("set {key} 0 0 {len}\r\n").into_bytes();
    command.resize(command.len() + len, b'v');
    command.extend_from_slice(b"\r\n");
    command
}
