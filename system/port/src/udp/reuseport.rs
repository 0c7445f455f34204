//! The sockets of one address that programs share: one for each QPN range, in a group of the kernel's
//! (`SO_REUSEPORT`).
//!
//! The kernel numbers the sockets of a group as they are bound, and when one is closed the last takes its
//! number. So whoever makes a group keeps all of its sockets open and hands out duplicates.

use super::options::{OpenError, Options};
use super::range::{RANGES, Steering};
use super::socket::Socket;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Who brings a datagram to the QPN range that it is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SteeredBy {
    /// The kernel, by a filter: one socket for each range.
    Kernel,
    /// Whoever reads the only socket.
    Reader,
}

/// All sockets of one address.
#[derive(Debug)]
pub struct ReuseportGroup {
    sockets: Vec<Socket>,
    steered: SteeredBy,
    options: Options,
}

impl ReuseportGroup {
    /// Binds the first socket of `address`, that of range 0. Until the group is [complete], it gets the
    /// frames of all ranges. [`SteeredBy::Reader`], or a kernel that refuses the filter: it stays the only
    /// one.
    ///
    /// [complete]: ReuseportGroup::complete
    ///
    /// # Errors
    /// [`OpenError`]. `Taken` also if a process has a socket of an earlier group of this address: two groups
    /// would be one, with other numbers.
    pub fn begin(
        address: SocketAddr,
        steered: SteeredBy,
        options: &Options,
    ) -> Result<ReuseportGroup, OpenError> {
        // Bound alone, it shows that nobody has the address; a group would let itself be joined.
        let only = Socket::open(address, options)?;
        let of = |sockets, steered| ReuseportGroup { sockets, steered, options: *options };
        if steered == SteeredBy::Reader {
            return Ok(of(vec![only], steered));
        }
        let local = only.local();
        drop(only);
        let first = Socket::open_in_group(local, options)?;
        if let Err(errno) = Steering::new().attach(&first) {
            tracing::warn!(
                "{local} is shared by a relay: the kernel steers no datagrams (SO_ATTACH_REUSEPORT_CBPF: {errno})"
            );
            drop(first);
            return ReuseportGroup::begin(local, SteeredBy::Reader, options);
        }
        Ok(of(vec![first], steered))
    }

    /// Binds the sockets of all ranges, unless they are: [`RANGES`], or a single one without a steering
    /// kernel.
    ///
    /// # Errors
    /// [`OpenError`]: the group has its first socket as before.
    pub fn complete(&mut self) -> Result<(), OpenError> {
        while self.steered == SteeredBy::Kernel && self.sockets.len() < RANGES {
            match Socket::open_in_group(self.local(), &self.options) {
                Ok(socket) => self.sockets.push(socket),
                Err(error) => {
                    self.sockets.truncate(1);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Binds all sockets of `address` to its one UDP port.
    ///
    /// # Errors
    /// As [`begin`](ReuseportGroup::begin).
    pub fn bind(
        address: SocketAddr,
        steered: SteeredBy,
        options: &Options,
    ) -> Result<ReuseportGroup, OpenError> {
        let mut group = ReuseportGroup::begin(address, steered, options)?;
        group.complete()?;
        Ok(group)
    }

    /// Who steers.
    pub fn steered(&self) -> SteeredBy {
        self.steered
    }

    /// The address and UDP port of all of them.
    pub fn local(&self) -> SocketAddr {
        self.sockets[0].local()
    }

    /// The sockets in the order of the ranges. A single one is that of all ranges.
    pub fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// Another descriptor of a range's socket, to be lent; `None`: it has none of its own.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn duplicate(&self, range: u8) -> std::io::Result<Option<OwnedFd>> {
        let socket = self.sockets.get(usize::from(range)).filter(|_| self.steered == SteeredBy::Kernel);
        socket.map(|socket| socket.as_fd().try_clone_to_owned()).transpose()
    }

    /// Makes a range's socket as it was before it was lent, but for what waits in it: a borrower may have
    /// asked for joined trains.
    pub fn reset(&mut self, range: u8) {
        if let Some(socket) = self.sockets.get_mut(usize::from(range)) {
            let _ = socket.join(false);
        }
    }
}
