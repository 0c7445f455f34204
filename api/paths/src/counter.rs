//! Access to counter files through the broker: one request packet, and one reply with a file descriptor.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use crate::rewrite::{PATH_MAX, folder};

/// The message kind, the magic bytes and the version of the broker's protocol (`api/broker/src/message.rs`).
const KIND: u8 = 8;
const MAGIC: &[u8; 8] = b"RemoraBr";
const VERSION: u16 = 8;
/// The kind of the reply that carries a file descriptor.
const FILE: u8 = 8;
/// The symbolic link in the tree whose target is the name of the broker's abstract socket.
const BROKER: &[u8] = b"/broker\0";
/// The seconds within which the broker must answer. Afterwards the program gets the file in the tree.
const PATIENCE: libc::time_t = 2;

/// The user ID that stands for all users without an ID in this user namespace.
const OVERFLOW: libc::uid_t = 65_534;
/// The number of IDs in the map of a user namespace that translates every user.
const EVERY_ID: &[u8] = b"4294967295";

/// A file descriptor that is closed on drop.
struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to this value.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Opens the counter of the given name through the broker. Returns `None` if no trusted broker answers. With
/// `cloexec` the descriptor is closed on `exec`.
pub(crate) fn open(name: &[u8], cloexec: bool) -> Option<c_int> {
    let broker = connect().filter(is_trusted)?;
    let mut packet = [0u8; 128];
    let len = emit(name, &mut packet)?;
    // SAFETY: the packet has at least `len` bytes.
    let sent = unsafe { libc::send(broker.0, packet.as_ptr().cast(), len, libc::MSG_NOSIGNAL) };
    if sent != len as isize {
        return None;
    }
    receive(&broker, cloexec)
}

/// Encodes the request and returns its length in bytes. `None`: the name does not fit.
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

/// Connects to the broker that wrote the tree.
fn connect() -> Option<Descriptor> {
    let tree = folder()?;
    let mut link = [0u8; PATH_MAX];
    let end = tree.len() + BROKER.len();
    link.get_mut(..tree.len())?.copy_from_slice(tree);
    link.get_mut(tree.len()..end)?.copy_from_slice(BROKER);
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    // The name of an abstract socket begins with a zero byte.
    let most = address.sun_path.len() - 1;
    // SAFETY: the link is a C string, and the buffer has `most` bytes.
    let got = unsafe {
        let buffer = address.sun_path.as_mut_ptr().add(1);
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), buffer, most)
    };
    let named = usize::try_from(got).ok().filter(|len| *len > 0)?;
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + named;
    let wait = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
    let size = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the descriptor is fresh, the address has this length, and the value has the type of the option.
    // The code makes the `socket` system call by its number, because this library replaces the C function.
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

/// Returns true if the answering process may give this program a file: its user is the program's user, root,
/// or the owner of the tree. After a broker has ended, any process could take over the name of its socket.
fn is_trusted(broker: &Descriptor) -> bool {
    let (Some(peer), Some(writer)) = (peer(broker), writer()) else { return false };
    // SAFETY: the system call has no arguments.
    let own = unsafe { libc::geteuid() };
    is_among(peer, [own, 0, writer]) && (peer != OVERFLOW || has_every_id())
}

fn is_among(uid: libc::uid_t, trusted: [libc::uid_t; 3]) -> bool {
    trusted.contains(&uid)
}

/// Returns the user at the other end of the connection, as the kernel recorded it.
fn peer(broker: &Descriptor) -> Option<libc::uid_t> {
    let mut peer = libc::ucred { pid: 0, uid: OVERFLOW, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the length that the kernel receives.
    let done = unsafe {
        let buffer = (&raw mut peer).cast();
        libc::getsockopt(broker.0, libc::SOL_SOCKET, libc::SO_PEERCRED, buffer, &raw mut len)
    };
    (done == 0).then_some(peer.uid)
}

/// Returns the owner of the tree.
fn writer() -> Option<libc::uid_t> {
    let tree = folder()?;
    let mut path = [0u8; PATH_MAX];
    path.get_mut(..tree.len())?.copy_from_slice(tree);
    path.get(tree.len()).filter(|end| **end == 0)?;
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path is a C string, and zeros are a valid `stat`. The code makes the call by its number,
    // because this library replaces the C function.
    unsafe {
        let buffer = status.as_mut_ptr();
        let done = libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), buffer, 0);
        (done == 0).then(|| status.assume_init().st_uid)
    }
}

/// Returns true if this user namespace translates every user. Otherwise the overflow ID identifies nobody.
fn has_every_id() -> bool {
    let mut map = [0u8; 128];
    // SAFETY: the path is a C string, and the buffer has the given length.
    let got = unsafe {
        let path = c"/proc/thread-self/uid_map".as_ptr();
        let opened = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC);
        let Some(file) = c_int::try_from(opened).ok().filter(|file| *file >= 0).map(Descriptor) else {
            return false;
        };
        libc::syscall(libc::SYS_read, file.0, map.as_mut_ptr(), map.len())
    };
    let read = usize::try_from(got).ok().and_then(|len| map.get(..len)).unwrap_or_default();
    read.windows(EVERY_ID.len()).any(|part| part == EVERY_ID)
}

/// Receives the reply and returns its file descriptor. Further descriptors in the reply are closed.
fn receive(broker: &Descriptor, cloexec: bool) -> Option<c_int> {
    let mut packet = [0u8; 16];
    // The buffer is aligned like the kernel's header. The kernel closes descriptors that do not fit into it.
    let mut control = [0u64; 8];
    let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
    // SAFETY: all fields are numbers or pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = if cloexec { libc::MSG_CMSG_CLOEXEC } else { 0 };
    let mut first = None;
    // SAFETY: the parts of the message outlive the call, and the kernel writes the headers.
    let got = unsafe {
        let got = libc::recvmsg(broker.0, &raw mut message, flags);
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while got > 0 && !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                take_first(header, &mut first);
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        got
    };
    let file = first.filter(|_| got >= 1 && packet[0] == FILE)?;
    let number = file.0;
    std::mem::forget(file);
    Some(number)
}

/// Takes ownership of the descriptors of a control message. The first one goes to `first` unless that holds
/// one already; the others are closed.
///
/// # Safety
/// The kernel wrote `header`, and nobody has taken its descriptors.
#[allow(clippy::unnecessary_cast, reason = "with musl the length of a header has 32 bits")]
unsafe fn take_first(header: *const libc::cmsghdr, first: &mut Option<Descriptor>) {
    // SAFETY: the caller promises a header of the kernel, which contains its length.
    unsafe {
        let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
        let descriptors = libc::CMSG_DATA(header).cast::<c_int>();
        for place in 0..bytes / size_of::<c_int>() {
            let taken = Descriptor(descriptors.add(place).read_unaligned());
            first.get_or_insert(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_packet_of_the_brokers_grammar() {
        let mut packet = [0; 128];
        let len = emit(b"counters/x", &mut packet).unwrap();
        assert_eq!(&packet[..len], b"\x08RemoraBr\x08\x00\x0a\x00counters/x");
        assert_eq!(emit(&[b'x'; 116], &mut packet), None, "no counter has such a name");
    }
    /// Regression: the preload library took any descriptor from any process that had the name of a dead
    /// broker.
    #[test]
    fn a_broker_of_another_user_is_not_believed() {
        let [own, writer] = [1000, 1001];
        for (uid, is_believed) in [(1000, true), (0, true), (1001, true), (1002, false), (OVERFLOW, false)] {
            assert_eq!(is_among(uid, [own, 0, writer]), is_believed, "{uid}");
        }
    }

    /// Regression: further descriptors of a reply stayed open.
    #[test]
    fn of_a_reply_with_several_descriptors_one_is_taken_and_no_other_stays_open() {
        use std::io::{PipeReader, PipeWriter};
        use std::os::fd::{AsRawFd, FromRawFd};
        for (kind, is_taken) in [(FILE, true), (1, false)] {
            let pipes: Vec<(PipeReader, PipeWriter)> = (0..4).map(|_| std::io::pipe().unwrap()).collect();
            let mut ends = [0; 2];
            // SAFETY: the array has space for two descriptors.
            let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
            assert_eq!(made, 0);
            let [ours, theirs] = ends.map(Descriptor);
            let writers: Vec<c_int> = pipes.iter().map(|(_, writer)| writer.as_raw_fd()).collect();
            send(&theirs, kind, &writers);
            let (readers, writers): (Vec<PipeReader>, Vec<PipeWriter>) = pipes.into_iter().unzip();
            drop(writers);
            let taken = receive(&ours, true);
            assert_eq!(taken.is_some(), is_taken);
            let open: Vec<bool> = readers.iter().map(|reader| !has_ended(reader.as_raw_fd())).collect();
            assert_eq!(open, [is_taken, false, false, false]);
            if let Some(taken) = taken {
                // SAFETY: the test has just received the descriptor and owns it.
                drop(unsafe { PipeWriter::from_raw_fd(taken) });
            }
        }
    }

    /// Sends one byte and the given descriptors.
    fn send(socket: &Descriptor, kind: u8, descriptors: &[c_int]) {
        let mut control = [0u64; 8];
        let mut byte = kind;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let bytes = size_of_val(descriptors);
        // SAFETY: zeros are a valid message, and its parts outlive the call.
        unsafe {
            let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
            let data = libc::CMSG_DATA(header);
            std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), data, bytes);
            assert_eq!(libc::sendmsg(socket.0, &raw const message, 0), 1);
        }
    }

    /// Returns true if no process has the writing end of the pipe open.
    fn has_ended(reader: c_int) -> bool {
        let mut waited = libc::pollfd { fd: reader, events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one structure.
        unsafe { libc::poll(&raw mut waited, 1, 0) };
        waited.revents & libc::POLLHUP != 0
    }
}
