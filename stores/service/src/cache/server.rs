//! The cache behind memcached's text protocol: one thread that waits for all its clients at once.

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

/// What a cache serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// TCP address.
    pub listen: Option<SocketAddr>,
    /// Path of a Unix socket, which is made and removed at the end, and its mode.
    pub unix: Option<(PathBuf, u32)>,
    /// Seconds of silence after which a connection is closed; 0: never.
    pub idle_timeout: u32,
    /// True: clients may end the server with `shutdown`.
    pub shutdown: bool,
    /// Bytes for keys and values, at least [`MIN_MEMORY`](remora_store::cache::MIN_MEMORY). When they are
    /// full, the items that were not used for longest go.
    pub memory: usize,
    /// Items at most.
    pub items: u32,
    /// Clients at a time.
    pub clients: u32,
}

impl Default for ServerConfig {
    /// 64 MiB for 1024 clients, without an address.
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

/// What `version` answers: the memcached whose text protocol this is. Clients conclude from it what a server
/// knows.
const VERSION: &str = "1.6.18";
/// Clients taken in one turn, so that those which are there get theirs.
const ADMITTED: usize = 64;
/// Descriptors may be used up by the rest of the machine: then the listener is asked again after a while.
const RETRY: Duration = Duration::from_millis(100);
const LISTENER: Token = Token(usize::MAX);
const ENDING: Token = Token(usize::MAX - 1);

/// A cache with its clients.
pub struct Server {
    cache: Cache,
    poll: Poll,
    listeners: Listeners,
    /// Readable when it shall end.
    _ending: UnixStream,
    /// Clients may be waiting at it.
    knocking: bool,
    connections: Slab<Connection>,
    /// Those that have something to do.
    ready: VecDeque<usize>,
    most: usize,
    timers: Timers,
    /// The number of the next connection.
    serial: u64,
    /// Nanoseconds that one may stay silent.
    idle: Option<u64>,
    clock: SteadyClock,
}

impl Server {
    /// Opens a cache that ends when `stop` is readable. Its memory is that of `chains`, if there are some.
    ///
    /// # Errors
    /// `Config`: an address is taken, or there is not so much memory. `Io`: the system's.
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
        // A socket in the file system is removed at the end: so the end must be known of from before it is
        // made.
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

    /// Where it listens.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// What a client of chains must know to find an item.
    pub fn directory(&self) -> Option<Directory> {
        self.cache.directory()
    }

    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// The system's.
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

    /// The time of a connection has come: its patience is over, or ours.
    fn time(&mut self, timer: Timer, now: Instant) {
        let (number, serial, why) = timer;
        let Some(connection) = self.connections.get_mut(number).filter(|found| found.serial == serial) else {
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

    /// Gives a connection its turn, once.
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

    /// Takes some of those that wait; whether there may be more.
    fn admit(&mut self) -> bool {
        for _ in 0..ADMITTED {
            match self.listeners.accept() {
                Ok(stream) => self.take(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // Of a client that left before it was taken.
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
            // It has not said anything yet, so one line fits.
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

/// Time since 1970 that never runs backwards, whatever happens to the clock on the wall.
#[derive(Copy, Clone)]
struct SteadyClock {
    /// When the server started, by the monotonic clock.
    start: Clock,
    /// The same, since 1970.
    since_1970: Duration,
}

impl SteadyClock {
    fn now(self) -> Instant {
        let now = self.since_1970 + self.start.elapsed();
        Instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1))
    }
}
