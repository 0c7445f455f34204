//! A counter's file, from the broker: one packet there, and one with a descriptor back.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use crate::rewrite::{PATH_MAX, folder};

/// Of the broker's messages (`api/broker/src/message.rs`): the kind, the first bytes, and the version.
const KIND: u8 = 7;
const MAGIC: &[u8; 8] = b"RemoraBr";
const VERSION: u16 = 7;
/// The kind of the reply that has a file.
const FILE: u8 = 8;
/// The link in the tree whose target is the name of the broker's abstract socket.
const BROKER: &[u8] = b"/broker\0";
/// Seconds in which the broker must answer; else the file of the tree is opened.
const PATIENCE: libc::time_t = 2;

/// A descriptor that is closed when it is dropped.
struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it is this value's.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Opens the counter of this name; `None`: no broker answers. `cloexec`: a program that is executed has it no
/// more.
pub fn open(name: &[u8], cloexec: bool) -> Option<c_int> {
    let broker = connect()?;
    let mut packet = [0u8; 128];
    let len = emit(name, &mut packet)?;
    // SAFETY: as many bytes as there are.
    let sent = unsafe { libc::send(broker.0, packet.as_ptr().cast(), len, libc::MSG_NOSIGNAL) };
    if sent != len as isize {
        return None;
    }
    receive(&broker, cloexec)
}

/// The request; its length.
fn emit(name: &[u8], packet: &mut [u8; 128]) -> Option<usize> {
    let end = 13 + name.len();
    let space = packet.get_mut(..end)?;
    space[0] = KIND;
    space[1..9].copy_from_slice(MAGIC);
    space[9..11].copy_from_slice(&VERSION.to_le_bytes());
    space[11..13].copy_from_slice(&(name.len() as u16).to_le_bytes());
    space[13..].copy_from_slice(name);
    Some(end)
}

/// A connection to the broker of the tree.
fn connect() -> Option<Descriptor> {
    let tree = folder()?;
    let mut link = [0u8; PATH_MAX];
    let end = tree.len() + BROKER.len();
    link.get_mut(..tree.len())?.copy_from_slice(tree);
    link.get_mut(tree.len()..end)?.copy_from_slice(BROKER);
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    // An abstract name begins with a zero.
    let most = address.sun_path.len() - 1;
    // SAFETY: a C string, and as many bytes as the name may have.
    let got = unsafe {
        let to = address.sun_path.as_mut_ptr().add(1);
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), to, most)
    };
    let named = usize::try_from(got).ok().filter(|len| *len > 0)?;
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + named;
    let wait = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
    let size = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: a fresh descriptor, an address of this length, and a value of the option's type. The system
    // call is made by its number, since the C library's `socket` is this library's.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let made = libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0);
        let socket = Descriptor(c_int::try_from(made).ok().filter(|made| *made >= 0)?);
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            libc::setsockopt(socket.0, libc::SOL_SOCKET, option, (&raw const wait).cast(), size);
        }
        let connected = libc::connect(socket.0, (&raw const address).cast(), len as libc::socklen_t);
        (connected == 0).then_some(socket)
    }
}

/// The reply's descriptor.
fn receive(broker: &Descriptor, cloexec: bool) -> Option<c_int> {
    let mut packet = [0u8; 16];
    // Aligned as the kernel's header is, and enough for one descriptor.
    let mut control = [0u64; 8];
    let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
    // SAFETY: all of it are numbers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = if cloexec { libc::MSG_CMSG_CLOEXEC } else { 0 };
    // SAFETY: the message's parts live until it returns; the headers are the kernel's.
    unsafe {
        let got = libc::recvmsg(broker.0, &raw mut message, flags);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if got < 1 || header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return None;
        }
        let file = Descriptor(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned());
        if packet[0] != FILE {
            return None;
        }
        let number = file.0;
        std::mem::forget(file);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_packet_of_the_brokers_grammar() {
        let mut packet = [0; 128];
        let len = emit(b"counters/x", &mut packet).unwrap();
        assert_eq!(&packet[..len], b"\x07RemoraBr\x07\x00\x0a\x00counters/x");
        assert_eq!(emit(&[b'x'; 116], &mut packet), None, "no counter has such a name");
    }
}
