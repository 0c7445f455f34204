//! The grant server. One thread serves all connections and never blocks on a single one.

mod acceptor;
mod calls;
mod connection;
mod offer;
mod options;
mod shared;

use mio::net::TcpListener;
use mio::{Poll, Waker};
use remora_verbs::rma::RegionKey;
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::certificate::Fingerprint;
use crate::message::{LONGEST_NAME, REGIONS};
use crate::{Error, Result, tls};
use acceptor::Acceptor;
use offer::Next;
use shared::{Counted, Shared};

pub use calls::{CallHandler, Replies};
pub use offer::Offer;
pub use options::GrantOptions;

/// The event counters of a server.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantCounters {
    /// The number of grant replies sent, renewals included.
    pub granted: u64,
    /// The number of clients that were not admitted or whose connection came from an address other than their
    /// NIC's.
    pub refused: u64,
    /// The number of connections that ended before the server could grant or refuse: silent ones, and those
    /// without TLS or with another protocol.
    pub failed: u64,
    /// The number of announcements sent, counted once for each client.
    pub announced: u64,
}

/// A server that gives grants until it is dropped.
pub struct GrantServer {
    address: SocketAddr,
    fingerprint: Fingerprint,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl GrantServer {
    /// Starts a server for the given regions at a TCP address; port 0 selects a free port.
    ///
    /// # Errors
    /// `Listen` if the server cannot listen at the address; `Offers` if a name is empty, too long, has
    /// control characters or occurs twice, or there are more than 256 regions; `Certificate` if TLS cannot
    /// use the certificate; `Io` if the operating system refuses a resource.
    pub fn start(listen: SocketAddr, options: GrantOptions, offers: Vec<Offer>) -> Result<GrantServer> {
        GrantServer::start_with(listen, options, offers, None)
    }

    /// Starts a server as [`start`](GrantServer::start) does, with a handler for messages of clients.
    ///
    /// # Errors
    /// The errors of [`start`](GrantServer::start).
    pub fn start_with(
        listen: SocketAddr,
        options: GrantOptions,
        offers: Vec<Offer>,
        calls: Option<Box<dyn CallHandler>>,
    ) -> Result<GrantServer> {
        check(&offers)?;
        let config =
            tls::server(&options.certificate).map_err(|error| Error::Certificate(error.to_string()))?;
        let listen_error = |error| Error::Listen(listen, error);
        let listener = TcpListener::bind(listen).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
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

    /// Returns the TCP address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the fingerprint of the server's certificate. Clients must know it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the regions that the server grants.
    pub fn offers(&self) -> &[Offer] {
        &self.shared.offers
    }

    /// Announces to all clients that stay connected the key that a region will have after the time `ahead`.
    /// The key changes only when [`change_key`](GrantServer::change_key) is called.
    ///
    /// # Errors
    /// `NoRegion` if the server has no region of that name; `Io` if the server's thread cannot be woken.
    pub fn announce(&self, name: &str, key: RegionKey, ahead: Duration) -> Result<()> {
        let number = self.number(name)?;
        *self.shared.offers[number].next() = Some(Next { key, due: Instant::now() + ahead });
        self.shared.announce.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        self.waker.wake()?;
        Ok(())
    }

    /// Changes the key of a region to the announced key, or to a random key if none was announced.
    ///
    /// # Errors
    /// `NoRegion` if the server has no region of that name; `Create` if the system provides no random
    /// numbers.
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

    /// Returns the event counters of the server.
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
        // If the thread cannot be woken, it stops at its next deadline, for which `drop` does not wait.
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
