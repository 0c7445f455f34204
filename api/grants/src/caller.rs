//! The client side of a connection that carries both grants and calls. Only [`Caller::open`] and
//! [`Caller::wait`] block.

use remora_verbs::rma::Client;
use rustls::ClientConnection;
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

use crate::channel::{Announcement, Channel, Credential, Pin, failed};
use crate::message::{self, ClientMessage, GrantReply, LONGEST_REPLY, RegionGrant};
use crate::{Error, Result};

/// A message from a server to a client whose connection stays open.
#[derive(Debug)]
pub enum ServerMessage {
    /// A reply of the server's [`CallHandler`](crate::CallHandler).
    Reply(Vec<u8>),
    /// The announcement of the next key of a region.
    Announced(Announcement),
    /// The grants for all regions under the current keys. The server sends them after
    /// [`renew`](Caller::renew).
    Grants(Vec<RegionGrant>),
}

/// A client's connection to a grant server, on which it exchanges messages with the server's
/// [`CallHandler`](crate::CallHandler) and receives announcements.
pub struct Caller {
    server: SocketAddr,
    tls: ClientConnection,
    stream: TcpStream,
    came: Zeroizing<Vec<u8>>,
    longest: usize,
}

impl Caller {
    /// Connects to a server and returns the connection and the grants that [`Channel::open`] returns. A
    /// message in either direction has at most `longest` bytes.
    ///
    /// # Errors
    /// The errors of [`Channel::open`]; `Full` if the server already has as many staying clients as it takes;
    /// `Io` if the socket cannot be made non-blocking.
    pub fn open(
        pin: Pin,
        credential: &Credential,
        client: &Client,
        timeout: Duration,
        longest: usize,
    ) -> Result<(Caller, Vec<RegionGrant>)> {
        let (channel, grants) = Channel::open(pin, credential, client, timeout)?;
        let (mut tls, stream, came) = channel.into_parts()?;
        stream.set_nonblocking(true)?;
        // No limit, because the caller of this type limits how many messages it has under way.
        tls.set_buffer_limit(None);
        let longest = (longest + 1).max(LONGEST_REPLY);
        Ok((Caller { server: pin.address, tls, stream, came, longest }, grants))
    }

    /// Sends a message to the server's [`CallHandler`](crate::CallHandler). Bytes that the socket does not
    /// take at once stay in the TLS buffer, and later calls of [`try_recv`](Caller::try_recv) send them.
    ///
    /// # Errors
    /// `HungUp`, `Tls` or `Io` if the connection has failed.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.write(&ClientMessage::call(message))
    }

    /// Asks for the grants under the current keys. They arrive as [`ServerMessage::Grants`].
    ///
    /// # Errors
    /// The errors of [`send`](Caller::send).
    pub fn renew(&mut self) -> Result<()> {
        self.write(&ClientMessage::RENEW)
    }

    fn write(&mut self, message: &[u8]) -> Result<()> {
        self.tls.writer().write_all(message).map_err(|error| failed(self.server, error))?;
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(self.server, error)),
            }
        }
        Ok(())
    }

    /// Returns the next message of the server, or `None` if none has arrived.
    ///
    /// # Errors
    /// `HungUp` if the server has closed the connection; `Protocol` if the server sent a malformed message;
    /// `Tls` or `Io` if the connection has failed.
    pub fn try_recv(&mut self) -> Result<Option<ServerMessage>> {
        loop {
            match message::next(&mut self.came, self.longest, GrantReply::decode) {
                Ok(Some(GrantReply::Call(message))) => return Ok(Some(ServerMessage::Reply(message))),
                Ok(Some(GrantReply::Announcement(ahead, granted))) => {
                    return Ok(Some(ServerMessage::Announced(Announcement { ahead, granted })));
                }
                Ok(Some(GrantReply::Grants { grants, .. })) => {
                    return Ok(Some(ServerMessage::Grants(grants)));
                }
                Ok(Some(_)) | Err(message::Malformed) => return Err(Error::Protocol(self.server)),
                Ok(None) => {}
            }
            self.flush()?;
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(Error::HungUp(self.server)),
                Ok(_) => self.open_packets()?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(self.server, error)),
            }
        }
    }

    /// Waits until bytes from the server have arrived, or until the time `until`. It can return early, also
    /// without a message.
    ///
    /// # Errors
    /// `Io` if the socket fails; `HungUp` if the server has reset the connection.
    pub fn wait(&self, until: Instant) -> Result<()> {
        // The kernel cannot wait for less than a millisecond here, and refuses a timeout of zero.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(left))?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(true)?;
        match peeked {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(failed(self.server, error)),
        }
    }

    /// Decrypts the TLS records that have arrived, and appends the plaintext to `came`.
    fn open_packets(&mut self) -> Result<()> {
        let opened = self.tls.process_new_packets();
        let state = opened.map_err(|error| failed(self.server, io::Error::other(error)))?;
        let before = self.came.len();
        let count = state.plaintext_bytes_to_read();
        if self.came.capacity() < before + count {
            // The plaintext contains keys. A vector that reallocates does not clear its old memory;
            // `Zeroizing` does.
            let mut larger = Zeroizing::new(Vec::with_capacity(2 * (before + count)));
            larger.extend_from_slice(&self.came);
            self.came = larger;
        }
        self.came.resize(before + count, 0);
        self.tls.reader().read_exact(&mut self.came[before..]).map_err(|error| failed(self.server, error))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({})", self.server)
    }
}
