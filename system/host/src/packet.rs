//! Messages with file descriptors between processes of this host, over Unix sockets that keep message
//! boundaries (SOCK_SEQPACKET).

use remora_memory::ForkMark;
pub use remora_port::user::{PeerCredentials, own_uid};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Maximum number of descriptors in a packet.
pub const DESCRIPTORS: usize = 64;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// Time within which a listener must accept one more connection, when checking whether a process listens.
/// The answer is immediate unless too many connections wait.
const ACCEPTING: Duration = Duration::from_secs(1);

/// A received packet, without its bytes.
#[derive(Debug)]
pub struct Packet {
    /// Number of bytes; 0 if the other side hung up.
    pub len: usize,
    /// True if the packet was longer than the buffer, or contained too many descriptors.
    pub cut: bool,
    /// Descriptors that arrived with the packet.
    pub descriptors: Vec<OwnedFd>,
}

/// An end of a connection.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Creates both ends of a connection.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn pair() -> io::Result<(PacketSocket, PacketSocket)> {
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((PacketSocket { socket: one }, PacketSocket { socket: other }))
    }

    /// Connects to the listener at `path`. `patience` also limits the time of each send and receive.
    ///
    /// # Errors
    /// The errno of connect(2); `TimedOut` if the listener's queue stayed full for this time.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<PacketSocket> {
        PacketSocket::connect_to(&SocketAddrUnix::new(path)?, patience)
    }

    fn connect_to(address: &SocketAddrUnix, patience: Duration) -> io::Result<PacketSocket> {
        let socket =
            net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let socket = PacketSocket { socket };
        socket.set_patience(Some(patience), Some(patience))?;
        match net::connect(&socket.socket, address) {
            Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            done => Ok(done.map(|()| socket)?),
        }
    }

    /// Connects to the listener with this abstract name, like [`connect`](PacketSocket::connect) to a path.
    ///
    /// # Errors
    /// The errno of connect(2): `ConnectionRefused` if no process listens; `TimedOut` as for
    /// [`connect`](PacketSocket::connect).
    pub fn connect_abstract(name: &str, patience: Duration) -> io::Result<PacketSocket> {
        PacketSocket::connect_to(&SocketAddrUnix::new_abstract_name(name.as_bytes())?, patience)
    }

    /// Returns the process at the other end and its user, as recorded by the kernel when the connection was
    /// made.
    ///
    /// # Errors
    /// The errno of getsockopt(2).
    pub fn peer(&self) -> io::Result<PeerCredentials> {
        Ok(PeerCredentials::of(&self.socket)?)
    }

    /// Returns the process id of [`peer`](PacketSocket::peer).
    ///
    /// # Errors
    /// The errno of getsockopt(2).
    pub fn peer_pid(&self) -> io::Result<u32> {
        Ok(self.peer()?.pid)
    }

    /// Returns a descriptor that becomes readable when the process at the other end has ended. The socket
    /// alone does not show that, because a child forked by the process holds it open as well. `by` selects
    /// the kernel's mechanism.
    ///
    /// # Errors
    /// The errno of pidfd_open(2); `NotFound` if the process is in a pid namespace that this process cannot
    /// see.
    pub fn peer_process(&self, by: FoundBy) -> io::Result<OwnedFd> {
        let by_socket = (by == FoundBy::Socket).then(|| remora_port::shm::peer_process(&self.socket));
        if let Some(process) = by_socket.flatten() {
            return Ok(process);
        }
        let number =
            rustix::process::Pid::from_raw(self.peer()?.pid as i32).ok_or(io::ErrorKind::NotFound)?;
        Ok(rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty())?)
    }

    /// Makes the socket non-blocking: sending and receiving fail with `TimedOut` instead of waiting.
    ///
    /// # Errors
    /// The errno of ioctl(2).
    pub fn wait_for_nothing(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.socket, true)?)
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// The errno of sendmsg(2); `TimedOut` after the time of [`set_patience`](PacketSocket::set_patience).
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            done => Ok(done.map(|_| ())?),
        }
    }

    /// Waits for a packet.
    ///
    /// # Errors
    /// The errno of recvmsg(2); `TimedOut` after the time of [`set_patience`](PacketSocket::set_patience).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Packet> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            match net::recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                done => break done?,
            }
        };
        let mut descriptors = Vec::with_capacity(DESCRIPTORS);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let cut = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(Packet { len: got.bytes.min(buffer.len()), cut, descriptors })
    }

    /// Sets the maximum time of a send and of a receive; `None` for no limit.
    ///
    /// # Errors
    /// The errno of setsockopt(2).
    pub fn set_patience(&self, send: Option<Duration>, receive: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.socket, Timeout::Send, send)?;
        set_socket_timeout(&self.socket, Timeout::Recv, receive)?;
        Ok(())
    }

    /// Ends the connection for both ends.
    pub fn hang_up(&self) {
        let _ = net::shutdown(&self.socket, net::Shutdown::Both);
    }

    /// Sleeps until either end has ended the connection.
    pub fn wait_for_end(&self) {
        let nothing = PollFlags::empty();
        loop {
            match rustix::event::poll(&mut [PollFd::new(&self.socket, nothing)], None) {
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// Duplicates the descriptor of this end.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn try_clone(&self) -> io::Result<PacketSocket> {
        Ok(PacketSocket { socket: self.socket.try_clone()? })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for PacketSocket {
    fn from(socket: OwnedFd) -> PacketSocket {
        PacketSocket { socket }
    }
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> OwnedFd {
        socket.socket
    }
}

/// The mechanism by which the process at the other end of a socket is found.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum FoundBy {
    /// By the socket (SO_PEERPIDFD); before Linux 6.5 by the process id.
    #[default]
    Socket,
    /// By the process id.
    Number,
}

/// A listener at a path, which is removed when the listener is dropped, or at an abstract name, which
/// disappears with it.
#[derive(Debug)]
pub struct PacketListener {
    socket: OwnedFd,
    path: Option<std::path::PathBuf>,
    fork: ForkMark,
}

impl PacketListener {
    /// Listens at `path`, with access for this user only or, with `everybody`, for all users. A socket file
    /// left by a dead process is removed.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there, or the file is not a socket; otherwise the errno of bind(2).
    pub fn bind(path: &Path, everybody: bool) -> io::Result<PacketListener> {
        if let Ok(there) = std::fs::symlink_metadata(path) {
            let listens = match PacketSocket::connect(path, ACCEPTING) {
                Ok(_) => true,
                Err(error) => error.kind() == io::ErrorKind::TimedOut,
            };
            if !there.file_type().is_socket() || listens {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            std::fs::remove_file(path)?;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        // The permissions are set before `listen`, so that no process connects that must not.
        let mode = if everybody { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        net::listen(&socket, BACKLOG)?;
        Ok(PacketListener { socket, path: Some(path.to_owned()), fork: ForkMark::get() })
    }

    /// Listens at an abstract name, which every process of this network namespace can reach.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there; otherwise the errno of bind(2).
    pub fn bind_abstract(name: &str) -> io::Result<PacketListener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        net::listen(&socket, BACKLOG)?;
        Ok(PacketListener { socket, path: None, fork: ForkMark::get() })
    }

    /// Returns the next connection; `None` if none is waiting.
    ///
    /// # Errors
    /// The errno of accept(2).
    pub fn accept(&self) -> io::Result<Option<PacketSocket>> {
        match net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(PacketSocket { socket })),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for PacketListener {
    fn drop(&mut self) {
        // In a forked child the parent still listens at the path.
        if let Some(path) = &self.path
            && !self.fork.is_child()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for PacketListener {
    /// Returns the descriptor, which is readable while a connection waits to be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Creates a descriptor that is readable once a process has written to it.
///
/// # Errors
/// The error of the system if it cannot create a descriptor.
pub fn eventfd() -> io::Result<OwnedFd> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}

/// Returns whether the descriptor is a TCP connection.
pub fn is_tcp(descriptor: BorrowedFd<'_>) -> bool {
    use net::sockopt::{socket_domain, socket_type};
    let domain = socket_domain(descriptor);
    let inet = matches!(domain, Ok(AddressFamily::INET | AddressFamily::INET6));
    inet && socket_type(descriptor) == Ok(SocketType::STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn packets_keep_their_bounds_and_bring_descriptors() {
        let (one, other) = PacketSocket::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        one.send(b"first", &[writer.as_fd()]).unwrap();
        one.send(b"second, and too long", &[]).unwrap();
        drop(writer);
        let mut buffer = [0; 8];
        let first = other.receive(&mut buffer).unwrap();
        assert_eq!((&buffer[..first.len], first.cut, first.descriptors.len()), (&b"first"[..], false, 1));
        let mut writer = std::io::PipeWriter::from(first.descriptors.into_iter().next().unwrap());
        writer.write_all(b"through").unwrap();
        drop(writer);
        let mut through = String::new();
        reader.read_to_string(&mut through).unwrap();
        assert_eq!(through, "through");
        let second = other.receive(&mut buffer).unwrap();
        assert_eq!((second.len, second.cut), (8, true));
        other.set_patience(None, Some(Duration::from_millis(1))).unwrap();
        assert_eq!(other.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(one);
        assert_eq!(other.receive(&mut buffer).unwrap().len, 0);
    }

    #[test]
    fn a_listener_that_takes_nobody_is_waited_for_no_longer_than_asked_and_keeps_its_path() {
        let path = std::env::temp_dir().join(format!("remora-full-{}", std::process::id()));
        let _stopped = PacketListener::bind(&path, false).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match PacketSocket::connect(&path, Duration::from_millis(50)) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break error,
            }
            assert!(waiting.len() <= BACKLOG as usize + 1, "more wait than may");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(PacketListener::bind(&path, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn an_abstract_name_has_one_listener_and_shows_the_end_of_a_process_by_either_means() {
        let name = format!("remora-test-{}", std::process::id());
        assert_eq!(
            PacketSocket::connect_abstract(&name, ACCEPTING).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let listener = PacketListener::bind_abstract(&name).unwrap();
        assert_eq!(PacketListener::bind_abstract(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let _client = PacketSocket::connect_abstract(&name, ACCEPTING).unwrap();
        let taken = listener.accept().unwrap().expect("a client");
        for by in [FoundBy::Socket, FoundBy::Number] {
            let process = taken.peer_process(by).unwrap();
            let over = crate::wait_readable(process.as_fd(), Some(Duration::ZERO)).unwrap();
            assert!(!over, "this process lives");
        }
        taken.wait_for_nothing().unwrap();
        assert_eq!(taken.receive(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(listener);
        PacketListener::bind_abstract(&name).unwrap();
    }

    #[test]
    fn a_path_is_taken_over_from_the_dead_only() {
        let path = std::env::temp_dir().join(format!("remora-packet-{}", std::process::id()));
        let listener = PacketListener::bind(&path, false).unwrap();
        assert_eq!(PacketListener::bind(&path, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // Simulates that the process dies without cleaning up.
        rustix::net::shutdown(&listener.socket, net::Shutdown::Both).unwrap();
        let again = PacketListener::bind(&path, false).unwrap();
        assert!(PacketSocket::connect(&path, ACCEPTING).is_ok());
        assert!(again.accept().unwrap().is_some());
        drop(again);
        std::fs::write(&path, b"a file").unwrap();
        assert_eq!(PacketListener::bind(&path, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        std::fs::remove_file(&path).unwrap();
    }
}
