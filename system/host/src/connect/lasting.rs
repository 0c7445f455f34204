//! The TCP connection of a set-up, which stays open as long as the queue pair that it was made for.
//!
//! Nothing on the wire shows that a queue pair was destroyed, or its process killed. The end of this
//! connection shows it at once to the other side; without it only a request that is not acknowledged does.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::Shutdown;
use std::io;

/// Departures that are reported at a time.
const TOGETHER: usize = 64;

/// The connection. Dropping it closes it; other descriptors of it, in this process or another, keep it open.
#[derive(Debug)]
pub struct SetupConnection {
    stream: OwnedFd,
}

impl SetupConnection {
    /// Has the other side ended it, or lost it?
    pub fn has_ended(&self) -> bool {
        has_hung_up(&self.stream)
    }

    /// Ends it, also if another process has a descriptor of it.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
    }

    /// Another descriptor of it.
    ///
    /// # Errors
    /// The system gives none.
    pub fn try_clone(&self) -> io::Result<SetupConnection> {
        Ok(SetupConnection { stream: self.stream.try_clone()? })
    }
}

impl AsFd for SetupConnection {
    /// Readable when the other side has ended it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl From<OwnedFd> for SetupConnection {
    fn from(stream: OwnedFd) -> SetupConnection {
        SetupConnection { stream }
    }
}

impl From<SetupConnection> for OwnedFd {
    fn from(connection: SetupConnection) -> OwnedFd {
        connection.stream
    }
}

/// Watches many connections for the ends that the other sides make.
#[derive(Debug)]
pub struct Departures {
    epoll: OwnedFd,
}

impl Departures {
    /// A set that watches no connection yet.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn new() -> io::Result<Departures> {
        Ok(Departures { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Watches a connection, until it is [removed](Departures::remove).
    ///
    /// # Errors
    /// The system watches no more.
    pub fn add(&self, connection: &SetupConnection, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, connection, EventData::new_u64(name), EventFlags::RDHUP)?)
    }

    /// Watches it no more. To be called before it is dropped: other processes may keep it open.
    pub fn remove(&self, connection: &SetupConnection) {
        let _ = epoll::delete(&self.epoll, connection);
    }

    /// The names of connections that have ended and were not removed, up to 64 at a time.
    ///
    /// # Errors
    /// The errno of epoll_wait(2); an interruption is no error.
    pub fn ended(&self) -> io::Result<Vec<u64>> {
        let mut events = Vec::with_capacity(TOGETHER);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(events.iter().map(|event| event.data.u64()).collect()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Departures {
    /// Readable while one has ended that was not removed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Has the other side of a TCP connection closed it? Bytes that it sent before do not matter.
pub(super) fn has_hung_up(stream: &impl AsFd) -> bool {
    let mut waited = [PollFd::new(stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut waited, Some(&now)) {
        Ok(_) => waited[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR),
        Err(_) => false,
    }
}
