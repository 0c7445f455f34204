//! The server's side of connection set-up. Strangers reach it: each has a few seconds and a few hundred bytes, and so many
//! at once; none of them holds up another.

use memory::ForkMark;
use port::address::Unfit;
use port::shm::{Admit, Link};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::message::{Hello, LinkOffer, Message, Stage, read, write};
use super::{Agreement, ConnectError, Deadline, Side, add_endpoint, add_link, add_loopback, meet, release};
use crate::attach::PortKind;
use crate::signal::{Signal, wait_readable};

/// Connections that have not said what they want yet, and requests that wait to be answered, at most each.
pub const PENDING: usize = 64;
/// Time in which a connection must say what it wants.
const PATIENCE: Duration = Duration::from_secs(3);

/// Waits for connection requests on a TCP port until it is dropped.
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    fork: ForkMark,
}

struct Shared {
    socket: TcpListener,
    requests: Signal<Request>,
    stop: Signal<()>,
    stopped: AtomicBool,
    reading: AtomicUsize,
    refused: AtomicUsize,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system gives no descriptor or thread.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        let address = super::resolve(address)?;
        let socket = bind(address).map_err(|error| ConnectError::Tcp(taken(address, error)))?;
        socket.set_nonblocking(true).map_err(ConnectError::Tcp)?;
        let shared = Arc::new(Shared {
            requests: Signal::new(PENDING).map_err(ConnectError::Tcp)?,
            stop: Signal::new(1).map_err(ConnectError::Tcp)?,
            stopped: AtomicBool::new(false),
            reading: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            socket,
        });
        let address = shared.socket.local_addr().map_err(ConnectError::Tcp)?;
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new()
            .name("remora-listen".to_owned())
            .spawn(move || accept_all(&accepting))
            .map_err(ConnectError::Tcp)?;
        tracing::info!(%address, "listening for queue pairs");
        Ok(Listener { address, shared, acceptor: Some(acceptor), fork: ForkMark::get() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request. None: the time passed.
    ///
    /// # Errors
    /// What poll(2) says; `Forked`: who connects is heard by a thread of the parent's.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Request>, ConnectError> {
        if self.fork.is_child() {
            return Err(ConnectError::Forked);
        }
        let deadline = timeout.map(Deadline::after);
        loop {
            if let Some(request) = self.shared.requests.take() {
                return Ok(Some(request));
            }
            let left = match deadline {
                None => None,
                Some(deadline) => match deadline.left() {
                    None => return Ok(None),
                    left => left,
                },
            };
            wait_readable(self.shared.requests.as_fd(), left).map_err(ConnectError::Tcp)?;
        }
    }

    /// Connections turned away: too many at once, or nonsense.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl AsFd for Listener {
    /// Readable while a request waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.requests.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.fork.is_child() {
            // The thread is the parent's, and so is the descriptor that tells it to stop.
            std::mem::forget(self.acceptor.take());
            return;
        }
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.stop.put(());
        if let Some(acceptor) = self.acceptor.take() {
            // Those that still read give up by their own deadline.
            let _ = acceptor.join();
        }
    }
}

/// Binds, when the kernel has found that no other machine has the address.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let unfit = |why: Unfit| io::Error::other(why.to_string());
    // Nobody could connect there, though the kernel lets sockets listen. Listening on every address is fine.
    if !address.ip().is_unspecified() {
        port::address::single(address.ip()).map_err(unfit)?;
        port::address::zoned(address).map_err(unfit)?;
        if port::address::is_broadcast(address.ip()) {
            return Err(unfit(Unfit::Broadcast(address.ip())));
        }
    }
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let interface = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
            let settled = port::address::settle(address.ip(), interface).map_err(unfit)?;
            if settled { TcpListener::bind(address) } else { Err(error) }
        }
        done => done,
    }
}

fn taken(address: SocketAddr, error: io::Error) -> io::Error {
    let words = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "{address} is taken: choose another port (0 takes a free one), or see who has it with `ss -ltnp`"
            )
        }
        io::ErrorKind::PermissionDenied => format!("may not listen on {address}: choose a port from 1024 up"),
        io::ErrorKind::AddrNotAvailable => {
            format!("{address} is no address of this machine (`ip address` lists them)")
        }
        _ => return error,
    };
    io::Error::new(error.kind(), words)
}

fn accept_all(shared: &Arc<Shared>) {
    while !shared.stopped.load(Ordering::Acquire) {
        let mut waited =
            [PollFd::new(&shared.socket, PollFlags::IN), PollFd::new(&shared.stop, PollFlags::IN)];
        if rustix::event::poll(&mut waited, None).is_err() {
            continue;
        }
        match shared.socket.accept() {
            Ok((stream, from)) => hear(shared, stream, from),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Out of descriptors, most likely: spinning would not bring them back.
                tracing::warn!(%error, "accepting a connection");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Lets a newcomer say what it wants, in a thread of its own.
fn hear(shared: &Arc<Shared>, stream: TcpStream, from: SocketAddr) {
    let refuse = |why: &str| {
        tracing::debug!(%from, why, "connection refused");
        shared.refused.fetch_add(1, Ordering::Relaxed);
    };
    if shared.reading.fetch_add(1, Ordering::AcqRel) >= PENDING {
        shared.reading.fetch_sub(1, Ordering::AcqRel);
        return refuse("too many at once");
    }
    let reader = Arc::clone(shared);
    let spawned = std::thread::Builder::new().name("remora-hello".to_owned()).spawn(move || {
        match first_words(stream, from) {
            Ok(request) => reader.requests.put(request),
            Err(error) => {
                tracing::debug!(%from, %error, "connection refused");
                reader.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        reader.reading.fetch_sub(1, Ordering::AcqRel);
    });
    if spawned.is_err() {
        shared.reading.fetch_sub(1, Ordering::AcqRel);
        refuse("no thread");
    }
}

fn first_words(mut stream: TcpStream, from: SocketAddr) -> Result<Request, ConnectError> {
    let _ = stream.set_nodelay(true);
    stream.set_nonblocking(false).map_err(ConnectError::Tcp)?;
    let deadline = Deadline::after(PATIENCE);
    match read(&mut stream, deadline, Stage::Request) {
        Ok(Message::Request(hello)) => Ok(Request { stream, from, hello }),
        Ok(_) => Err(ConnectError::BadMessage),
        Err(error) => {
            if let ConnectError::Version(_) = error {
                let _ = write(&mut stream, &Message::Reject(error.to_string()), deadline);
            }
            Err(error)
        }
    }
}

/// Somebody wants to connect a queue pair. Dropping it hangs up.
#[derive(Debug)]
pub struct Request {
    stream: TcpStream,
    from: SocketAddr,
    hello: Hello,
}

impl Request {
    /// A request that another process received: what it was said, and the connection.
    ///
    /// # Errors
    /// The other side has hung up.
    pub fn received(stream: TcpStream, hello: Hello) -> io::Result<Request> {
        let from = stream.peer_addr()?;
        Ok(Request { stream, from, hello })
    }

    /// For another process to answer.
    pub fn into_parts(self) -> (TcpStream, Hello) {
        (self.stream, self.hello)
    }

    /// What the other side says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Where it comes from.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Says no.
    pub fn reject(mut self, words: &str) {
        let _ = write(&mut self.stream, &Message::Reject(words.to_owned()), Deadline::after(PATIENCE));
    }

    /// Answers with the queue pair of `side`. `bring_up` takes it to RTS. Takes no longer than `timeout`.
    ///
    /// # Errors
    /// [`ConnectError`]; the other side is told. As for [`connect`](super::connect), a queue pair that was brought up must
    /// be torn down by the caller.
    pub fn accept(
        mut self,
        side: &Side<'_>,
        timeout: Duration,
        mut bring_up: impl FnMut(&Agreement) -> Result<(), ConnectError>,
    ) -> Result<Agreement, ConnectError> {
        let deadline = Deadline::after(timeout);
        let outcome = self.exchange(side, deadline, &mut bring_up);
        if let Err(error) = &outcome {
            let _ = write(&mut self.stream, &Message::Reject(error.to_string()), deadline);
        }
        outcome
    }

    fn exchange(
        &mut self,
        side: &Side<'_>,
        deadline: Deadline,
        bring_up: &mut dyn FnMut(&Agreement) -> Result<(), ConnectError>,
    ) -> Result<Agreement, ConnectError> {
        let ours = side.engine.facts().kind;
        meet(&side.hello(LinkOffer::None)?, &self.hello)?;
        let (peer, local) = match ours {
            PortKind::Udp | PortKind::Xdp => {
                let local = side.hello(LinkOffer::None)?;
                write(&mut self.stream, &Message::Accept(local.clone()), deadline)?;
                (add_endpoint(side.engine, &self.hello, deadline)?, local)
            }
            PortKind::Shm => self.give_shm(side, deadline)?,
        };
        let agreement = Agreement::new(peer, &local, self.hello.clone());
        let done = bring_up(&agreement).inspect_err(|_| release(side.engine, peer));
        done?;
        match read(&mut self.stream, deadline, Stage::Ready)? {
            Message::Ready => {}
            Message::Reject(words) => return Err(ConnectError::Rejected(words)),
            _ => return Err(ConnectError::BadMessage),
        }
        write(&mut self.stream, &Message::Go, deadline)?;
        Ok(agreement)
    }

    fn give_shm(&mut self, side: &Side<'_>, deadline: Deadline) -> Result<(port::Peer, Hello), ConnectError> {
        let (engine, theirs) = (side.engine, self.hello.engine);
        if theirs == engine.id() {
            let local = side.hello(LinkOffer::Existing)?;
            let peer = add_loopback(engine)?;
            return self.answer(side, peer, local, deadline);
        }
        let known = match self.hello.link {
            LinkOffer::Wanted => None,
            _ => engine.control(|control| control.peers.reuse(theirs)),
        };
        if let Some(peer) = known {
            return self.answer(side, peer, side.hello(LinkOffer::Existing)?, deadline);
        }
        // A listener for this one client tells who connects.
        let listener = port::shm::Listener::new(port::shm::DEFAULT_GEOMETRY, Admit::SameUser)
            .map_err(ConnectError::Link)?;
        let local = side.hello(LinkOffer::New(listener.name().to_owned()))?;
        write(&mut self.stream, &Message::Accept(local.clone()), deadline)?;
        let link = give_link(&listener, deadline)?;
        Ok((add_link(engine, self.hello.engine, link)?, local))
    }

    fn answer(
        &mut self,
        side: &Side<'_>,
        peer: port::Peer,
        local: Hello,
        deadline: Deadline,
    ) -> Result<(port::Peer, Hello), ConnectError> {
        match write(&mut self.stream, &Message::Accept(local.clone()), deadline) {
            Ok(()) => Ok((peer, local)),
            Err(error) => {
                release(side.engine, peer);
                Err(error)
            }
        }
    }
}

/// Waits for the peer to fetch its end of the link.
pub(super) fn give_link(listener: &port::shm::Listener, deadline: Deadline) -> Result<Link, ConnectError> {
    loop {
        if let Some(link) = listener.accept().map_err(ConnectError::Link)? {
            return Ok(link);
        }
        let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Link))?;
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(ConnectError::Tcp(errno.into())),
        }
    }
}
