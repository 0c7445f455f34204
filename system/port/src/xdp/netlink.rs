//! Requests to the kernel about its network (rtnetlink): one request and its answers.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use super::rtnetlink::Message;

/// The kind of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Get one object, which may not exist.
    One,
    /// Returns all objects of a kind.
    All,
    /// Creates an object. The answer only reports success or failure.
    Make,
}

/// A netlink socket of the route family, in the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    number: u32,
    buffer: Vec<u8>,
}

/// Size in bytes of the longest batch of answers that the kernel sends at once.
const BATCH: usize = 32 << 10;

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Netlink {
    /// Opens the socket, which listens to `groups`. With groups it never blocks.
    ///
    /// # Errors
    /// The errno of the system call that failed.
    pub(super) fn open(groups: &[u32]) -> Result<Netlink, Errno> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            for group in groups {
                socket.add_membership(*group)?;
            }
            socket.set_non_blocking(!groups.is_empty())?;
            Ok(Netlink { socket, number: 0, buffer: vec![0; BATCH] })
        };
        open().map_err(|error: std::io::Error| errno(&error))
    }

    /// Sends a request, and passes each answer to `each`.
    ///
    /// # Errors
    /// The kernel's own answer (`NOENT`: no such object), or the errno of the system call that failed.
    pub(super) fn ask(
        &mut self,
        question: Message,
        ask: Ask,
        mut each: impl FnMut(Message),
    ) -> Result<(), Errno> {
        self.number = self.number.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.number;
        header.flags = NLM_F_REQUEST
            | match ask {
                Ask::One => 0,
                Ask::All => NLM_F_DUMP,
                Ask::Make => NLM_F_ACK | NLM_F_CREATE,
            };
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map_err(|error| errno(&error))?;
        loop {
            let mut space = &mut self.buffer[..];
            let len = self.socket.recv(&mut space, 0).map_err(|error| errno(&error))?;
            let mut rest = self.buffer.get(..len).ok_or(Errno::MSGSIZE)?;
            while let Some((answer, after)) = next(rest)? {
                rest = after;
                if answer.header.sequence_number != self.number {
                    // A late answer to an earlier request that was given up.
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => {
                        each(inner);
                        if ask == Ask::One {
                            return Ok(());
                        }
                    }
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(Errno::from_raw_os_error(error.raw_code().saturating_neg()));
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(()),
                    _ => {}
                }
            }
        }
    }

    /// Passes the kernel's notifications to `each`. Fails with `NOBUFS` if some were lost.
    pub(super) fn listen(&mut self, mut each: impl FnMut(Message)) -> Result<(), Errno> {
        loop {
            let mut space = &mut self.buffer[..];
            let len = match self.socket.recv(&mut space, 0) {
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(errno(&error)),
            };
            let mut rest = self.buffer.get(..len).ok_or(Errno::NOBUFS)?;
            while let Some((message, after)) = next(rest)? {
                rest = after;
                if let NetlinkPayload::InnerMessage(inner) = message.payload {
                    each(inner);
                }
            }
        }
    }
}

/// A message with its netlink header.
type Framed = NetlinkMessage<Message>;

/// Returns the first message of `bytes`, and the bytes after it.
fn next(bytes: &[u8]) -> Result<Option<(Framed, &[u8])>, Errno> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let message = Framed::deserialize(bytes).map_err(|_| Errno::BADMSG)?;
    // Messages begin at multiples of four bytes.
    let len = (message.header.length as usize).next_multiple_of(4).max(4);
    Ok(Some((message, bytes.get(len..).unwrap_or(&[]))))
}
