//! Listening for queue pairs that are to be connected.

use remora_host::connect::{ConnectError, Full, Hello, Request, SetupConnection};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::{DatagramQueuePair, Init, QueuePair, Ready, RemoteQueue, XrcInitiator, XrcTarget};

/// Waits for queue pairs on a TCP port. It belongs to no context: each request is answered with a queue pair
/// of any.
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
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The port is taken or forbidden; the text has the mend.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        Ok(Listener { inner: remora_host::connect::Listener::bind(address)? })
    }

    /// The address and TCP port that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    /// Sleeps until a peer asks to connect, and has not hung up since. None: the time passed.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<ConnectRequest>, ConnectError> {
        Ok(self.inner.accept(timeout)?.map(|inner| ConnectRequest { inner }))
    }

    /// Connections that were refused, or dropped because they were silent, sent nonsense, were too many at
    /// once, or hung up early.
    pub fn refused(&self) -> usize {
        self.inner.refused()
    }
}

impl AsFd for Listener {
    /// Readable while a request waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// A peer's request to connect. Dropping it hangs up.
#[derive(Debug)]
pub struct ConnectRequest {
    inner: Request,
}

impl ConnectRequest {
    /// The private data that the other side's program sent.
    pub fn private_data(&self) -> &[u8] {
        &self.inner.hello().private_data
    }

    /// The whole first message of the other side.
    pub fn hello(&self) -> &Hello {
        self.inner.hello()
    }

    /// The TCP address of the peer.
    pub fn from(&self) -> SocketAddr {
        self.inner.from()
    }

    /// Has the other side hung up meanwhile?
    pub fn has_hung_up(&self) -> bool {
        self.inner.has_hung_up()
    }

    /// Connects it to `pair`. When this returns both can send. It waits for the other side, up to
    /// [`connect_timeout`](crate::QpOptions::connect_timeout): a thread that serves others uses
    /// [`Handshakes`](crate::Handshakes).
    ///
    /// # Errors
    /// [`ConnectError`]; the other side learns it, and `pair` is gone.
    pub fn accept(self, pair: QueuePair<Init>) -> Result<QueuePair<Ready>, ConnectError> {
        self.answer(pair)?.go()
    }

    /// As [`accept`](ConnectRequest::accept), without the last message: the other side sends nothing before
    /// [`go`](Answered::go).
    ///
    /// # Errors
    /// As [`accept`](ConnectRequest::accept).
    pub fn answer(self, pair: QueuePair<Init>) -> Result<Answered, ConnectError> {
        Answered::of(pair, self.inner)
    }

    /// A descriptor of its TCP connection, for ending it from elsewhere.
    pub(crate) fn connection(&self) -> std::io::Result<SetupConnection> {
        self.inner.connection()
    }

    /// Connects an XRC initiator to `target`.
    ///
    /// # Errors
    /// [`ConnectError`]; the other side learns it, and `target` is gone.
    pub fn accept_xrc(self, target: XrcTarget<Init>) -> Result<XrcTarget<Ready>, ConnectError> {
        target.answer(self.inner)
    }

    /// Connects an XRC target to `initiator`.
    ///
    /// # Errors
    /// [`ConnectError`]; the other side learns it, and `initiator` is gone.
    pub fn accept_xrc_initiator(
        self,
        initiator: XrcInitiator<Init>,
    ) -> Result<XrcInitiator<Ready>, ConnectError> {
        initiator.answer(self.inner)
    }

    /// Answers a peer that resolves: it will send to `pair`. Returns the way to send back.
    ///
    /// # Errors
    /// [`ConnectError`]; the other side learns it.
    pub fn accept_datagrams(self, pair: &DatagramQueuePair) -> Result<RemoteQueue, ConnectError> {
        pair.answer(self.inner)
    }

    /// Refuses the request, with a text for a person.
    pub fn reject(self, words: &str) {
        self.inner.reject(words);
    }

    /// Refuses the request because the server is full at the moment: the other side gets
    /// [`ConnectError::Full`].
    pub fn reject_full(self, full: Full) {
        self.inner.reject_full(full);
    }
}

/// Two queue pairs that are connected; the other one waits for [`go`](Answered::go). Dropping this ends both.
#[derive(Debug)]
pub struct Answered {
    pair: QueuePair<Ready>,
    inner: remora_host::connect::Answered,
}

impl Answered {
    /// Answers a request with a queue pair; see [`ConnectRequest::answer`].
    pub(crate) fn of(pair: QueuePair<Init>, request: Request) -> Result<Answered, ConnectError> {
        let (pair, inner) = pair.answer(request)?;
        Ok(Answered { pair, inner })
    }

    /// Lets the other side send, without waiting for it.
    ///
    /// # Errors
    /// It has hung up; the queue pair is gone.
    pub fn go(self) -> Result<QueuePair<Ready>, ConnectError> {
        let Answered { mut pair, inner } = self;
        pair.keep(inner.go()?);
        Ok(pair)
    }

    /// Leaves [`go`](Answered::go) to another process, which has the connection too.
    pub(crate) fn left_to_another(self) -> QueuePair<Ready> {
        let Answered { mut pair, inner } = self;
        let lasting = pair.agreement().is_some_and(|agreement| agreement.lasting);
        pair.keep(lasting.then(|| inner.into_connection()));
        pair
    }
}
