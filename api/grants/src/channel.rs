//! The client's side of the channel.

use remora_verbs::rma::Client;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConnection, StreamOwned};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

use crate::certificate::{Certificate, Fingerprint, NAME, Token};
use crate::message::{self, GrantReply, GrantRequest, LONGEST_REPLY, RegionGrant};
use crate::{Error, Result, tls};

/// A server, by its address and the fingerprint of its certificate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its TCP address.
    pub address: SocketAddr,
    /// Of its certificate.
    pub fingerprint: Fingerprint,
}

/// What admits a client.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The server's token.
    Token(Token),
    /// A certificate whose fingerprint the server lists.
    Certificate(Certificate),
}

/// A region will have another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// After so long.
    pub ahead: Duration,
    /// The grant that will be good then.
    pub granted: RegionGrant,
}

/// A connection to a server that gave its grants, and tells of new keys.
pub struct Channel {
    server: SocketAddr,
    stream: StreamOwned<ClientConnection, Timed>,
    came: Zeroizing<Vec<u8>>,
    /// Announcements may come.
    follows: bool,
}

/// A TCP connection whose calls all end at one time.
struct Timed {
    inner: TcpStream,
    until: Instant,
}

/// The shortest time that the system can wait.
const SHORTEST: Duration = Duration::from_micros(100);

impl Timed {
    fn left(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now()).max(SHORTEST))
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.set_read_timeout(self.left())?;
        self.inner.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.set_write_timeout(self.left())?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Channel {
    /// Connects from the client's own address, and asks for its grants, within `timeout`.
    ///
    /// # Errors
    /// Each [`Error`] that has the server's address.
    pub fn open(
        pin: Pin,
        credential: &Credential,
        client: &Client,
        timeout: Duration,
    ) -> Result<(Channel, Vec<RegionGrant>)> {
        let Pin { address: server, fingerprint } = pin;
        let until = Instant::now() + timeout;
        let own = match credential {
            Credential::Token(_) => None,
            Credential::Certificate(own) => Some(own),
        };
        let config = tls::client(fingerprint, own).map_err(|error| Error::Tls(server, error))?;
        let name = ServerName::try_from(NAME).map_err(|_| Error::Protocol(server))?;
        let connection = ClientConnection::new(config, name).map_err(|error| Error::Tls(server, error))?;
        let inner = connect(server, client.address.into(), timeout)?;
        let stream = StreamOwned::new(connection, Timed { inner, until });
        let mut channel = Channel { server, stream, came: Zeroizing::default(), follows: true };
        let grants = channel.ask(credential, client)?;
        Ok((channel, grants))
    }

    fn ask(&mut self, credential: &Credential, client: &Client) -> Result<Vec<RegionGrant>> {
        let token = match credential {
            Credential::Token(token) => token.bytes().to_vec(),
            Credential::Certificate(_) => Vec::new(),
        };
        let request = GrantRequest { client: *client, follow: true, token: Zeroizing::new(token) };
        let sent = self.stream.write_all(&request.encode()).and_then(|()| self.stream.flush());
        sent.map_err(|error| self.failed(error))?;
        match self.receive()? {
            GrantReply::Grants { follows, grants } => {
                self.follows = follows;
                Ok(grants)
            }
            GrantReply::NotAdmitted => {
                let certificate = match credential {
                    Credential::Certificate(own) => Some(own.fingerprint().to_string()),
                    Credential::Token(_) => None,
                };
                Err(Error::NotAdmitted { server: self.server, certificate })
            }
            GrantReply::Translated(seen) => Err(Error::Translated { nic: client.address, seen }),
            GrantReply::Announcement(..) | GrantReply::Call(_) => Err(Error::Protocol(self.server)),
        }
    }

    /// The next announcement, if one comes within `timeout`.
    ///
    /// # Errors
    /// `HungUp`: none will come; `Protocol`, `Tls`.
    pub fn announcement(&mut self, timeout: Duration) -> Result<Option<Announcement>> {
        if !self.follows {
            return Err(Error::HungUp(self.server));
        }
        self.stream.sock.until = Instant::now() + timeout;
        match self.receive() {
            Ok(GrantReply::Announcement(ahead, granted)) => Ok(Some(Announcement { ahead, granted })),
            Ok(_) => Err(Error::Protocol(self.server)),
            Err(Error::Silent(_)) => Ok(None),
            Err(error) => {
                self.follows = false;
                Err(error)
            }
        }
    }

    /// The connection itself: TLS, TCP, and what came and was not taken yet.
    ///
    /// # Errors
    /// `Full`: the server has no place for a client that stays.
    pub(crate) fn into_parts(self) -> Result<(ClientConnection, TcpStream, Zeroizing<Vec<u8>>)> {
        if !self.follows {
            return Err(Error::Full(self.server));
        }
        let (tls, stream) = self.stream.into_parts();
        Ok((tls, stream.inner, self.came))
    }

    /// Has the server ended a connection that it left open?
    pub(crate) fn has_ended(&mut self) -> bool {
        self.follows && self.announcement(Duration::ZERO).is_err()
    }

    fn receive(&mut self) -> Result<GrantReply> {
        let mut piece = Zeroizing::new([0; 4096]);
        loop {
            match message::next(&mut self.came, LONGEST_REPLY, GrantReply::decode) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(message::Malformed) => return Err(Error::Protocol(self.server)),
            }
            match self.stream.read(&mut piece[..]) {
                Ok(0) => return Err(Error::HungUp(self.server)),
                Ok(count) => self.put(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Keeps what came. A vector that grows would leave keys behind.
    fn put(&mut self, piece: &[u8]) {
        if self.came.capacity() - self.came.len() < piece.len() {
            let mut larger = Zeroizing::new(Vec::with_capacity(2 * (self.came.len() + piece.len())));
            larger.extend_from_slice(&self.came);
            self.came = larger;
        }
        self.came.extend_from_slice(piece);
    }

    fn failed(&self, error: io::Error) -> Error {
        failed(self.server, error)
    }
}

/// What an error of the connection means.
pub(crate) fn failed(server: SocketAddr, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => return Error::Silent(server),
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => {
            return Error::HungUp(server);
        }
        _ => {}
    }
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            Error::Fingerprint(server)
        }
        Some(
            rustls::Error::InvalidMessage(_)
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion),
        ) => Error::NotTls(server),
        Some(other) => Error::Tls(server, other.clone()),
        None => Error::Io(error),
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.server)
    }
}

/// A TCP connection that leaves from the NIC's address: the server compares the two.
fn connect(server: SocketAddr, nic: IpAddr, timeout: Duration) -> Result<TcpStream> {
    let server = scoped(SocketAddr::new(server.ip().to_canonical(), server.port()), server);
    let nic = nic.to_canonical();
    let from = scoped(SocketAddr::new(nic, 0), server);
    let no_way = |cause| Error::NoWay { nic, server, cause };
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    if server.is_ipv4() != nic.is_ipv4() {
        return Err(no_way(io::Error::other("one is IPv4, the other IPv6")));
    }
    socket.bind(&from.into()).map_err(no_way)?;
    socket.connect_timeout(&server.into(), timeout).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => Error::NoServer(server),
        ErrorKind::TimedOut => Error::Silent(server),
        _ => no_way(error),
    })?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// The address with the interface of another one, if it is link-local.
fn scoped(own: SocketAddr, of: SocketAddr) -> SocketAddr {
    match (own, of) {
        (SocketAddr::V6(own), SocketAddr::V6(of)) if own.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*own.ip(), own.port(), 0, of.scope_id()).into()
        }
        _ => own,
    }
}
