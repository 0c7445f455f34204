//! The sockets of one address that programs share: one for each QPN range, in a group of the kernel's
//! (`SO_REUSEPORT`).
//!
//! The kernel numbers the sockets of a group as they are bound, and when one is closed the last takes its
//! number. So the owner of a group keeps all of its sockets open and hands out duplicates. A duplicate is the
//! socket itself: its borrower may change its options, and may keep it. Therefore
//!
//! - only processes of the owner's user get one;
//! - its filter is locked (SO_LOCK_FILTER), so that a borrower neither filters nor steers;
//! - one that is given back is closed and never lent again. A new socket, bound just before and thus the last
//!   of the group, takes its number.
//!
//! The last socket is a *spare*, for which the filter has no datagrams: the kernel takes a socket
//! that its borrower connects out of the group, and then the spare gets its number. Where a process
//! keeps a socket that was given back, the new one becomes a spare, too.

use super::options::{OpenError, Options};
use super::range::{RANGES, Steering};
use super::socket::{self, Socket};
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
    /// In the order of the kernel's numbers, as are the spares behind them.
    sockets: Vec<Socket>,
    /// One more than `kept` has: each of those, when it is closed, gives its number to the last spare.
    spares: Vec<Socket>,
    /// Sockets that were given back and that a process still has open.
    kept: Vec<Kept>,
    /// Ranges whose sockets cannot be told apart any more: several were closed at once.
    unusable: Vec<u8>,
    steered: SteeredBy,
    options: Options,
}

/// A socket that a borrower has kept.
#[derive(Debug)]
struct Kept {
    range: u8,
    inode: u64,
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
        let of = |sockets, steered| ReuseportGroup {
            sockets,
            spares: Vec::new(),
            kept: Vec::new(),
            unusable: Vec::new(),
            steered,
            options: *options,
        };
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
        if self.steered == SteeredBy::Reader || !self.spares.is_empty() {
            return Ok(());
        }
        while self.sockets.len() < RANGES {
            match self.open_locked() {
                Ok(socket) => self.sockets.push(socket),
                Err(error) => {
                    self.sockets.truncate(1);
                    return Err(error);
                }
            }
        }
        let spare = self.open_locked().inspect_err(|_| self.sockets.truncate(1))?;
        self.spares.push(spare);
        Ok(())
    }

    /// A further socket of the group, whose filter and whose group's filter cannot be replaced by it.
    fn open_locked(&self) -> Result<Socket, OpenError> {
        let socket = Socket::open_in_group(self.local(), &self.options)?;
        socket::set(&socket.fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)
            .map_err(|errno| OpenError::Os("SO_LOCK_FILTER", errno))?;
        Ok(socket)
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

    /// Has the kernel join trains of a range whose socket is not lent, or cut them again.
    pub fn join(&mut self, range: u8, on: bool) {
        if let Some(socket) = self.sockets.get_mut(usize::from(range)).filter(|socket| socket.joins() != on) {
            let _ = socket.join(on);
        }
    }

    /// Steers by the filter of this module again, which a borrower may have detached
    /// (SO_DETACH_REUSEPORT_BPF obeys no lock).
    pub fn steer(&self) {
        if self.steered == SteeredBy::Kernel
            && let Err(errno) = Steering::new().attach(&self.sockets[0])
        {
            tracing::warn!("the kernel steers no datagrams of {} any more: {errno}", self.local());
        }
    }

    /// Replaces the socket of a range that was given back by a new one. What waits in the old one is lost.
    /// `false`: a process keeps the old one open, so the range may not be lent until
    /// [`is_fit`](ReuseportGroup::is_fit).
    pub fn renew(&mut self, range: u8) -> bool {
        if self.steered == SteeredBy::Reader {
            return true;
        }
        self.settle();
        self.steer();
        let place = usize::from(range);
        if place >= self.sockets.len() || !self.is_fit(range) {
            return false;
        }
        // Opened first: the kernel gives the number of the closed socket to the last of the group.
        let (Ok(fresh), Some(inode)) = (self.open_locked(), inode(&self.sockets[place])) else {
            self.unusable.push(range);
            return false;
        };
        let old = std::mem::replace(&mut self.sockets[place], fresh);
        if rustix::net::getpeername(&old).is_ok_and(|peer| peer.is_some())
            && let Some(spare) = self.spares.pop()
        {
            // The kernel took it out when it was connected, and the spare has its number since.
            let fresh = std::mem::replace(&mut self.sockets[place], spare);
            self.spares.push(fresh);
            return true;
        }
        drop(old);
        if is_bound(self.local(), inode) {
            self.keep(range, inode);
            return false;
        }
        // One that was closed at this very moment may have got the number, and this range that of a spare.
        let local = self.local();
        if self.kept.iter().any(|kept| !is_bound(local, kept.inode)) {
            self.unusable.extend(self.kept.iter().map(|kept| kept.range).chain([range]));
        }
        !self.unusable.contains(&range)
    }

    /// Whether a range has a socket that only the owner of the group has open. Sockets that borrowers have
    /// closed meanwhile are replaced.
    pub fn is_fit(&mut self, range: u8) -> bool {
        if !self.kept.is_empty() {
            self.settle();
        }
        self.kept.iter().all(|kept| kept.range != range) && !self.unusable.contains(&range)
    }

    /// Notes that the old socket of a range stays in the group: the new one is a spare.
    fn keep(&mut self, range: u8, inode: u64) {
        self.kept.push(Kept { range, inode });
        // Nothing comes there; it stands for the socket that only the borrower has.
        match Socket::sending(self.local(), &self.options) {
            Ok(placeholder) => {
                let spare = std::mem::replace(&mut self.sockets[usize::from(range)], placeholder);
                self.spares.push(spare);
            }
            // Without a descriptor for it, the range is never lent again.
            Err(_) => self.unusable.push(range),
        }
    }

    /// Finds out which kept sockets were closed. Each gave its number to the last spare of that moment.
    fn settle(&mut self) {
        let local = self.local();
        let (closed, kept) = self.kept.drain(..).partition(|kept: &Kept| !is_bound(local, kept.inode));
        self.kept = kept;
        let closed: Vec<Kept> = closed;
        for one in &closed {
            let Some(spare) = self.spares.pop() else { continue };
            self.sockets[usize::from(one.range)] = spare;
        }
        if closed.len() > 1 {
            self.unusable.extend(closed.iter().map(|one| one.range));
        }
    }
}

/// The number by which the kernel's tables name a socket.
fn inode(socket: &Socket) -> Option<u64> {
    rustix::fs::fstat(socket.as_fd()).ok().map(|status| status.st_ino)
}

/// Whether a socket with this inode is bound in this network namespace. Without `/proc` it is not.
fn is_bound(local: SocketAddr, inode: u64) -> bool {
    let table = if local.is_ipv6() { "udp6" } else { "udp" };
    let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    let mut inodes = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)?.parse().ok());
    inodes.any(|found: u64| found == inode)
}
