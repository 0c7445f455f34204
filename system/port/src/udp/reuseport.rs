//! The sockets of an address that programs share: one for each QPN range, in one kernel group
//! (`SO_REUSEPORT`).
//!
//! The kernel numbers the sockets of a group in the order of their binding, and when one is closed the last
//! socket takes its number. Therefore the owner of a group keeps all of its sockets open and lends
//! duplicates of the descriptors. A duplicate refers to the same socket: its borrower may change the
//! socket's options, and may keep it open. Therefore
//!
//! - only processes of the owner's user get a duplicate;
//! - the filter of the socket is locked (SO_LOCK_FILTER), so that a borrower can neither filter nor steer;
//! - a socket that was given back is closed and never lent a second time. A new socket, bound just before
//!   and thus the last of the group, takes its number.
//!
//! The last socket of the group is a *spare*, to which the filter steers no datagrams. It is needed because
//! the kernel removes a socket from the group when its borrower connects it, and then the spare gets its
//! number. If a process keeps a socket open that was given back, the new socket becomes a further spare.

use super::options::{OpenError, Options};
use super::range::{RANGES, Steering};
use super::socket::{self, Socket};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// The agent that brings a datagram to the QPN range that it is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SteeredBy {
    /// The kernel, by a filter: there is one socket for each range.
    Kernel,
    /// The reader of the only socket.
    Reader,
}

/// All sockets of an address.
#[derive(Debug)]
pub struct ReuseportGroup {
    /// The sockets, in the order of the kernel's numbers, which the spares continue.
    sockets: Vec<Socket>,
    /// The spares: one more than `kept` has elements. When a kept socket is closed, the last spare takes
    /// its number.
    spares: Vec<Socket>,
    /// Sockets that were given back while a process still has them open.
    kept: Vec<Kept>,
    /// Ranges that cannot be lent any more, because several kept sockets were closed at once and it is
    /// unknown which socket has which number.
    unusable: Vec<u8>,
    steered: SteeredBy,
    options: Options,
}

/// A socket that a borrower keeps open.
#[derive(Debug)]
struct Kept {
    range: u8,
    inode: u64,
}

impl ReuseportGroup {
    /// Binds the first socket of `address`, that of range 0. Until the group is [complete], this socket
    /// receives the frames of all ranges. With [`SteeredBy::Reader`], or if the kernel refuses the filter,
    /// it stays the only socket.
    ///
    /// [complete]: ReuseportGroup::complete
    ///
    /// # Errors
    /// [`OpenError`]. `Taken` also if a process still has a socket of an earlier group of this address:
    /// both groups would merge, with other numbers.
    pub fn begin(
        address: SocketAddr,
        steered: SteeredBy,
        options: &Options,
    ) -> Result<ReuseportGroup, OpenError> {
        // Binding a single socket shows that the address is free, whereas a group could be joined by
        // anyone.
        let only = Socket::open(address, options)?;
        let group = |sockets, steered| ReuseportGroup {
            sockets,
            spares: Vec::new(),
            kept: Vec::new(),
            unusable: Vec::new(),
            steered,
            options: *options,
        };
        if steered == SteeredBy::Reader {
            return Ok(group(vec![only], steered));
        }
        let local = only.local();
        drop(only);
        let first = Socket::open_in_group(local, options)?;
        // Without them answers have traffic class 0.
        let _ = first.show_ip_fields();
        if let Err(errno) = Steering::new().attach(&first) {
            tracing::warn!(
                "{local} is shared by a relay: the kernel steers no datagrams (SO_ATTACH_REUSEPORT_CBPF: {errno})"
            );
            drop(first);
            return ReuseportGroup::begin(local, SteeredBy::Reader, options);
        }
        Ok(group(vec![first], steered))
    }

    /// Binds the sockets of all ranges if that was not done before: [`RANGES`] sockets, or a single one if
    /// the kernel does not steer.
    ///
    /// # Errors
    /// [`OpenError`]; the group then has only its first socket, as before.
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

    /// Opens one more socket of the group, by which neither its own filter nor that of the group can be
    /// replaced.
    fn open_locked(&self) -> Result<Socket, OpenError> {
        let socket = Socket::open_in_group(self.local(), &self.options)?;
        socket::set(&socket.fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)
            .map_err(|errno| OpenError::Os("SO_LOCK_FILTER", errno))?;
        Ok(socket)
    }

    /// Binds all sockets of `address` to its one UDP port.
    ///
    /// # Errors
    /// The errors of [`begin`](ReuseportGroup::begin).
    pub fn bind(
        address: SocketAddr,
        steered: SteeredBy,
        options: &Options,
    ) -> Result<ReuseportGroup, OpenError> {
        let mut group = ReuseportGroup::begin(address, steered, options)?;
        group.complete()?;
        Ok(group)
    }

    /// Returns the agent that steers.
    pub fn steered(&self) -> SteeredBy {
        self.steered
    }

    /// Returns the address and UDP port of all sockets.
    pub fn local(&self) -> SocketAddr {
        self.sockets[0].local()
    }

    /// Returns the sockets in the order of the ranges. A single socket serves all ranges.
    pub fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// Returns a duplicate descriptor of a range's socket, to be lent; `None` if the range has no socket of
    /// its own.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn duplicate(&self, range: u8) -> std::io::Result<Option<OwnedFd>> {
        let socket = self.sockets.get(usize::from(range)).filter(|_| self.steered == SteeredBy::Kernel);
        socket.map(|socket| socket.as_fd().try_clone_to_owned()).transpose()
    }

    /// Makes the kernel join trains, or cut them, on the socket of a range that is not lent.
    pub fn join(&mut self, range: u8, on: bool) {
        if let Some(socket) = self.sockets.get_mut(usize::from(range)).filter(|socket| socket.joins() != on) {
            let _ = socket.join(on);
        }
    }

    /// Attaches the steering filter once more, because a borrower may have detached it
    /// (SO_DETACH_REUSEPORT_BPF ignores the lock).
    pub fn steer(&self) {
        if self.steered == SteeredBy::Kernel
            && let Err(errno) = Steering::new().attach(&self.sockets[0])
        {
            tracing::warn!("the kernel steers no datagrams of {} any more: {errno}", self.local());
        }
    }

    /// Replaces the socket of a range that was given back by a new one. Datagrams waiting in the old socket
    /// are lost. Returns false if a process keeps the old socket open: the range must not be lent until
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
        // The new socket is opened first, because the kernel gives the number of the closed socket to the
        // last of the group.
        let (Ok(fresh), Some(inode)) = (self.open_locked(), inode(&self.sockets[place])) else {
            self.unusable.push(range);
            return false;
        };
        let old = std::mem::replace(&mut self.sockets[place], fresh);
        if rustix::net::getpeername(&old).is_ok_and(|peer| peer.is_some())
            && let Some(spare) = self.spares.pop()
        {
            // The kernel removed the socket when it was connected, and the spare has had its number since.
            let fresh = std::mem::replace(&mut self.sockets[place], spare);
            self.spares.push(fresh);
            return true;
        }
        drop(old);
        if is_bound(self.local(), inode) {
            self.keep(range, inode);
            return false;
        }
        // A kept socket that was closed at this very moment may have given its number to the new socket, so
        // that this range has that of a spare.
        let local = self.local();
        if self.kept.iter().any(|kept| !is_bound(local, kept.inode)) {
            self.unusable.extend(self.kept.iter().map(|kept| kept.range).chain([range]));
        }
        !self.unusable.contains(&range)
    }

    /// Returns whether the socket of a range is open only in the owner of the group. Replaces sockets that
    /// borrowers have closed meanwhile.
    pub fn is_fit(&mut self, range: u8) -> bool {
        if !self.kept.is_empty() {
            self.settle();
        }
        self.kept.iter().all(|kept| kept.range != range) && !self.unusable.contains(&range)
    }

    /// Records that the old socket of a range stays in the group; the new one becomes a spare.
    fn keep(&mut self, range: u8, inode: u64) {
        self.kept.push(Kept { range, inode });
        // The placeholder receives nothing; it stands for the socket that only the borrower has.
        match Socket::sending(self.local(), &self.options) {
            Ok(placeholder) => {
                let spare = std::mem::replace(&mut self.sockets[usize::from(range)], placeholder);
                self.spares.push(spare);
            }
            // Without a descriptor for the placeholder, the range is never lent again.
            Err(_) => self.unusable.push(range),
        }
    }

    /// Finds the kept sockets that were closed. Each gave its number to the spare that was last at that
    /// moment.
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

/// Returns the inode by which the kernel's tables identify a socket.
fn inode(socket: &Socket) -> Option<u64> {
    rustix::fs::fstat(socket.as_fd()).ok().map(|status| status.st_ino)
}

/// Returns whether a socket with this inode is bound in this network namespace; false without `/proc`.
fn is_bound(local: SocketAddr, inode: u64) -> bool {
    let table = if local.is_ipv6() { "udp6" } else { "udp" };
    let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
    let mut inodes = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)?.parse().ok());
    inodes.any(|other: u64| other == inode)
}
