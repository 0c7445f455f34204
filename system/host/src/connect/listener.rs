//! The server's side of connection set-up. Strangers can reach it, so the resources and the number of
//! connections of each are bounded, and none delays another. `pending` reads their first messages.

use mio::{Poll, Waker};
use remora_memory::ForkMark;
use remora_port::address::Unfit;
use rustix::fd::{AsFd, BorrowedFd};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::ConnectError;
use super::client::resolve;
use super::deadline::Deadline;
use super::pending::{Pending, WAKER};
use super::request::Request;
use super::shared::Shared;
use crate::signal::wait_readable;

/// Number of connections that the kernel queues until they are accepted, if it allows as many. The kernel
/// drops the first packet of further connections, and each retries after a second.
const BACKLOG: i32 = 4096;

/// Waits for connection requests on a TCP port until it is dropped.
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    waker: Waker,
    acceptor: Option<JoinHandle<()>>,
    fork: ForkMark,
}

impl Listener {
    /// Listens at `address`; with port 0 the system chooses a free one.
    ///
    /// # Errors
    /// [`ConnectError::Tcp`] if the address cannot be listened on, or the system cannot create a descriptor
    /// or thread.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, ConnectError> {
        let address = resolve(address)?;
        let socket = bind(address).map_err(|error| ConnectError::Tcp(taken(address, error)))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|error| ConnectError::Tcp(error.into()))?;
        socket.set_nonblocking(true).map_err(ConnectError::Tcp)?;
        let shared = Arc::new(Shared::new(socket).map_err(ConnectError::Tcp)?);
        let address = shared.socket.local_addr().map_err(ConnectError::Tcp)?;
        let poll = Poll::new().map_err(ConnectError::Tcp)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(ConnectError::Tcp)?;
        let pending = Pending::new(poll, Arc::clone(&shared)).map_err(ConnectError::Tcp)?;
        let acceptor = remora_port::spawn_settled("remora-listen".to_owned(), move || pending.run())
            .map_err(ConnectError::Tcp)?;
        tracing::info!(%address, "listening for queue pairs");
        Ok(Listener { address, shared, waker, acceptor: Some(acceptor), fork: ForkMark::get() })
    }

    /// Returns the address and TCP port of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next request of a peer that has not hung up meanwhile; `None` if the time has passed.
    ///
    /// # Errors
    /// The errno of poll(2). `Forked` in a forked child, because a thread of the parent accepts the
    /// connections.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Request>, ConnectError> {
        if self.fork.is_child() {
            return Err(ConnectError::Forked);
        }
        let deadline = timeout.map(Deadline::after);
        loop {
            while let Some(request) = self.shared.requests.take() {
                if !request.has_hung_up() {
                    return Ok(Some(request));
                }
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
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

    /// Returns the number of connections that were refused, or dropped because they were silent or too many
    /// at once, sent an invalid message, or hung up early.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl AsFd for Listener {
    /// Returns the descriptor, which is readable while a request waits.
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
            // The thread belongs to the parent, and so does the descriptor that stops it.
            std::mem::forget(self.acceptor.take());
            return;
        }
        self.shared.stopped.store(true, Ordering::Release);
        let woken = self.waker.wake();
        if let Some(acceptor) = self.acceptor.take()
            && woken.is_ok()
        {
            let _ = acceptor.join();
        }
    }
}

/// Binds the socket. Waits while the kernel is still checking that no other machine has the address.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let unfit = |why: Unfit| io::Error::other(why.to_string());
    // Clients could not connect to such an address, although the kernel allows listening there. Listening
    // on every address is allowed.
    if !address.ip().is_unspecified() {
        remora_port::address::single(address.ip()).map_err(unfit)?;
        remora_port::address::zoned(address).map_err(unfit)?;
        if remora_port::address::is_broadcast(address.ip()) {
            return Err(unfit(Unfit::Broadcast(address.ip())));
        }
    }
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let interface = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
            let settled = remora_port::address::settle(address.ip(), interface).map_err(unfit)?;
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
