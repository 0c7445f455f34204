//! Connections that have not sent their request yet. One thread reads all of them; each has a few seconds
//! and a few hundred bytes. Their number is bounded, in total and for each source: when a bound is reached,
//! the oldest connection is closed in favour of a new one.

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::fd::AsRawFd;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ConnectError;
use super::deadline::Deadline;
use super::error::Stage;
use super::exchange::{Reader, write};
use super::full::{Capacity, Full};
use super::message::Message;
use super::request::Request;
use super::shared::Shared;
use crate::LogLimit;

/// Maximum number of connections without a complete request.
pub const PENDING: usize = 128;
/// Maximum number of such connections of one source: an IPv4 address, or the first 64 bits of an IPv6
/// address.
pub const PENDING_OF_SOURCE: usize = 64;
/// Time within which a connection must send its request.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause after the system could not accept a connection, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of connections that are accepted before others are read.
const TOGETHER: usize = 32;
/// Maximum number of unfinished connections per second that are closed in favour of new ones. It bounds the
/// cost of a peer that reconnects at once: at twice this rate, connected clients lost a fifth of their
/// throughput on a slow machine. A client has a tenth of a second to send its request.
const EVICTIONS_PER_SECOND: f64 = 500.0;
/// Number of connections that may be closed together after a quiet time.
const EVICTIONS_AT_ONCE: f64 = 1024.0;

const LISTENER: Token = Token(0);
pub(super) const WAKER: Token = Token(1);
const FIRST: usize = 2;

/// A connection without a complete request.
struct Newcomer {
    stream: TcpStream,
    peer: SocketAddr,
    until: Instant,
    reader: Reader,
}

/// Token bucket that limits the number of connections closed in favour of new ones.
struct Evictions {
    left: f64,
    counted: Instant,
}

impl Evictions {
    fn new(now: Instant) -> Evictions {
        Evictions { left: EVICTIONS_AT_ONCE, counted: now }
    }

    /// Takes a token. Returns false if no further connection may be closed for some time.
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64();
        self.left = (self.left + passed * EVICTIONS_PER_SECOND).min(EVICTIONS_AT_ONCE) - 1.0;
        self.counted = now;
        self.left >= 1.0
    }
}

/// All connections without a complete request, in the order of their arrival.
pub(super) struct Pending {
    poll: Poll,
    shared: Arc<Shared>,
    all: BTreeMap<usize, Newcomer>,
    next: usize,
    /// True if the listener may have more connections.
    accepting: bool,
    /// Time before which no connection is accepted.
    resting: Option<Instant>,
    evictions: Evictions,
    log: LogLimit,
}

/// Returns the source whose connections share a bound: an IPv4 address, or an IPv6 network.
fn source(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        ip => ip,
    }
}

impl Pending {
    pub(crate) fn new(poll: Poll, shared: Arc<Shared>) -> io::Result<Pending> {
        let listener = shared.socket.as_raw_fd();
        poll.registry().register(&mut SourceFd(&listener), LISTENER, Interest::READABLE)?;
        Ok(Pending {
            poll,
            shared,
            all: BTreeMap::new(),
            next: FIRST,
            accepting: true,
            resting: None,
            evictions: Evictions::new(Instant::now()),
            log: LogLimit::new(),
        })
    }

    /// Reads connections until the listener is dropped.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.shared.stopped.load(Ordering::Acquire) {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                if let Some(left_out) = self.log.due(Instant::now()) {
                    tracing::warn!(%error, left_out, "waiting for connections");
                }
                std::thread::sleep(PAUSE);
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accepting = true,
                    WAKER => {}
                    Token(number) => self.read(number),
                }
            }
            if self.resting.is_none_or(|until| until <= Instant::now()) {
                self.resting = None;
                self.accept();
            }
            self.end_overdue();
        }
    }

    /// Returns the time until the next work that is due without an event.
    fn patience(&self) -> Option<Duration> {
        if self.accepting && self.resting.is_none() {
            return Some(Duration::ZERO);
        }
        // The oldest connection is due first.
        let due = self.all.values().next().map(|newcomer| newcomer.until);
        let until = due.into_iter().chain(self.resting).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    fn accept(&mut self) {
        for _ in 0..TOGETHER {
            if !self.accepting || self.resting.is_some() {
                return;
            }
            match self.shared.socket.accept() {
                Ok((stream, peer)) => self.take(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.accepting = false,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.rest(&error),
            }
        }
    }

    /// Pauses accepting, because the system has no descriptor. The oldest silent connection is closed to
    /// free one.
    fn rest(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.resting = Some(now + PAUSE);
        if let Some(left_out) = self.log.due(now) {
            let advice = remora_port::remedy(error);
            tracing::warn!(%error, left_out, "cannot accept a connection{advice}");
        }
        if let Some(oldest) = self.all.keys().next().copied() {
            self.give_way(oldest);
        }
    }

    fn take(&mut self, stream: TcpStream, peer: SocketAddr) {
        while let Some(number) = self.surplus(source(peer)) {
            self.give_way(number);
            let now = Instant::now();
            if !self.evictions.take(now) {
                self.resting = Some(now + PAUSE);
            }
        }
        let _ = stream.set_nodelay(true);
        let number = self.next;
        let fd = stream.as_raw_fd();
        let registered = stream.set_nonblocking(true).and_then(|()| {
            self.poll.registry().register(&mut SourceFd(&fd), Token(number), Interest::READABLE)
        });
        if let Err(error) = registered {
            return self.refuse(peer, &ConnectError::Tcp(error));
        }
        self.next = self.next.wrapping_add(1).max(FIRST);
        let until = Instant::now() + PATIENCE;
        self.all.insert(number, Newcomer { stream, peer, until, reader: Reader::default() });
    }

    /// Returns the connection to be closed in favour of a new one from this source, if one must be: the
    /// oldest of the same source, or of the source that has most.
    fn surplus(&self, ip: IpAddr) -> Option<usize> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for newcomer in self.all.values() {
            *counts.entry(source(newcomer.peer)).or_default() += 1;
        }
        let victim = if counts.get(&ip).is_some_and(|count| *count >= PENDING_OF_SOURCE) {
            ip
        } else if self.all.len() >= PENDING {
            *counts.iter().max_by_key(|(_, count)| **count)?.0
        } else {
            return None;
        };
        self.all.iter().find(|(_, newcomer)| source(newcomer.peer) == victim).map(|(number, _)| *number)
    }

    /// Closes a silent connection, unless its request has just arrived.
    fn give_way(&mut self, number: usize) {
        self.read(number);
        let Some(newcomer) = self.remove(number) else { return };
        let taken = self.all.len() as u32 + 1;
        let full = Full { capacity: Capacity::Handshakes, taken, most: PENDING as u32 };
        self.end(newcomer, &ConnectError::Full(full));
    }

    fn end_overdue(&mut self) {
        let now = Instant::now();
        while let Some((number, newcomer)) = self.all.first_key_value()
            && newcomer.until <= now
        {
            let number = *number;
            if let Some(newcomer) = self.remove(number) {
                self.refuse(newcomer.peer, &ConnectError::Timeout(Stage::Request));
            }
        }
    }

    fn remove(&mut self, number: usize) -> Option<Newcomer> {
        let newcomer = self.all.remove(&number)?;
        let _ = self.poll.registry().deregister(&mut SourceFd(&newcomer.stream.as_raw_fd()));
        Some(newcomer)
    }

    /// Reads the bytes that are available.
    fn read(&mut self, number: usize) {
        let Some(newcomer) = self.all.get_mut(&number) else { return };
        let message = match newcomer.reader.read(&mut newcomer.stream) {
            Ok(None) => return,
            Ok(Some(Message::Request(hello))) => Ok(hello),
            Ok(Some(_)) => Err(ConnectError::BadMessage),
            Err(error) => Err(error),
        };
        let Some(newcomer) = self.remove(number) else { return };
        match message {
            Ok(hello) if newcomer.stream.set_nonblocking(false).is_ok() => {
                let request = Request::new(newcomer.stream, newcomer.peer, hello);
                match request.check_source() {
                    Ok(()) => self.shared.put(request),
                    Err(error) => {
                        self.refuse(newcomer.peer, &error);
                        request.reject(&error.to_string());
                    }
                }
            }
            Ok(_) => {}
            Err(error) => self.end(newcomer, &error),
        }
    }

    /// Sends the reason, if the protocol has a message for it, and hangs up.
    fn end(&self, mut newcomer: Newcomer, error: &ConnectError) {
        let words = match error {
            ConnectError::Full(full) => Some(Message::Full(*full)),
            ConnectError::Version(_) => Some(Message::Reject(error.to_string())),
            _ => None,
        };
        if let Some(words) = words {
            let _ = write(&mut newcomer.stream, &words, Deadline::after(PAUSE));
        }
        self.refuse(newcomer.peer, error);
    }

    fn refuse(&self, peer: SocketAddr, error: &ConnectError) {
        tracing::debug!(from = %peer, %error, "connection refused");
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_run_out_and_come_back_with_time() {
        let start = Instant::now();
        let mut evictions = Evictions::new(start);
        let taken = (0..).take_while(|_| evictions.take(start)).count();
        assert_eq!(taken, EVICTIONS_AT_ONCE as usize - 1);
        assert!(!evictions.take(start + Duration::from_millis(1)));
        assert!(evictions.take(start + PAUSE));
        // A long pause does not add more tokens than the bucket holds.
        let later = start + Duration::from_secs(60);
        assert_eq!((0..).take_while(|_| evictions.take(later)).count(), taken);
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_a_network_of_ipv6() {
        let source_of = |text: &str| source(text.parse().unwrap());
        assert_eq!(source_of("127.0.0.1:1"), source_of("[::ffff:127.0.0.1]:2"));
        assert_ne!(source_of("127.0.0.1:1"), source_of("127.0.0.2:1"));
        assert_eq!(source_of("[fd00:1:2:3::4]:1"), source_of("[fd00:1:2:3:4:5:6:7]:1"));
        assert_ne!(source_of("[fd00:1:2:3::4]:1"), source_of("[fd00:1:2:4::4]:1"));
    }
}
