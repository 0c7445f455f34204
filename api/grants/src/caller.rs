//! A client's calls over the connection that gave it its grants. Nothing here waits.

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

/// What a server says to a client that stays.
#[derive(Debug)]
pub enum ServerMessage {
    /// The program above answers.
    Reply(Vec<u8>),
    /// A region will have another key.
    Announced(Announcement),
    /// All grants under the present keys: [`renew`](Caller::renew) was called.
    Grants(Vec<RegionGrant>),
}

/// A client's connection for calls and grants.
pub struct Caller {
    server: SocketAddr,
    tls: ClientConnection,
    stream: TcpStream,
    came: Zeroizing<Vec<u8>>,
    longest: usize,
}

impl Caller {
    /// Connects, and gets the grants, as [`Channel::open`] does; messages have at most `longest` bytes.
    ///
    /// # Errors
    /// As there; `Full`: the server has no place for a client that stays; `Io`.
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
        // The program above has so many messages under way as it allows itself.
        tls.set_buffer_limit(None);
        let longest = (longest + 1).max(LONGEST_REPLY);
        Ok((Caller { server: pin.address, tls, stream, came, longest }, grants))
    }

    /// Sends a message to the program above. What the system does not take now leaves with later calls of
    /// [`try_recv`](Caller::try_recv).
    ///
    /// # Errors
    /// `HungUp`, `Tls`, `Io`.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.write(&ClientMessage::call(message))
    }

    /// Asks for the grants under the present keys.
    ///
    /// # Errors
    /// As [`send`](Caller::send).
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

    /// What the server said next, if there is something.
    ///
    /// # Errors
    /// `HungUp`, `Protocol`, `Tls`, `Io`.
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

    /// Waits until the server may have said something, or until then.
    ///
    /// # Errors
    /// `Io`.
    pub fn wait(&self, until: Instant) -> Result<()> {
        // The shortest time that the system can wait.
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

    /// Opens what came, and keeps it.
    fn open_packets(&mut self) -> Result<()> {
        let opened = self.tls.process_new_packets();
        let state = opened.map_err(|error| failed(self.server, io::Error::other(error)))?;
        let (before, count) = (self.came.len(), state.plaintext_bytes_to_read());
        if self.came.capacity() < before + count {
            // A vector that grows by itself leaves keys behind.
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
