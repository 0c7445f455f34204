//! A port on an address that programs share. It receives from a socket that was handed in, which gets the
//! frames of one QPN range, and sends from a socket of its own.
//!
//! In addition to the socket there is a channel to the owner of the address, for misdirected frames: the
//! owner hands over frames for this port that reached the owner, and takes frames for other ports that
//! reached this port. Packets have the same format in both directions:
//!
//! ```text
//!  0  address of the sender 128   16  its UDP port 16   18  bytes of each frame 16
//! 20  address that they were sent to 128               36  frames
//! ```
//!
//! An owner of several addresses may use the channel of one address for frames that were sent to another
//! address, of which the program has no share.
//!
//! Both sides map a page that contains the number of packets that the owner has handed over, so that a port
//! that gets none makes no system calls for the channel.

use super::datagram::Arrival;
use super::inbox::Inbox;
use super::options::Options;
use super::range::range_of;
use super::socket::Socket;
use remora_memory::Bytes;
use remora_wire::frame::{Address, Endpoint, Ingress};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use rustix::net::{SocketFlags, SocketType};
use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bytes before the frames.
const HEADER: usize = 36;
/// Size of the page in bytes.
const PAGE: usize = 4096;
/// First word of the page.
const MAGIC: u64 = u64::from_le_bytes(*b"RemoraPg");
/// Offsets in the page of the number of packets handed over, and of the counters: a cache line each.
const HANDED: usize = 64;
const COUNTERS: usize = 128;

/// The page that the owner of an address shares with one program: the number of packets handed over, and
/// the counters that the program publishes.
#[derive(Clone, Debug)]
pub struct SharedPage {
    bytes: Bytes,
}

impl SharedPage {
    /// Maximum number of counters.
    pub const COUNTERS: usize = (PAGE - COUNTERS) / 8;

    /// Creates a page in a memfd.
    ///
    /// # Errors
    /// The error of the system if it cannot create memory or a descriptor.
    pub fn new() -> io::Result<SharedPage> {
        let bytes = Bytes::memfd("remora-page", PAGE).map_err(io::Error::other)?;
        let page = SharedPage { bytes };
        page.word(0).store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Maps the page of a received descriptor; `None` if it is not such a page.
    pub fn from_memfd(memfd: OwnedFd) -> Option<SharedPage> {
        let page = SharedPage { bytes: Bytes::from_memfd(memfd).ok().filter(|bytes| bytes.len() >= PAGE)? };
        (page.word(0).load(Ordering::Acquire) == MAGIC).then_some(page)
    }

    /// Returns the descriptor to pass to the program.
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.bytes.fd()
    }

    /// Publishes the program's counters; those beyond [`SharedPage::COUNTERS`] are left out.
    pub fn publish(&self, counters: impl IntoIterator<Item = u64>) {
        for (place, value) in counters.into_iter().take(SharedPage::COUNTERS).enumerate() {
            self.word(COUNTERS + 8 * place).store(value, Ordering::Relaxed);
        }
    }

    /// Returns the first `count` counters that the program published last.
    pub fn counters(&self, count: usize) -> impl Iterator<Item = u64> + '_ {
        let places = 0..count.min(SharedPage::COUNTERS);
        places.map(|place| self.word(COUNTERS + 8 * place).load(Ordering::Relaxed))
    }

    #[inline]
    fn handed(&self) -> &AtomicU64 {
        self.word(HANDED)
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // Every offset used here is a multiple of 8 below the page's length, which was checked.
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.bytes.word(offset).unwrap_or(&NOWHERE)
    }
}

/// A program's share of an address: a QPN range, the socket that receives for it, and the channel to the
/// owner. Clones refer to the same share.
#[derive(Clone)]
pub struct SharedEndpoint {
    local: SocketAddr,
    range: u8,
    socket: Arc<OwnedFd>,
    channel: Arc<OwnedFd>,
    page: SharedPage,
    /// A value that keeps the share alive. Dropping the last clone ends the share.
    #[expect(dead_code, reason = "held for its Drop")]
    lease: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for SharedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEndpoint").field("local", &self.local).field("range", &self.range).finish()
    }
}

impl SharedEndpoint {
    /// Creates a share of `local`, with the socket that receives for `range`, and the owner's side of the
    /// share.
    ///
    /// # Errors
    /// The error of the system if it cannot create memory or descriptors.
    pub fn share(local: SocketAddr, range: u8, socket: OwnedFd) -> io::Result<(SharedEndpoint, Handover)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let page = SharedPage::new()?;
        let endpoint = SharedEndpoint {
            local,
            range,
            socket: Arc::new(socket),
            channel: Arc::new(theirs),
            page: page.clone(),
            lease: None,
        };
        Ok((endpoint, Handover { channel: ours, page }))
    }

    /// Creates a share of `local` whose frames all come from the owner, and the owner's side of the share.
    /// The socket of the share receives nothing: a datagram that arrived there would be for another UDP
    /// port.
    ///
    /// # Errors
    /// The error of the system if it cannot create memory or a socket.
    pub fn relay(local: SocketAddr, range: u8) -> io::Result<(SharedEndpoint, Handover)> {
        let unused = Socket::sending(local, &Options::default()).map_err(io::Error::other)?;
        SharedEndpoint::share(local, range, unused.fd)
    }

    /// Creates the share from descriptors that came from the owner: socket, channel, page. `None` if the
    /// third is not a page.
    pub fn from_descriptors(
        local: SocketAddr,
        range: u8,
        [socket, channel, page]: [OwnedFd; 3],
    ) -> Option<SharedEndpoint> {
        let page = SharedPage::from_memfd(page)?;
        let socket = Arc::new(socket);
        let channel = Arc::new(channel);
        Some(SharedEndpoint { local, range, socket, channel, page, lease: None })
    }

    /// Keeps this value alive as long as any clone of the share, in a port or elsewhere.
    #[must_use]
    pub fn held_by(self, lease: Arc<dyn Any + Send + Sync>) -> SharedEndpoint {
        SharedEndpoint { lease: Some(lease), ..self }
    }

    /// Returns the descriptors to pass to the program, in the order of
    /// [`SharedEndpoint::from_descriptors`].
    pub fn descriptors(&self) -> Option<[BorrowedFd<'_>; 3]> {
        Some([self.socket.as_fd(), self.channel.as_fd(), self.page.memfd()?])
    }

    /// Returns the shared address and UDP port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the QPN range, 0 to 127.
    pub fn range(&self) -> u8 {
        self.range
    }

    /// Returns the page, to publish counters in.
    pub fn page(&self) -> &SharedPage {
        &self.page
    }

    /// Returns a duplicate descriptor of the receiving socket.
    pub(super) fn socket(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)
    }
}

/// The owner's side of a program's share, which passes frames in both directions.
#[derive(Debug)]
pub struct Handover {
    channel: OwnedFd,
    page: SharedPage,
}

impl Handover {
    /// Passes frames of `segment` bytes each (the last may be shorter), which were sent to `destination`,
    /// to the program. Returns false if the program has no space or is gone.
    pub fn give(&self, source: Endpoint, destination: Address, segment: usize, frames: &[u8]) -> bool {
        // The count is raised first, so that the program polls until it finds the packet.
        self.page.handed().fetch_add(1, Ordering::Release);
        let given = send(&self.channel, source, destination, segment, frames).is_ok();
        if !given {
            self.page.handed().fetch_sub(1, Ordering::Release);
        }
        given
    }

    /// Takes frames for others that reached the program; `Ok(None)` if there are none. `buffer` must have
    /// 65535 bytes.
    ///
    /// # Errors
    /// `PIPE` if the program is gone.
    pub fn take(&self, buffer: &mut [u8]) -> Result<Option<Arrival>, Errno> {
        match receive(&self.channel, buffer) {
            Received::Frames(arrival, _) => Ok(Some(arrival)),
            Received::Nothing => Ok(None),
            Received::Over => Err(Errno::PIPE),
        }
    }

    /// Returns the page that is shared with the program.
    pub fn page(&self) -> &SharedPage {
        &self.page
    }
}

impl AsFd for Handover {
    /// Returns the descriptor that is readable while the program hands frames over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn send(
    channel: &OwnedFd,
    source: Endpoint,
    destination: Address,
    segment: usize,
    frames: &[u8],
) -> Result<(), Errno> {
    let mut header = [0; HEADER];
    header[..16].copy_from_slice(&source.address.0);
    header[16..18].copy_from_slice(&source.udp_port.to_le_bytes());
    header[18..20].copy_from_slice(&(segment.min(usize::from(u16::MAX)) as u16).to_le_bytes());
    header[20..].copy_from_slice(&destination.0);
    let parts = [IoSlice::new(&header), IoSlice::new(frames)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(channel, &parts, &mut SendAncillaryBuffer::default(), flags).map(|_| ())
}

enum Received {
    /// Frames, and the address that they were sent to.
    Frames(Arrival, Address),
    Nothing,
    /// The other side is gone.
    Over,
}

/// Receives a packet. A packet without frames, or a truncated one, yields an empty arrival; only a faulty
/// other side sends such packets.
fn receive(channel: &OwnedFd, buffer: &mut [u8]) -> Received {
    let mut header = [0; HEADER];
    let capacity = buffer.len();
    let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(channel, &mut parts, &mut RecvAncillaryBuffer::default(), flags);
    let bytes = match got {
        Ok(got) if got.bytes > 0 => got.bytes,
        Ok(_) => return Received::Over,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Over,
    };
    let segment = usize::from(u16::from_le_bytes([header[18], header[19]]));
    let len = bytes.saturating_sub(HEADER);
    let part = |start: usize| Address(std::array::from_fn(|index| header[start + index]));
    if segment == 0 || len == 0 || len > capacity {
        let source = Endpoint::default();
        return Received::Frames(
            Arrival { len: 0, segment: 1, source, fields: None, truncated: false },
            part(20),
        );
    }
    let udp_port = u16::from_le_bytes([header[16], header[17]]);
    let source = Endpoint { address: part(0), udp_port };
    Received::Frames(Arrival { len, segment, source, fields: None, truncated: false }, part(20))
}

/// The program's side of a share, within its port.
#[derive(Debug)]
pub(super) struct Shared {
    endpoint: SharedEndpoint,
    /// Number of packets taken so far of those that the owner handed over.
    taken: u64,
    inbox: Inbox,
    /// The address that the frames in the inbox were sent to; `None` if it is the share's own address.
    destination: Option<Endpoint>,
    over: bool,
    /// Number of frames of other ranges that reached this port. `forwarded` is the number of frames
    /// received over the channel.
    pub(super) strays: u64,
    pub(super) forwarded: u64,
}

impl Shared {
    pub(super) fn new(endpoint: &SharedEndpoint) -> Shared {
        let endpoint = endpoint.clone();
        Shared {
            endpoint,
            taken: 0,
            inbox: Inbox::new(),
            destination: None,
            over: false,
            strays: 0,
            forwarded: 0,
        }
    }

    pub(super) fn range(&self) -> u8 {
        self.endpoint.range
    }

    /// Returns whether the owner has handed over a frame that was not taken, or had a moment ago.
    #[inline]
    pub(super) fn has_forwarded(&self) -> bool {
        !self.inbox.is_empty()
            || !self.over && self.endpoint.page.handed().load(Ordering::Acquire) != self.taken
    }

    /// Hands on frames received over the channel, and returns the number of frames and bytes.
    pub(super) fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> (usize, usize) {
        if self.inbox.is_empty() {
            match receive(&self.endpoint.channel, self.inbox.buffer()) {
                Received::Frames(arrival, address) => {
                    self.taken = self.taken.wrapping_add(1);
                    let own = super::address::endpoint(self.endpoint.local);
                    self.destination = (address != own.address).then_some(Endpoint { address, ..own });
                    self.inbox.arrived(arrival);
                }
                Received::Nothing => return (0, 0),
                Received::Over => {
                    self.over = true;
                    return (0, 0);
                }
            }
        }
        let destination = self.destination;
        let mut take = |frame: Ingress<'_>| take(Ingress { destination, ..frame });
        let (frames, bytes) = self.inbox.hand_on(budget, &mut take);
        self.forwarded += frames as u64;
        (frames, bytes)
    }

    /// Hands a frame of the port's own range on, and passes a frame of another range to the owner of the
    /// address. A frame to a group has arrived on a socket of the group and is always handed on.
    #[inline]
    pub(super) fn sort(&mut self, frame: Ingress<'_>, take: &mut impl FnMut(Ingress<'_>)) {
        if frame.destination.is_some() || range_of(frame.bytes) == self.endpoint.range {
            return take(frame);
        }
        self.strays += 1;
        // A frame for which the channel has no space is lost, as on any network.
        let own = Address::from(self.endpoint.local.ip());
        let _ = send(&self.endpoint.channel, frame.source, own, frame.bytes.len(), frame.bytes);
    }

    /// Returns the descriptor that is readable when the owner hands a frame over.
    pub(super) fn channel(&self) -> BorrowedFd<'_> {
        self.endpoint.channel.as_fd()
    }
}
