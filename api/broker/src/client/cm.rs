//! The program's side of the communication manager: ids that connect, and the channels of their events.
//!
//! ```no_run
//! use remora_broker::client::{CmClient, Options};
//! use remora_broker::PortSpace;
//!
//! let manager = CmClient::open("127.0.0.1:0".parse()?, &Options::default())?;
//! let channel = manager.create_channel()?;
//! let listener = manager.create_id(&channel, PortSpace::Tcp)?;
//! manager.bind(listener, "127.0.0.1:7174".parse()?, false)?;
//! manager.listen(listener, 8)?;
//! println!("{:?}", channel.next_event()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use remora_cm::{ConnParam, QpAttributes};
use remora_host::packet::PacketSocket;
use remora_wire::Qpn;
use remora_wire::mad::PortSpace;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use super::{ClientError, Options, ask, reach};
use crate::message::{CmReply, CmRequest, Connect, IdEvent, MAX_PACKET, Posted, Reply, Request, VERSION};
use crate::name;

/// A program's connection to the communication manager. When it ends, also because the program dies, the
/// broker destroys all ids of the program and notifies their peers.
///
/// Each method stands for the call of `rdma_cm` that its documentation names. An error has the errno of that
/// call: `EINVAL` if the id does not belong to this program, or if its state does not allow the call.
#[derive(Debug)]
pub struct CmClient {
    socket: PacketSocket,
    /// Held during a request, so that there is one at a time.
    asking: Mutex<()>,
}

impl CmClient {
    /// Connects to the communication manager of an address. If the address has no broker, one is started.
    ///
    /// # Errors
    /// The errors of [`open`](super::open).
    pub fn open(address: SocketAddr, options: &Options) -> Result<CmClient, ClientError> {
        let request = Request::OpenCm { version: VERSION };
        match reach(name::standard(address), options, &request)? {
            (socket, (Reply::Cm(CmReply::Opened), _)) => Ok(CmClient { socket, asking: Mutex::default() }),
            _ => Err(ClientError::Nonsense),
        }
    }

    fn ask(&self, request: CmRequest) -> io::Result<(CmReply, Vec<OwnedFd>)> {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        match ask(&self.socket, &Request::Cm(request)) {
            Ok((Reply::Cm(CmReply::Failed(errno)), _)) => Err(io::Error::from_raw_os_error(errno.into())),
            Ok((Reply::Cm(reply), descriptors)) => Ok((reply, descriptors)),
            Err(ClientError::System(error)) => Err(error),
            Ok(_) | Err(_) => Err(Errno::IO.into()),
        }
    }

    fn done(&self, request: CmRequest) -> io::Result<()> {
        match self.ask(request)? {
            (CmReply::Done, _) => Ok(()),
            _ => Err(Errno::IO.into()),
        }
    }

    fn bound(&self, request: CmRequest) -> io::Result<SocketAddr> {
        match self.ask(request)? {
            (CmReply::Bound(address), _) => Ok(address),
            _ => Err(Errno::IO.into()),
        }
    }

    /// The descriptor of the connection, which hangs up when the broker is gone.
    pub fn broker(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether the broker is gone.
    pub fn is_over(&self) -> bool {
        super::is_over(&self.socket)
    }

    /// Creates an event channel (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// `EMFILE` if there are as many channels or descriptors as are allowed.
    pub fn create_channel(&self) -> io::Result<EventChannel> {
        let (CmReply::Channel(number), mut descriptors) = self.ask(CmRequest::CreateChannel)? else {
            return Err(Errno::IO.into());
        };
        let socket = descriptors.pop().ok_or(Errno::IO)?;
        Ok(EventChannel { number, socket: socket.into() })
    }

    /// Creates an id of connections (`Tcp`, `Ib`) or of datagrams (`Udp`), whose events come by this channel
    /// (`rdma_create_id`).
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` for another port space; `EBADF` if the channel is closed; `ENOMEM` if there are as
    /// many ids as are allowed.
    pub fn create_id(&self, channel: &EventChannel, space: PortSpace) -> io::Result<u64> {
        if !matches!(space, PortSpace::Tcp | PortSpace::Udp | PortSpace::Ib) {
            return Err(Errno::PROTONOSUPPORT.into());
        }
        match self.ask(CmRequest::CreateId { channel: channel.number, space })? {
            (CmReply::Id(id), _) => Ok(id),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Binds an id to an address and a port (`rdma_bind_addr`), and returns both. The address is one of the
    /// broker's, or unspecified for all of them. Port 0 takes a free port. With `reuses`, other ids that
    /// reuse may have the same port, until one of them listens. An id that has a port of all addresses keeps
    /// the port when it is bound to one address.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`, `EADDRINUSE`; `ENODEV` if the address cannot be shared.
    pub fn bind(&self, id: u64, address: SocketAddr, reuses: bool) -> io::Result<SocketAddr> {
        self.bound(CmRequest::Bind { id, address, reuses })
    }

    /// Makes an id listen (`rdma_listen`), and returns its address and port. An id that is not bound gets a
    /// port of every address. Requests are refused while `backlog` others wait; 0 stands for the maximum.
    ///
    /// # Errors
    /// `EADDRINUSE` if another id listens there.
    pub fn listen(&self, id: u64, backlog: u32) -> io::Result<SocketAddr> {
        self.bound(CmRequest::Listen { id, backlog })
    }

    /// Requests a connection, or the queue pair of a datagram service (`rdma_connect`). The id must be bound
    /// to one address.
    ///
    /// # Errors
    /// `ENETUNREACH` if one address is IPv4 and the other IPv6.
    pub fn connect(&self, id: u64, connect: Connect) -> io::Result<()> {
        self.done(CmRequest::Connect { id, connect: Box::new(connect) })
    }

    /// Accepts a request (`rdma_accept` on the passive side), with up to 196 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn accept(&self, id: u64, param: &ConnParam, private_data: &[u8]) -> io::Result<()> {
        let private_data = bounded(private_data)?;
        self.done(CmRequest::Accept { id, param: *param, private_data })
    }

    /// Answers a request for datagrams (`rdma_accept` with `RDMA_PS_UDP`) with the queue pair, the Q_Key that
    /// datagrams to it must have, and up to 136 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn accept_datagrams(&self, id: u64, qpn: Qpn, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        let private_data = bounded(private_data)?;
        self.done(CmRequest::AcceptDatagrams { id, qpn, qkey, private_data })
    }

    /// Reports that the program has taken the event of a request and will answer later. The request no longer
    /// counts for the listener's backlog. Not needed for a request that is answered at once.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn taken(&self, id: u64) -> io::Result<()> {
        self.done(CmRequest::Taken { id })
    }

    /// Refuses a request or a response (`rdma_reject`), with up to 148 bytes of private data, or 136 for
    /// datagrams.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn reject(&self, id: u64, private_data: &[u8]) -> io::Result<()> {
        self.done(CmRequest::Reject { id, private_data: bounded(private_data)? })
    }

    /// Reports that the active side's queue pair is ready (`rdma_establish`), with up to 224 bytes of private
    /// data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn ready_to_use(&self, id: u64, private_data: &[u8]) -> io::Result<()> {
        self.done(CmRequest::Ready { id, private_data: bounded(private_data)? })
    }

    /// Ends a connection, or confirms its end (`rdma_disconnect`), with up to 220 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn disconnect(&self, id: u64, private_data: &[u8]) -> io::Result<()> {
        self.done(CmRequest::Disconnect { id, private_data: bounded(private_data)? })
    }

    /// Reports that the passive side's queue pair received a message before the peer reported to be ready
    /// (`rdma_notify` of `IBV_EVENT_COMM_EST`).
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn establish(&self, id: u64) -> io::Result<()> {
        self.done(CmRequest::Establish { id })
    }

    /// Destroys an id in any state (`rdma_destroy_id`). No event of the id is sent afterwards; those in the
    /// channel's socket can still be read.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn destroy(&self, id: u64) -> io::Result<()> {
        self.done(CmRequest::Destroy { id })
    }

    /// Moves an id to another channel (`rdma_migrate_id`). Events in the old channel's socket can still be
    /// read there.
    ///
    /// # Errors
    /// `EBADF` if the channel is closed.
    pub fn migrate(&self, id: u64, channel: &EventChannel) -> io::Result<()> {
        self.done(CmRequest::Migrate { id, channel: channel.number })
    }

    /// Puts an event of the program's own into the id's channel, after those that are there.
    ///
    /// # Errors
    /// `EINVAL`; `EBADF` if the channel is closed.
    pub fn post(&self, id: u64, posted: Posted) -> io::Result<()> {
        self.done(CmRequest::Post { id, posted })
    }

    /// Returns the attributes that the id's queue pair needs to receive and to send, once the peer has
    /// answered (`rdma_init_qp_attr`).
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn qp_attributes(&self, id: u64) -> io::Result<QpAttributes> {
        match self.ask(CmRequest::QpAttributes { id })? {
            (CmReply::QpAttributes(attributes), _) => Ok(attributes),
            _ => Err(Errno::IO.into()),
        }
    }
}

/// Copies private data that fit into at least one kind of message. The broker checks the limit of the actual
/// message.
fn bounded(private_data: &[u8]) -> io::Result<Vec<u8>> {
    let fits = private_data.len() <= crate::message::MAX_PRIVATE;
    if fits { Ok(private_data.to_vec()) } else { Err(Errno::INVAL.into()) }
}

/// An event channel. Its descriptor is a socket to the broker, readable while there is an event, which hangs
/// up when the broker is gone. The program may set `O_NONBLOCK`.
#[derive(Debug)]
pub struct EventChannel {
    number: u32,
    socket: PacketSocket,
}

impl EventChannel {
    /// Waits for the next event.
    ///
    /// # Errors
    /// `EAGAIN` if the descriptor is non-blocking and there is no event; `EPIPE` if the broker is gone, or
    /// has hung up because too many events were unread.
    pub fn next_event(&self) -> io::Result<IdEvent> {
        let mut buffer = [0; MAX_PACKET];
        let packet = self.socket.receive(&mut buffer)?;
        if packet.len == 0 {
            return Err(Errno::PIPE.into());
        }
        IdEvent::parse(&buffer[..packet.len]).filter(|_| !packet.cut).ok_or_else(|| Errno::IO.into())
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
