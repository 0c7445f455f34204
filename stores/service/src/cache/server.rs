//! The cache server with memcached's text protocol: one thread that serves all clients.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};
use remora_memory::{Bytes, Key};
use remora_store::Registered;
use remora_store::cache::{Cache, Config, Directory, Session};
use remora_transport::Instant;
use slab::Slab;

use super::chains::Chains;
use super::connection::{Connection, Wish};
use super::listen::Listeners;
use super::stream::Stream;
use super::timers::{Timer, Timers, Why};
use crate::error::{Context as _, need};
use crate::{Error, Result};

/// The configuration of a cache server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// TCP address at which the server listens; `None` for none.
    pub listen: Option<SocketAddr>,
    /// Path and mode of a Unix socket. The server creates the socket, and removes it at the end.
    pub unix: Option<(PathBuf, u32)>,
    /// Seconds without a byte in either direction after which a connection is closed; 0 for never.
    pub idle_timeout: u32,
    /// True if clients may end the server with `shutdown`.
    pub shutdown: bool,
    /// Bytes for keys and values, at least [`MIN_MEMORY`](remora_store::cache::MIN_MEMORY). When they are
    /// full, the least recently used items are evicted.
    pub memory: usize,
    /// Maximum number of items.
    pub items: u32,
    /// Maximum number of clients at the same time.
    pub clients: u32,
}

impl Default for ServerConfig {
    /// Returns the configuration of a cache with 64 MiB for 1024 clients, without an address.
    fn default() -> ServerConfig {
        let memory = 64 << 20;
        ServerConfig {
            listen: None,
            unix: None,
            idle_timeout: 0,
            shutdown: false,
            memory,
            items: Config::items_for(memory),
            clients: 1024,
        }
    }
}

/// The answer to `version`: the memcached version whose text protocol the server implements. Clients deduce
/// the supported commands from it.
const VERSION: &str = "1.6.18";
/// Maximum number of clients accepted per turn, so that connected clients get their turn.
const ADMITTED: usize = 64;
/// Time until accepting is retried when the process or system has no free file descriptor.
const RETRY: Duration = Duration::from_millis(100);
const LISTENER: Token = Token(usize::MAX);
const ENDING: Token = Token(usize::MAX - 1);

/// A cache server with its clients.
pub struct Server {
    cache: Cache,
    poll: Poll,
    listeners: Listeners,
    /// Readable when the server must end.
    _ending: UnixStream,
    /// True if clients may be waiting at a listening socket.
    knocking: bool,
    connections: Slab<Connection>,
    /// Indices of the connections that have work to do.
    ready: VecDeque<usize>,
    most: usize,
    timers: Timers,
    /// Serial number of the next connection.
    serial: u64,
    /// Nanoseconds without a request after which a connection is closed.
    idle: Option<u64>,
    clock: SteadyClock,
}

impl Server {
    /// Opens a cache that ends when `stop` becomes readable. The cache uses the memory of `chains`, if these
    /// are given.
    ///
    /// # Errors
    /// `Config`: an address is in use, or there is not enough memory. `Io`: a system call failed.
    pub fn open(config: &ServerConfig, stop: StdUnixStream, chains: Option<&Chains>) -> Result<Server> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let since_1970 = need!(started, Config, "the clock stands before 1970");
        let clock = SteadyClock { start: Clock::now(), since_1970 };
        let own = Config {
            items: config.items,
            hash_seed: crate::seed::fresh(),
            version: VERSION,
            remora: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            connections: config.clients,
            idle_timeout: config.idle_timeout,
            shutdown: config.shutdown,
        };
        let poll = Poll::new().context("epoll")?;
        // The Unix socket is removed at the end, so `stop` must be registered before the socket is created.
        let mut ending = UnixStream::from_std(stop);
        poll.registry().register(&mut ending, ENDING, Interest::READABLE)?;
        let unix = config.unix.as_ref().map(|(path, mode)| (path.as_path(), *mode));
        let mut listeners = Listeners::bind(config.listen, unix)?;
        listeners.register(poll.registry(), LISTENER)?;
        let cache = match chains.map(Chains::memory) {
            Some([values, buckets]) => Cache::new(own, values, clock.now()).shown_in(buckets),
            None => {
                let memory = config.memory;
                let bytes = Bytes::heap(memory).ok();
                let bytes =
                    need!(bytes, Config, "{} MiB for values: ask for less with --memory", memory >> 20);
                Cache::new(own, Registered { bytes, addr: 0, key: Key::new(0) }, clock.now())
            }
        };
        Ok(Server {
            cache,
            poll,
            listeners,
            _ending: ending,
            knocking: false,
            connections: Slab::new(),
            ready: VecDeque::new(),
            most: config.clients as usize,
            timers: Timers::default(),
            serial: 0,
            idle: (config.idle_timeout > 0).then(|| u64::from(config.idle_timeout) * 1_000_000_000),
            clock,
        })
    }

    /// Returns the listening sockets.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Returns what a client of chains must know to find an item, or `None` if the cache has no chains.
    pub fn directory(&self) -> Option<Directory> {
        self.cache.directory()
    }

    /// Serves clients until `stop` becomes readable.
    ///
    /// # Errors
    /// A system call failed.
    pub fn work(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.cache.is_ending() {
            let timer = self.timers.wait(self.clock.now());
            let wait = match (self.ready.is_empty(), self.knocking) {
                (false, _) => Some(Duration::ZERO),
                (true, true) => Some(timer.map_or(RETRY, |timer| timer.min(RETRY))),
                (true, false) => timer,
            };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(Error::Io(error).context("epoll"));
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.knocking = true,
                    ENDING => return Ok(()),
                    Token(number) => {
                        if let Some(connection) = self.connections.get_mut(number) {
                            connection.ended |= event.is_read_closed();
                        }
                        self.queue(number);
                    }
                }
            }
            let now = self.clock.now();
            while let Some(timer) = self.timers.due(now) {
                self.time(timer, now);
            }
            for _ in 0..self.ready.len() {
                let Some(number) = self.ready.pop_front() else { break };
                self.turn(number, now);
            }
            if self.knocking {
                self.knocking = self.admit();
            }
        }
        Ok(())
    }

    /// Processes an expired timer of a connection.
    fn time(&mut self, timer: Timer, now: Instant) {
        let (number, serial, why) = timer;
        let Some(connection) =
            self.connections.get_mut(number).filter(|connection| connection.serial == serial)
        else {
            return;
        };
        let until = match why {
            Why::Refused => {
                connection.awaited = false;
                return self.queue(number);
            }
            Why::Idle => connection.active.after(self.idle.unwrap_or(u64::MAX)),
        };
        if until > now {
            return self.timers.set(until, timer);
        }
        self.cache.kick();
        self.close(number);
    }

    /// Queues a connection for its turn, unless it is queued already.
    fn queue(&mut self, number: usize) {
        if let Some(connection) = self.connections.get_mut(number)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(number);
        }
    }

    fn turn(&mut self, number: usize, now: Instant) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        connection.queued = false;
        let wish = connection.turn(&mut self.cache, now);
        if let Some(wakes) = connection.wakes().filter(|_| !connection.awaited) {
            connection.awaited = true;
            self.timers.set(wakes, (number, connection.serial, Why::Refused));
        }
        match wish {
            Ok(Wish::Turn) => self.queue(number),
            Ok(Wish::Socket) => {}
            Ok(Wish::Close) => self.close(number),
            Err(error) => {
                tracing::info!(%error, "a client is gone");
                self.close(number);
            }
        }
    }

    fn close(&mut self, number: usize) {
        self.connections.remove(number).close(&mut self.cache);
    }

    /// Accepts some of the waiting clients. Returns true if there may be more.
    fn admit(&mut self) -> bool {
        for _ in 0..ADMITTED {
            match self.listeners.accept() {
                Ok(stream) => self.take(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // The client left before it was accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    tracing::warn!("a client could not be taken, trying again: {error}");
                    return true;
                }
            }
        }
        true
    }

    fn take(&mut self, mut stream: Stream) {
        if self.connections.len() == self.most {
            // Nothing was sent on this socket yet, so its send buffer has space for a line.
            let _ = stream.write(b"ERROR Too many open connections\r\n");
            return self.cache.reject();
        }
        let now = self.clock.now();
        self.serial += 1;
        let entry = self.connections.vacant_entry();
        let number = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(number), interest) {
            return tracing::warn!("a client could not be watched: {error}");
        }
        if let Some(idle) = self.idle {
            self.timers.set(now.after(idle), (number, self.serial, Why::Idle));
        }
        entry.insert(Connection::new(stream, Session::new(&mut self.cache), self.serial, now));
        self.queue(number);
    }
}

/// A clock of the time since 1970 that never runs backwards, even if the system time is changed.
#[derive(Copy, Clone)]
struct SteadyClock {
    /// Start of the server on the monotonic clock.
    start: Clock,
    /// Start of the server as time since 1970.
    since_1970: Duration,
}

impl SteadyClock {
    fn now(self) -> Instant {
        let now = self.since_1970 + self.start.elapsed();
        Instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1))
    }
}
