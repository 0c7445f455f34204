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

/// A program's connection to the communication manager. When it ends, the broker ends all its ids, and their
/// peers get to know: so it is when the program dies.
///
/// Each method is the call of `rdma_cm` of that name. Its error has the errno of that call: `EINVAL` where
/// the id is none of this program's, or its state does not allow the call.
#[derive(Debug)]
pub struct CmClient {
    socket: PacketSocket,
    /// One request at a time.
    asking: Mutex<()>,
}

impl CmClient {
    /// Connects to the communication manager of an address. Where it has no broker, one is started.
    ///
    /// # Errors
    /// As [`open`](super::open).
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

    /// The connection: it hangs up when the broker is gone.
    pub fn broker(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Is the broker gone?
    pub fn is_over(&self) -> bool {
        super::is_over(&self.socket)
    }

    /// An event channel (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// `EMFILE`: there are as many as there may be, or as many descriptors.
    pub fn create_channel(&self) -> io::Result<EventChannel> {
        let (CmReply::Channel(number), mut descriptors) = self.ask(CmRequest::CreateChannel)? else {
            return Err(Errno::IO.into());
        };
        let socket = descriptors.pop().ok_or(Errno::IO)?;
        Ok(EventChannel { number, socket: socket.into() })
    }

    /// An id of connections (`Tcp`, `Ib`) or of datagrams (`Udp`), whose events come by this channel
    /// (`rdma_create_id`).
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: another port space. `EBADF`: the channel is closed. `ENOMEM`: there are as many ids
    /// as there may be.
    pub fn create_id(&self, channel: &EventChannel, space: PortSpace) -> io::Result<u64> {
        if !matches!(space, PortSpace::Tcp | PortSpace::Udp | PortSpace::Ib) {
            return Err(Errno::PROTONOSUPPORT.into());
        }
        match self.ask(CmRequest::CreateId { channel: channel.number, space })? {
            (CmReply::Id(id), _) => Ok(id),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Binds an id (`rdma_bind_addr`): to one of the broker's addresses, or to all of them (unspecified), and
    /// to a port, or to any that is free (0). `reuses`: others that say so may have the same port, until one
    /// listens. An id that has a port of all addresses keeps it at the one that it is bound to then. Returns
    /// address and port.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`, `EADDRINUSE`; `ENODEV`: the address cannot be shared.
    pub fn bind(&self, id: u64, address: SocketAddr, reuses: bool) -> io::Result<SocketAddr> {
        self.bound(CmRequest::Bind { id, address, reuses })
    }

    /// Listens (`rdma_listen`); an id that is not bound gets a port of every address. Returns where. Requests
    /// are refused while `backlog` others wait, and 0 stands for as many as may be.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn listen(&self, id: u64, backlog: u32) -> io::Result<SocketAddr> {
        self.bound(CmRequest::Listen { id, backlog })
    }

    /// Asks for a connection, or which queue pair a service of datagrams has (`rdma_connect`). The id must be
    /// bound to one address.
    ///
    /// # Errors
    /// `ENETUNREACH`: one address is of IPv4, the other of IPv6.
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

    /// Answers a request for datagrams (`rdma_accept` with `RDMA_PS_UDP`): the queue pair, the Q_Key that
    /// they must carry, and up to 136 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn accept_datagrams(&self, id: u64, qpn: Qpn, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        let private_data = bounded(private_data)?;
        self.done(CmRequest::AcceptDatagrams { id, qpn, qkey, private_data })
    }

    /// Has taken the event of a request: it counts no longer for the listener's backlog, and may be answered
    /// later. A request that is answered at once needs no such call.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn taken(&self, id: u64) -> io::Result<()> {
        self.done(CmRequest::Taken { id })
    }

    /// Refuses a request or a response (`rdma_reject`), with up to 148 bytes of private data, or 136 to one
    /// for datagrams.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn reject(&self, id: u64, private_data: &[u8]) -> io::Result<()> {
        self.done(CmRequest::Reject { id, private_data: bounded(private_data)? })
    }

    /// The active side's queue pair is ready (`rdma_establish`), with up to 224 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn ready_to_use(&self, id: u64, private_data: &[u8]) -> io::Result<()> {
        self.done(CmRequest::Ready { id, private_data: bounded(private_data)? })
    }

    /// Ends a connection, or agrees that it ends (`rdma_disconnect`), with up to 220 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn disconnect(&self, id: u64, private_data: &[u8]) -> io::Result<()> {
        self.done(CmRequest::Disconnect { id, private_data: bounded(private_data)? })
    }

    /// The passive side's queue pair received something before the peer said that it is ready
    /// (`rdma_notify` of `IBV_EVENT_COMM_EST`).
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn establish(&self, id: u64) -> io::Result<()> {
        self.done(CmRequest::Establish { id })
    }

    /// Ends an id in any state (`rdma_destroy_id`). No event of it is sent afterwards; those in the channel's
    /// socket stay for the program to read.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn destroy(&self, id: u64) -> io::Result<()> {
        self.done(CmRequest::Destroy { id })
    }

    /// The id's events come by another channel from now on (`rdma_migrate_id`). Those in the old
    /// channel's socket stay there for the program to read.
    ///
    /// # Errors
    /// `EBADF`: the channel is closed.
    pub fn migrate(&self, id: u64, channel: &EventChannel) -> io::Result<()> {
        self.done(CmRequest::Migrate { id, channel: channel.number })
    }

    /// Puts an event of the program's own into the id's channel, behind those that are there.
    ///
    /// # Errors
    /// `EINVAL`; `EBADF`: the channel is closed.
    pub fn post(&self, id: u64, posted: Posted) -> io::Result<()> {
        self.done(CmRequest::Post { id, posted })
    }

    /// What the id's queue pair needs to send and receive, once the peer has been heard
    /// (`rdma_init_qp_attr`).
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

/// Private data that fit any message; how long they may be follows from the message.
fn bounded(private_data: &[u8]) -> io::Result<Vec<u8>> {
    let fits = private_data.len() <= crate::message::MAX_PRIVATE;
    if fits { Ok(private_data.to_vec()) } else { Err(Errno::INVAL.into()) }
}

/// An event channel. Its descriptor is a socket to the broker: it is readable while there is an event, and
/// hangs up when the broker is gone. `O_NONBLOCK` is the program's to set.
#[derive(Debug)]
pub struct EventChannel {
    number: u32,
    socket: PacketSocket,
}

impl EventChannel {
    /// Waits for the next event.
    ///
    /// # Errors
    /// `EAGAIN` where the descriptor does not wait; `EPIPE`: the broker is gone, or has hung up because too
    /// many events were left unread.
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
