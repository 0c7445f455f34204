//! Listening for peers that connect.

use remora_host::connect::{ConnectError, Full, Hello, Request, SetupConnection};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::{DatagramQueuePair, Init, QueuePair, Ready, RemoteQueue, XrcInitiator, XrcTarget};

/// A listener for connection requests on a TCP port. It belongs to no context: each request may be answered
/// with a queue pair of any context.
///
/// ```
/// use remora_verbs::{Device, Listener, QpOptions};
///
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.address();
/// let client = std::thread::spawn(move || {
///     let context = Device::shm().open().unwrap();
///     let domain = context.alloc_pd().unwrap();
///     let cq = context.create_cq(16).unwrap();
///     let options = QpOptions { private_data: b"hello".to_vec(), ..QpOptions::default() };
///     let pair = domain.create_qp(&cq, &cq, &options).unwrap().connect(address).unwrap();
///     pair.peer_private_data().to_vec()
/// });
///
/// let context = Device::shm().open()?;
/// let domain = context.alloc_pd()?;
/// let cq = context.create_cq(16)?;
/// let request = listener.accept(None)?.expect("without a timeout a request comes");
/// assert_eq!(request.private_data(), b"hello");
/// let options = QpOptions { private_data: b"welcome".to_vec(), ..QpOptions::default() };
/// let pair = request.accept(domain.create_qp(&cq, &cq, &options)?)?;
/// assert_eq!(client.join().unwrap(), b"welcome");
/// # drop(pair);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    inner: remora_host::connect::Listener,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free port.
    ///
    /// # Errors
    /// The TCP port is taken or forbidden. The error's text names the remedy.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        Ok(Listener { inner: remora_host::connect::Listener::bind(address)? })
    }

    /// The address and TCP port of the listener.
    pub fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    /// Sleeps until a peer requests a connection. A peer that has hung up meanwhile is skipped. Returns
    /// `None` after the timeout.
    ///
    /// # Errors
    /// The operating system refuses to wait.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<ConnectRequest>, ConnectError> {
        Ok(self.inner.accept(timeout)?.map(|inner| ConnectRequest { inner }))
    }

    /// The number of connections that were refused, or dropped because they were silent, sent nonsense, were
    /// too many at once, or hung up early.
    pub fn refused(&self) -> usize {
        self.inner.refused()
    }
}

impl AsFd for Listener {
    /// Returns a descriptor that is readable while a request waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// A peer's connection request. Dropping it hangs up.
#[derive(Debug)]
pub struct ConnectRequest {
    inner: Request,
}

impl ConnectRequest {
    /// The private data of the peer's program.
    pub fn private_data(&self) -> &[u8] {
        &self.inner.hello().private_data
    }

    /// The first message of the peer.
    pub fn hello(&self) -> &Hello {
        self.inner.hello()
    }

    /// The TCP address of the peer.
    pub fn from(&self) -> SocketAddr {
        self.inner.from()
    }

    /// Returns whether the peer has hung up.
    pub fn has_hung_up(&self) -> bool {
        self.inner.has_hung_up()
    }

    /// Connects the peer to `pair`. Both sides can send when this returns. It waits for the peer up to
    /// [`connect_timeout`](crate::QpOptions::connect_timeout); a thread that serves other peers uses
    /// [`Handshakes`](crate::Handshakes) instead.
    ///
    /// # Errors
    /// [`ConnectError`]. The peer is notified, and `pair` is dropped.
    pub fn accept(self, pair: QueuePair<Init>) -> Result<QueuePair<Ready>, ConnectError> {
        self.answer(pair)?.go()
    }

    /// Like [`accept`](ConnectRequest::accept), without the last message: the peer sends nothing before
    /// [`go`](Answered::go).
    ///
    /// # Errors
    /// The errors of [`accept`](ConnectRequest::accept).
    pub fn answer(self, pair: QueuePair<Init>) -> Result<Answered, ConnectError> {
        Answered::of(pair, self.inner)
    }

    /// Returns a descriptor of the TCP connection, by which another thread can end it.
    pub(crate) fn connection(&self) -> std::io::Result<SetupConnection> {
        self.inner.connection()
    }

    /// Connects a peer's XRC initiator to `target`.
    ///
    /// # Errors
    /// [`ConnectError`]. The peer is notified, and `target` is dropped.
    pub fn accept_xrc(self, target: XrcTarget<Init>) -> Result<XrcTarget<Ready>, ConnectError> {
        target.answer(self.inner)
    }

    /// Connects a peer's XRC target to `initiator`.
    ///
    /// # Errors
    /// [`ConnectError`]. The peer is notified, and `initiator` is dropped.
    pub fn accept_xrc_initiator(
        self,
        initiator: XrcInitiator<Init>,
    ) -> Result<XrcInitiator<Ready>, ConnectError> {
        initiator.answer(self.inner)
    }

    /// Answers a peer that resolves a datagram queue pair, so that the peer can send to `pair`. Returns the
    /// peer's queue pair as a destination.
    ///
    /// # Errors
    /// [`ConnectError`]. The peer is notified.
    pub fn accept_datagrams(self, pair: &DatagramQueuePair) -> Result<RemoteQueue, ConnectError> {
        pair.answer(self.inner)
    }

    /// Refuses the request, with a text for the peer's user.
    pub fn reject(self, words: &str) {
        self.inner.reject(words);
    }

    /// Refuses the request because the server is full at the moment. The peer gets [`ConnectError::Full`].
    pub fn reject_full(self, full: Full) {
        self.inner.reject_full(full);
    }
}

/// Two connected queue pairs, of which the peer's waits for [`go`](Answered::go). Dropping this ends both.
#[derive(Debug)]
pub struct Answered {
    pair: QueuePair<Ready>,
    inner: remora_host::connect::Answered,
}

impl Answered {
    /// Answers a connection request with a queue pair; see [`ConnectRequest::answer`].
    pub(crate) fn of(pair: QueuePair<Init>, request: Request) -> Result<Answered, ConnectError> {
        let (pair, inner) = pair.answer(request)?;
        Ok(Answered { pair, inner })
    }

    /// Lets the peer send, without waiting for an answer.
    ///
    /// # Errors
    /// [`ConnectError`] if the peer has hung up; the queue pair is dropped.
    pub fn go(self) -> Result<QueuePair<Ready>, ConnectError> {
        let Answered { mut pair, inner } = self;
        pair.keep(inner.go()?)?;
        Ok(pair)
    }
}
