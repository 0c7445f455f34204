//! The TCP connection of a set-up, which stays open as long as the queue pair that it was made for.
//!
//! Nothing on the wire shows that a queue pair was destroyed, or its process killed. The end of this
//! connection shows it to the other side at once; otherwise only an unacknowledged request would.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::Shutdown;
use std::io;

/// Maximum number of departures that are reported at a time.
const TOGETHER: usize = 64;

/// The TCP connection of a set-up. Dropping the value closes its descriptor; other descriptors, in this
/// process or another, keep the connection open.
#[derive(Debug)]
pub struct SetupConnection {
    stream: OwnedFd,
}

impl SetupConnection {
    /// Returns whether the other side has closed or lost the connection.
    pub fn has_ended(&self) -> bool {
        has_hung_up(&self.stream)
    }

    /// Ends the connection, even if another process has a descriptor of it.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
    }

    /// Duplicates the descriptor of the connection.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn try_clone(&self) -> io::Result<SetupConnection> {
        Ok(SetupConnection { stream: self.stream.try_clone()? })
    }
}

impl AsFd for SetupConnection {
    /// Returns the descriptor, which is readable when the other side has closed the connection.
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

/// Watches many connections for being closed by their other sides.
#[derive(Debug)]
pub struct Departures {
    epoll: OwnedFd,
}

impl Departures {
    /// Creates a set that watches no connection yet.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn new() -> io::Result<Departures> {
        Ok(Departures { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Watches a connection until it is [removed](Departures::remove). [`ended`](Departures::ended) reports
    /// it as `name`.
    ///
    /// # Errors
    /// The error of the system if it cannot watch more descriptors.
    pub fn add(&self, connection: &SetupConnection, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, connection, EventData::new_u64(name), EventFlags::RDHUP)?)
    }

    /// Stops watching a connection. Must be called before the connection is dropped, because other
    /// processes may keep it open.
    pub fn remove(&self, connection: &SetupConnection) {
        let _ = epoll::delete(&self.epoll, connection);
    }

    /// Returns the names of connections that have ended and were not removed, up to 64 at a time.
    ///
    /// # Errors
    /// The errno of epoll_wait(2), except for an interruption.
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
    /// Returns the descriptor, which is readable while a watched connection has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Returns whether the other side of a TCP connection has closed it. Bytes that were sent before do not
/// matter.
pub(super) fn has_hung_up(stream: &impl AsFd) -> bool {
    let mut waited = [PollFd::new(stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut waited, Some(&now)) {
        Ok(_) => waited[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR),
        Err(_) => false,
    }
}
