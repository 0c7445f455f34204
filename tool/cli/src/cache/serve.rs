//! `remora serve cache`: one thread that waits for all its clients at once.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};
use remora_memory::{Bytes, Key};
use remora_store::Registered;
use remora_store::cache::{Cache, Config, MIN_MEMORY, Session};
use remora_transport::Instant;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slab::Slab;

use super::chains::{self, Chains};
use super::connection::{Connection, Wish};
use super::listen::Listeners;
use super::stream::Stream;
use super::timers::{Timer, Timers, Why};
use crate::device::PortArgs;
use crate::ending;
use crate::serving::conduct::size;

/// Arguments of `remora serve cache`.
#[derive(Args, Clone, Debug)]
#[allow(clippy::duplicated_attributes, reason = "each option of the NIC is made to need the chains")]
#[command(
    mut_arg("port", of_chains),
    mut_arg("address", of_chains),
    mut_arg("interface", of_chains),
    mut_arg("capture", of_chains),
    mut_arg("fault", of_chains),
    after_help = "Examples:\n  remora serve cache\n  remora serve cache --listen 127.0.0.1:11311 --memory 1g\n  remora serve cache --memory 512m --items 8m --clients 10000\n  remora serve cache --unix-socket /run/cache.sock --idle-timeout 600\n  remora serve cache --chains 127.0.0.1:11212 --port udp\n  remora serve cache --chains 127.0.0.1:11212 --nicd /run/nic.sock --keep cache\n\nSizes take k, m or g for 2^10, 2^20 and 2^30. It speaks memcached's text protocol: see docs/CACHE.md."
)]
pub struct CacheArgs {
    /// TCP address to serve at [default: 127.0.0.1:11211, or none beside --unix-socket].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Unix socket to serve at, which is made, and removed at the end.
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// Who may connect to it: a mode in octal.
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = mode, requires = "unix_socket")]
    pub unix_socket_mode: u32,
    /// Close a connection on which nothing was said for so many seconds; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub idle_timeout: u32,
    /// Let clients end the server with `shutdown`.
    #[arg(long)]
    pub enable_shutdown: bool,
    /// Bytes for keys and values; when they are full, what was not used for longest goes.
    #[arg(long, default_value = "64m", value_parser = size)]
    pub memory: usize,
    /// Items at most; each takes about 150 bytes beside that memory, and 128 to 256 more with --chains [default: one for 256 bytes of it].
    #[arg(long, value_parser = size)]
    pub items: Option<usize>,
    /// Clients at a time.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub clients: u32,
    /// TCP address at which Remora clients connect (`remora cache`): the NIC answers their GETs, by chains.
    #[arg(long, value_name = "ADDRESS")]
    pub chains: Option<SocketAddr>,
    #[command(flatten)]
    pub port: PortArgs,
    /// Use the NIC and the memory of the daemon that listens at this socket (`remora nicd`), whose port it is then.
    #[arg(long, value_name = "PATH", requires_all = ["keep", "chains"], conflicts_with_all = ["port", "address", "interface", "capture", "fault"])]
    pub nicd: Option<PathBuf>,
    /// The daemon keeps chains and items under this name when the server is killed, until the next one starts, empty.
    #[arg(long, value_name = "NAME", requires = "nicd")]
    pub keep: Option<String>,
}

/// What `version` answers: the memcached whose text protocol this is. Clients conclude from it what a server knows.
const VERSION: &str = "1.6.18";
/// Where the cache is served if nothing else is said.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 11211);

/// The NIC is there for chains alone.
fn of_chains(option: clap::Arg) -> clap::Arg {
    option.requires("chains")
}

/// Descriptors for all but clients: standard streams, listener, epoll, and some to spare.
const OTHERS: u64 = 16;
/// Clients taken in one turn, so that those which are there get theirs.
const ADMITTED: usize = 64;
/// Descriptors may be used up by the rest of the machine: then the listener is asked again after a while.
const RETRY: Duration = Duration::from_millis(100);
const LISTENER: Token = Token(usize::MAX);
const ENDING: Token = Token(usize::MAX - 1);

/// A mode in octal.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "a mode in octal, up to 777, like 660".to_owned())
}

/// `remora serve cache`.
pub fn run(args: &CacheArgs) -> Result<()> {
    if args.memory < MIN_MEMORY {
        bail!("--memory takes at least {}m: the longest value must fit", MIN_MEMORY >> 20);
    }
    descriptors(args.clients)?;
    let clock =
        (Clock::now(), SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?);
    let chains = args.chains.map(|address| open_chains(args, address)).transpose()?;
    let mut service = Service::open(args, clock, chains.as_ref())?;
    eprintln!(
        "serving memcached's text protocol at {}; {} MiB, {} items, {} clients; end with Ctrl-C",
        service.listeners,
        args.memory >> 20,
        items(args)?,
        args.clients
    );
    if let Some(chains) = chains {
        eprintln!("Remora clients connect at {}", chains.address());
        let at = service.listeners.tcp().context("a TCP address for clients of chains")?;
        chains.serve(service.cache.directory().context("the cache is shown to chains")?, at)?;
    }
    service.work()
}

fn open_chains(args: &CacheArgs, address: SocketAddr) -> Result<Chains> {
    let nic = match args.nicd.as_deref().zip(args.keep.as_deref()) {
        Some((socket, name)) => chains::lent(socket, name)?,
        None => chains::own(&args.port, args.clients)?,
    };
    Chains::open(nic, address, args.memory, items(args)?, args.clients as usize)
}

fn items(args: &CacheArgs) -> Result<u32> {
    let asked = args.items.map_or(Ok(Config::items_for(args.memory)), u32::try_from);
    asked.ok().filter(|items| *items < 1 << 30).context("--items takes at most 1073741823")
}

/// Raises the limit on descriptors so far that each client gets one.
fn descriptors(clients: u32) -> Result<()> {
    let (limit, needed) = (getrlimit(Resource::Nofile), u64::from(clients) + OTHERS);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < needed) {
        let most = limit.maximum.unwrap_or(0).saturating_sub(OTHERS);
        if most == 0 {
            bail!("a server takes {} descriptors and one for each client: raise `ulimit -Hn`", OTHERS);
        }
        bail!("{clients} clients take {needed} descriptors: raise `ulimit -Hn`, or serve --clients {most}");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("raising the limit on descriptors")
}

struct Service {
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
    /// When it started, by the steady clock and since 1970.
    clock: (Clock, Duration),
}

impl Service {
    fn open(args: &CacheArgs, clock: (Clock, Duration), chains: Option<&Chains>) -> Result<Service> {
        let config = Config {
            items: items(args)?,
            hash_seed: crate::kv::serve::fresh_seed(),
            version: VERSION,
            remora: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            connections: args.clients,
            idle_timeout: args.idle_timeout,
            shutdown: args.enable_shutdown,
        };
        let poll = Poll::new().context("epoll")?;
        // A socket in the file system is removed at the end: so the end must be known of from before it is made.
        let mut ending = UnixStream::from_std(ending::readable()?);
        poll.registry().register(&mut ending, ENDING, Interest::READABLE)?;
        let unix = args.unix_socket.as_deref().map(|path| (path, args.unix_socket_mode));
        let tcp = args.listen.or_else(|| (unix.is_none() || args.chains.is_some()).then_some(LISTEN));
        let mut listeners = Listeners::bind(tcp, unix)?;
        listeners.register(poll.registry(), LISTENER)?;
        let cache = match chains.map(Chains::memory) {
            Some([values, buckets]) => Cache::new(config, values, since(clock)).shown_in(buckets),
            None => {
                let bytes = Bytes::heap(args.memory).with_context(|| {
                    format!("{} MiB for values: ask for less with --memory", args.memory >> 20)
                })?;
                Cache::new(config, Registered { bytes, addr: 0, key: Key::new(0) }, since(clock))
            }
        };
        Ok(Service {
            cache,
            poll,
            listeners,
            _ending: ending,
            knocking: false,
            connections: Slab::new(),
            ready: VecDeque::new(),
            most: args.clients as usize,
            timers: Timers::default(),
            serial: 0,
            idle: (args.idle_timeout > 0).then(|| u64::from(args.idle_timeout) * 1_000_000_000),
            clock,
        })
    }

    fn work(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.cache.is_ending() {
            let timer = self.timers.wait(since(self.clock));
            let wait = match (self.ready.is_empty(), self.knocking) {
                (false, _) => Some(Duration::ZERO),
                (true, true) => Some(timer.map_or(RETRY, |timer| timer.min(RETRY))),
                (true, false) => timer,
            };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error).context("epoll"),
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
            let now = since(self.clock);
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
            // It has not said anything yet, so there is room for one line.
            let _ = stream.write(b"ERROR Too many open connections\r\n");
            return self.cache.reject();
        }
        let now = since(self.clock);
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

/// Now, since 1970; it never runs backwards, whatever happens to the clock on the wall.
fn since((start, started): (Clock, Duration)) -> Instant {
    let now = started + start.elapsed();
    Instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_their_letter() {
        let cases = [("1", 1), ("4096", 4096), ("64k", 65536), ("64m", 64 << 20), ("1G", 1 << 30)];
        for (text, expected) in cases {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "0m", "m", "-1", "1.5g", "1mb", "99999999999g", "ü"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
