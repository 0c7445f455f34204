//! The kernel's notices of interfaces and addresses (rtnetlink).
//!
//! They only say that something has changed; then everything is looked up. So a notice that is lost does no
//! harm.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Groups of notices: links, IPv4 addresses, IPv6 addresses (`RTMGRP_*` in the kernel's rtnetlink.h).
const GROUPS: u32 = 1 | 0x10 | 0x100;
/// Notices that are taken in one look.
const TURN: usize = 256;

/// A socket that is readable while there are notices of this network namespace.
#[derive(Debug)]
pub(super) struct Notices(OwnedFd);

impl Notices {
    /// `None`: the system gives none, and programs are told of nothing.
    pub fn open() -> Option<Notices> {
        let opened = open();
        opened
            .inspect_err(|errno| tracing::warn!("no interface is watched: the system refuses ({errno})"))
            .ok()
    }

    /// Takes what is there.
    pub fn take(&self) {
        let mut notice = [0; 64];
        for _ in 0..TURN {
            // `NOBUFS` says that some are lost.
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
    // No protocol is that of routes.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(Notices(socket))
}
