//! The server's side: one thread waits for all connections, and never for one of them.

mod acceptor;
mod connection;
mod offer;

use mio::net::TcpListener;
use mio::{Poll, Waker};
use remora_verbs::rma::RegionKey;
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::certificate::{Certificate, Fingerprint, Token};
use crate::message::{LONGEST_NAME, REGIONS};
use crate::{Error, Result, tls};
use acceptor::Acceptor;
use offer::Next;

pub use offer::Offer;

/// Whom a server admits, and its bounds.
#[derive(Clone, Debug)]
pub struct GrantOptions {
    /// The server's own certificate.
    pub certificate: Certificate,
    /// Who has it is admitted.
    pub token: Option<Token>,
    /// Whose certificate has one of these is admitted.
    pub clients: HashSet<Fingerprint>,
    /// How long a client may take from its connection to its grants.
    pub deadline: Duration,
    /// Hand-shakes at a time. At one more, the oldest is ended, if it is not brand-new.
    pub handshakes: usize,
    /// Clients that stay for announcements. Others ask again when a key is outdated.
    pub followers: usize,
}

impl GrantOptions {
    /// Nobody is admitted yet.
    pub fn new(certificate: Certificate) -> GrantOptions {
        GrantOptions {
            certificate,
            token: None,
            clients: HashSet::new(),
            deadline: Duration::from_secs(5),
            handshakes: 32,
            followers: 256,
        }
    }
}

/// Events of a server.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantCounters {
    /// Clients that got grants.
    pub granted: u64,
    /// Clients that were not admitted, or came from another address than their NIC's.
    pub refused: u64,
    /// Connections that ended without either: silent, no TLS, no grant's protocol.
    pub failed: u64,
    /// Announcements that were sent.
    pub announced: u64,
}

#[derive(Debug, Default)]
struct Counted {
    granted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    announced: AtomicU64,
}

/// What the thread and its owner share.
#[derive(Debug)]
struct Shared {
    offers: Vec<Offer>,
    /// Numbers of the offers whose announcement is to be sent.
    announce: Mutex<Vec<usize>>,
    counted: Counted,
    stop: AtomicBool,
}

/// What a program does for the clients that have their grants: it answers their messages over the same
/// connections. One thread does so, and a client's messages come one after the other.
pub trait CallHandler: Send {
    /// Bytes of a message at most, either way.
    fn longest(&self) -> usize;

    /// Takes a message of the client on this connection. False: it breaks the protocol, and is ended.
    fn message(&mut self, connection: usize, message: &[u8], replies: &mut Replies) -> bool;

    /// A connection is gone; another one may have its number.
    fn ended(&mut self, connection: usize);
}

/// What is answered to a message.
#[derive(Debug)]
pub struct Replies(Vec<Vec<u8>>);

impl Replies {
    /// Answers this.
    pub fn push(&mut self, message: Vec<u8>) {
        self.0.push(message);
    }
}

/// Gives grants until it is dropped.
pub struct GrantServer {
    address: SocketAddr,
    fingerprint: Fingerprint,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl GrantServer {
    /// Gives grants for these regions at a TCP address; port 0 takes a free one.
    ///
    /// # Errors
    /// `Listen`; `Offers`: names that are no names, or come twice; more than 256 regions.
    pub fn start(listen: SocketAddr, options: GrantOptions, offers: Vec<Offer>) -> Result<GrantServer> {
        GrantServer::start_with(listen, options, offers, None)
    }

    /// The same for a program that answers messages of clients, too.
    ///
    /// # Errors
    /// As [`start`](GrantServer::start).
    pub fn start_with(
        listen: SocketAddr,
        options: GrantOptions,
        offers: Vec<Offer>,
        calls: Option<Box<dyn CallHandler>>,
    ) -> Result<GrantServer> {
        check(&offers)?;
        let config =
            tls::server(&options.certificate).map_err(|error| Error::Certificate(error.to_string()))?;
        let at = |error| Error::Listen(listen, error);
        let listener = TcpListener::bind(listen).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), acceptor::WAKE)?;
        let fingerprint = options.certificate.fingerprint();
        let shared = Arc::new(Shared {
            offers,
            announce: Mutex::default(),
            counted: Counted::default(),
            stop: AtomicBool::new(false),
        });
        let mut acceptor = Acceptor::new(poll, listener, config, options, Arc::clone(&shared), calls)?;
        let thread =
            std::thread::Builder::new().name("remora-grants".to_owned()).spawn(move || acceptor.run())?;
        Ok(GrantServer { address, fingerprint, shared, waker, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The fingerprint of its certificate, which clients must know.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Its regions.
    pub fn offers(&self) -> &[Offer] {
        &self.shared.offers
    }

    /// Tells all clients that stayed which key a region will have after `ahead`. The key changes by
    /// [`change_key`](GrantServer::change_key) alone.
    ///
    /// # Errors
    /// `NoRegion`; `Io`: the thread cannot be woken.
    pub fn announce(&self, name: &str, key: RegionKey, ahead: Duration) -> Result<()> {
        let number = self.number(name)?;
        *self.shared.offers[number].next() = Some(Next { key, at: Instant::now() + ahead });
        self.shared.announce.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        self.waker.wake()?;
        Ok(())
    }

    /// Changes a region's key to the one that was announced, or to a random one.
    ///
    /// # Errors
    /// `NoRegion`; `Create`: the system has no randomness.
    pub fn change_key(&self, name: &str) -> Result<()> {
        let offer = &self.shared.offers[self.number(name)?];
        let next = offer.next().take();
        Ok(offer.region().rekey(next.map(|next| next.key))?)
    }

    fn number(&self, name: &str) -> Result<usize> {
        let offers = &self.shared.offers;
        offers.iter().position(|offer| offer.name == name).ok_or_else(|| {
            let granted: Vec<_> = offers.iter().map(|offer| &*offer.name).collect();
            Error::NoRegion { wanted: name.to_owned(), granted: granted.join(", ") }
        })
    }

    /// What happened so far.
    pub fn counters(&self) -> GrantCounters {
        let Counted { granted, refused, failed, announced } = &self.shared.counted;
        let [granted, refused, failed, announced] =
            [granted, refused, failed, announced].map(|count| count.load(Ordering::Relaxed));
        GrantCounters { granted, refused, failed, announced }
    }
}

impl Drop for GrantServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // A thread that cannot be woken ends at its next deadline.
        let woken = self.waker.wake().is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for GrantServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantServer({} {})", self.address, self.fingerprint)
    }
}

fn check(offers: &[Offer]) -> Result<()> {
    if offers.len() > REGIONS {
        return Err(Error::Offers(format!("a server grants {REGIONS} regions at most")));
    }
    let mut names = HashSet::new();
    for Offer { name, .. } in offers {
        let plain = (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        if !plain {
            let words = format!("a region's name has 1 to {LONGEST_NAME} bytes, and no control characters");
            return Err(Error::Offers(words));
        }
        if !names.insert(name) {
            return Err(Error::Offers(format!("two regions have the name {name}")));
        }
    }
    Ok(())
}
