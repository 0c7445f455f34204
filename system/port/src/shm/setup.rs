//! Set-up of a link between two processes.
//!
//! One side listens on an abstract Unix socket with an unguessable name, which it sends to the other side
//! over their existing connection (`host`'s TCP exchange). The listener checks a connecting peer by the
//! credentials that the kernel reports. It sends the peer one message: version and geometry, with three
//! descriptors (the memory, and an eventfd for each direction). Nothing is sent back, so `accept` never
//! waits for the peer. The socket then stays open: when it hangs up, the peer is gone.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::link::{Link, Side, Wires};
use super::map::Map;
use super::ring::Geometry;
use crate::user::{self, PeerCredentials};

/// First bytes of the offer.
const MAGIC: [u8; 8] = *b"RemoraSh";
/// First bytes of the message by which a peer refuses to create a link.
const REFUSAL: [u8; 8] = *b"RemoraNo";
/// Version of the shared memory's format: it changes whenever the meaning of the bytes changes.
const VERSION: u32 = 2;
/// Length of the offer: magic, version, slots, largest frame, side of the receiver; integers little-endian.
const OFFER: usize = 8 + 4 * 4;
/// Number of descriptors: memory, eventfd that wakes the maker, eventfd that wakes the taker.
const DESCRIPTORS: usize = 3;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// First characters of the name of each listener; 32 hexadecimal digits follow.
const PREFIX: &str = "remora-";

fn is_link_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The reason why a link could not be created.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The OS refused.
    #[error("shm link: {0}{advice}", advice = crate::remedy(&(*.0).into()))]
    Os(Errno),
    /// The peer belongs to another user (this uid), and only this process's user is admitted.
    #[error("shm link: the peer runs as {}; run both as one user", user::name(*.0))]
    Stranger(u32),
    /// The peer uses another version of the memory's format (this version).
    #[error(
        "shm link: the peer speaks version {0}, this side {version}; update the older one",
        version = VERSION
    )]
    Version(u32),
    /// The peer's offer is invalid: wrong magic, geometry out of bounds, memory unsealed or too short.
    #[error(
        "shm link: the peer's offer is not a link: its memory is not sealed, or its rings are of another \
         shape; run one version on both sides"
    )]
    BadOffer,
    /// The peer's system could not create the link and failed with this errno.
    #[error(
        "shm link: the peer's system refuses memory or descriptors for it (memfd_create, eventfd2): {0}; \
         run `remora doctor` where the peer runs"
    )]
    Refused(Errno),
    /// The peer hung up before it sent an offer.
    #[error("shm link: the peer hung up before it offered a link; its log may say why")]
    NoOffer,
    /// The peer did not answer in time.
    #[error("shm link: the peer did not answer in time")]
    Timeout,
    /// The port has the maximum number of links.
    #[error("shm link: the port is full; raise its limit of links")]
    TooManyLinks,
}

impl From<Errno> for SetupError {
    fn from(errno: Errno) -> SetupError {
        match errno {
            Errno::AGAIN | Errno::TIMEDOUT => SetupError::Timeout,
            other => SetupError::Os(other),
        }
    }
}

/// The users whose processes may share a link with this process.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Admit {
    /// Only this process's own user, whose processes could reach this process's memory anyway (ptrace).
    #[default]
    SameUser,
    /// Every process that knows the name of the listener. Frames from other users are copied before they
    /// are parsed.
    AnyUser,
}

/// The side that creates links and offers them.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: String,
    geometry: Geometry,
    admit: Admit,
}

impl Listener {
    /// Listens under a fresh name; each accepted link gets rings of `geometry`. One listener may serve many
    /// peers. Alternatively each connection exchange has a listener of its own (they are cheap), which then
    /// identifies the peer.
    pub fn new(geometry: Geometry, admit: Admit) -> Result<Listener, SetupError> {
        let mut secret = [0u8; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{PREFIX}{:032x}", u128::from_ne_bytes(secret));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, name, geometry, admit })
    }

    /// Returns the name to send to the peer, for [`connect`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a link to the next peer that connected; `None` if none did (wait on [`Listener::as_fd`]).
    /// Never blocks.
    pub fn accept(&self) -> Result<Option<Link>, SetupError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match net::accept_with(&self.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let stranger = check_peer(&socket, self.admit)?;
        let process = peer_process(&socket);
        let parts = self.parts().inspect_err(|errno| send_refusal(&socket, *errno));
        let (map, memory, [wake_self, wake_peer]) = parts?;
        send_offer(
            &socket,
            self.geometry,
            Side::Taker,
            [memory.as_fd(), wake_self.as_fd(), wake_peer.as_fd()],
        )?;
        Ok(Some(Link::new(
            &map,
            Side::Maker,
            Some(Wires { socket, process, wake_peer, wake_self }),
            stranger,
        )))
    }
}

impl Listener {
    /// Creates the memory of a new link, and an eventfd for each side.
    fn parts(&self) -> Result<(Arc<Map>, OwnedFd, [OwnedFd; 2]), Errno> {
        let (map, memory) = Map::create(self.geometry)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok((map, memory, [rustix::event::eventfd(0, flags)?, rustix::event::eventfd(0, flags)?]))
    }
}

impl AsFd for Listener {
    /// Returns the descriptor that is readable when a peer has connected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to the listener `name` and takes the link that it offers. Waits at most `timeout` (not zero)
/// for each of the two steps.
pub fn connect(name: &str, admit: Admit, timeout: Duration) -> Result<Link, SetupError> {
    // A stranger's message may have the name, and other sockets are none of its business.
    if !is_link_name(name) {
        return Err(SetupError::BadOffer);
    }
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
    net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let stranger = check_peer(&socket, admit)?;
    let process = peer_process(&socket);
    let offer = receive_offer(&socket)?;
    // A peer that gave both ends the maker's side would make this process read what it writes.
    if offer.side != Side::Taker {
        return Err(SetupError::BadOffer);
    }
    offer.accept(socket, process, stranger)
}

/// Creates a link for two other processes. The caller sends one socket to each process, which turns it into
/// its end of the link by [`take`]. Nothing of the link stays here.
pub fn introduce(geometry: Geometry) -> Result<[OwnedFd; 2], SetupError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (maker, taker) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let (_map, memory) = Map::create(geometry)?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake_maker = rustix::event::eventfd(0, flags)?;
    let wake_taker = rustix::event::eventfd(0, flags)?;
    let descriptors = [memory.as_fd(), wake_maker.as_fd(), wake_taker.as_fd()];
    // A message sent into one end of the pair is read at the other.
    send_offer(&taker, geometry, Side::Maker, descriptors)?;
    send_offer(&maker, geometry, Side::Taker, descriptors)?;
    Ok([maker, taker])
}

/// Takes an end of a link that [`introduce`] has created. Never waits. `process` is readable when the
/// process at the other end has ended. `stranger` tells whether that process belongs to another user: its
/// frames are then copied before they are parsed.
pub fn take(socket: OwnedFd, process: Option<OwnedFd>, stranger: bool) -> Result<Link, SetupError> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    receive_offer(&socket)?.accept(socket, process, stranger)
}

/// Checks that the process at the other end of `socket` is admitted, and returns whether it belongs to
/// another user.
fn check_peer(socket: &OwnedFd, admit: Admit) -> Result<bool, SetupError> {
    let peer = PeerCredentials::of(socket)?;
    let stranger = !peer.is_this_process() && !user::is_own(peer.uid);
    if stranger && admit == Admit::SameUser { Err(SetupError::Stranger(peer.uid)) } else { Ok(stranger) }
}

/// Returns a descriptor of the process at the other end, readable when the process has ended; `None` before
/// Linux 6.5. The socket alone does not show the end, because a child forked by the peer holds it open too.
pub fn peer_process(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let on = socket.as_raw_fd();
    let optval = (&raw mut fd).cast();
    // SAFETY: `optval` points to `len` bytes, and the kernel writes no more.
    let done = unsafe { libc::getsockopt(on, libc::SOL_SOCKET, libc::SO_PEERPIDFD, optval, &mut len) };
    // SAFETY: the kernel has just created this descriptor for us, and no other code knows it.
    (done == 0 && fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send_offer(
    socket: &OwnedFd,
    geometry: Geometry,
    side: Side,
    descriptors: [BorrowedFd<'_>; DESCRIPTORS],
) -> Result<(), SetupError> {
    let mut offer = [0u8; OFFER];
    offer[..8].copy_from_slice(&MAGIC);
    offer[8..12].copy_from_slice(&VERSION.to_le_bytes());
    offer[12..16].copy_from_slice(&geometry.slots().to_le_bytes());
    offer[16..20].copy_from_slice(&geometry.max_frame().to_le_bytes());
    offer[20..24].copy_from_slice(&u32::from(side == Side::Taker).to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    net::sendmsg(socket, &[IoSlice::new(&offer)], &mut control, flags)?;
    Ok(())
}

/// Informs the peer that no link can be created. The message has other first bytes than an offer; peers of
/// an earlier version treat it as an invalid offer.
fn send_refusal(socket: &OwnedFd, errno: Errno) {
    let mut refusal = [0u8; OFFER];
    refusal[..8].copy_from_slice(&REFUSAL);
    refusal[8..12].copy_from_slice(&errno.raw_os_error().to_le_bytes());
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // If sending fails, the peer sees that the socket was closed.
    let _ = net::send(socket, &refusal, flags);
}

/// A received offer.
struct Offer {
    geometry: Geometry,
    /// The side of the process that takes the offer.
    side: Side,
    descriptors: [OwnedFd; DESCRIPTORS],
}

impl Offer {
    /// Maps the memory, and creates the link.
    fn accept(self, socket: OwnedFd, process: Option<OwnedFd>, stranger: bool) -> Result<Link, SetupError> {
        let [memory, wake_maker, wake_taker] = self.descriptors;
        let map = Map::open(&memory, self.geometry)?.ok_or(SetupError::BadOffer)?;
        // If the peer sent something else than an eventfd, a wake must at least not block.
        for descriptor in [&wake_maker, &wake_taker] {
            let flags = rustix::fs::fcntl_getfl(descriptor)?;
            rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
        }
        let (wake_peer, wake_self) = match self.side {
            Side::Maker => (wake_taker, wake_maker),
            Side::Taker => (wake_maker, wake_taker),
        };
        Ok(Link::new(&map, self.side, Some(Wires { socket, process, wake_peer, wake_self }), stranger))
    }
}

fn receive_offer(socket: &OwnedFd) -> Result<Offer, SetupError> {
    let mut offer = [0u8; OFFER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = net::recvmsg(socket, &mut [IoSliceMut::new(&mut offer)], &mut control, flags)?;
    // Descriptors are taken out first, so that they are closed even if the rest of the message is wrong.
    let mut descriptors = Vec::with_capacity(DESCRIPTORS);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let (geometry, side) = parse_offer(&offer[..got.bytes])?;
    let descriptors = descriptors.try_into().map_err(|_| SetupError::BadOffer)?;
    Ok(Offer { geometry, side, descriptors })
}

fn parse_offer(offer: &[u8]) -> Result<(Geometry, Side), SetupError> {
    if offer.is_empty() {
        return Err(SetupError::NoOffer);
    }
    let Ok(offer) = <&[u8; OFFER]>::try_from(offer) else {
        return Err(SetupError::BadOffer);
    };
    let number = |offset: usize| {
        u32::from_le_bytes([offer[offset], offer[offset + 1], offer[offset + 2], offer[offset + 3]])
    };
    if offer[..8] == REFUSAL {
        let errno = i32::try_from(number(8)).ok().filter(|errno| (1..4096).contains(errno));
        return Err(
            errno.map_or(SetupError::BadOffer, |errno| SetupError::Refused(Errno::from_raw_os_error(errno)))
        );
    }
    if offer[..8] != MAGIC {
        return Err(SetupError::BadOffer);
    }
    if number(8) != VERSION {
        return Err(SetupError::Version(number(8)));
    }
    let side = match number(20) {
        0 => Side::Maker,
        1 => Side::Taker,
        _ => return Err(SetupError::BadOffer),
    };
    Geometry::new(number(12), number(16)).map(|geometry| (geometry, side)).ok_or(SetupError::BadOffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(magic: &[u8; 8], version: u32, slots: u32, largest: u32) -> Vec<u8> {
        let mut bytes = magic.to_vec();
        for number in [version, slots, largest, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// Regression: a server that could not make the memory of a link told its client that the offer is
    /// not a link.
    #[test]
    fn a_peer_that_cannot_make_a_link_tells_its_errno() {
        let flags = SocketFlags::CLOEXEC;
        let (maker, taker) =
            net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send_refusal(&maker, Errno::PERM);
        let error = receive_offer(&taker).err();
        assert_eq!(error, Some(SetupError::Refused(Errno::PERM)));
        let words = error.unwrap().to_string();
        assert!(words.contains("memfd_create") && words.contains("os error 1"), "{words}");
        drop(maker);
        assert_eq!(receive_offer(&taker).err(), Some(SetupError::NoOffer));
        let mut impossible = [0; OFFER];
        impossible[..8].copy_from_slice(&REFUSAL);
        for errno in [0, 4096, u32::MAX] {
            impossible[8..12].copy_from_slice(&errno.to_le_bytes());
            assert_eq!(parse_offer(&impossible), Err(SetupError::BadOffer));
        }
    }

    #[test]
    fn only_names_of_links_are_connected_to() {
        let name = format!("other-{:032x}", std::process::id());
        let socket = net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        net::listen(&socket, 1).unwrap();
        let refused = connect(&name, Admit::SameUser, Duration::from_secs(9));
        assert_eq!(refused.err(), Some(SetupError::BadOffer));
        assert_eq!(net::accept(&socket).err(), Some(Errno::AGAIN), "nothing has connected");
        assert!(is_link_name(Listener::new(super::super::DEFAULT_GEOMETRY, Admit::SameUser).unwrap().name()));
        assert!(!is_link_name("remora-") && !is_link_name(""));
    }

    #[test]
    fn an_offer_is_taken_only_if_every_word_is_sane() {
        assert_eq!(
            parse_offer(&offer(&MAGIC, VERSION, 256, 4000)),
            Ok((Geometry::new(256, 4000).unwrap(), Side::Taker))
        );
        let mut neither = offer(&MAGIC, VERSION, 256, 4000);
        neither[20] = 2;
        assert_eq!(parse_offer(&neither), Err(SetupError::BadOffer));
        assert_eq!(parse_offer(&offer(b"RemoraXX", VERSION, 256, 4000)), Err(SetupError::BadOffer));
        assert_eq!(parse_offer(&offer(&MAGIC, 9, 256, 4000)), Err(SetupError::Version(9)));
        assert_eq!(parse_offer(&offer(&MAGIC, VERSION, 255, 4000)), Err(SetupError::BadOffer));
        assert_eq!(parse_offer(&offer(&MAGIC, VERSION, 1 << 31, 4000)), Err(SetupError::BadOffer));
        assert_eq!(parse_offer(&offer(&MAGIC, VERSION, 256, u32::MAX)), Err(SetupError::BadOffer));
        assert_eq!(parse_offer(&offer(&MAGIC, VERSION, 256, 0)), Err(SetupError::BadOffer));
        assert_eq!(parse_offer(&[]), Err(SetupError::NoOffer));
        assert_eq!(parse_offer(&offer(&MAGIC, VERSION, 256, 4000)[..23]), Err(SetupError::BadOffer));
    }
}
