//! The kernel's notices about interfaces and addresses (rtnetlink).
//!
//! A notice only says that something has changed. The broker then looks everything up, so a lost notice does
//! no harm.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The multicast groups of links, IPv4 addresses and IPv6 addresses (`RTMGRP_*` in the kernel's
/// rtnetlink.h).
const GROUPS: u32 = 1 | 0x10 | 0x100;
/// Notices that are read at a time.
const TURN: usize = 256;

/// A socket that is readable while there are notices for this network namespace.
#[derive(Debug)]
pub(super) struct Notices(OwnedFd);

impl Notices {
    /// Opens the socket. Returns `None` if the system refuses; programs then get no events of the port.
    pub(crate) fn open() -> Option<Notices> {
        let opened = open();
        opened
            .inspect_err(|errno| tracing::warn!("no interface is watched: the system refuses ({errno})"))
            .ok()
    }

    /// Reads and discards the waiting notices.
    pub(crate) fn take(&self) {
        let mut notice = [0; 64];
        for _ in 0..TURN {
            // `NOBUFS` reports that notices were lost, which does no harm.
            let took = rustix::net::recv(&self.0, &mut notice[..], RecvFlags::TRUNC);
            if !matches!(took, Ok(_) | Err(Errno::NOBUFS | Errno::INTR)) {
                return;
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open() -> Result<Notices, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0 of netlink is that of routes.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(Notices(socket))
}
