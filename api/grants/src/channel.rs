//! The client side of the connection that fetches grants and receives announcements.

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

/// The address of a server and the fingerprint of the certificate that it must present.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The server's TCP address.
    pub address: SocketAddr,
    /// The fingerprint of the server's certificate.
    pub fingerprint: Fingerprint,
}

/// The proof by which a server admits a client.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The token of the server.
    Token(Token),
    /// A certificate whose fingerprint the server has in its list of clients.
    Certificate(Certificate),
}

/// The announcement of the next key of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The time until the new key takes effect.
    pub ahead: Duration,
    /// The grant under the new key.
    pub granted: RegionGrant,
}

/// A client's connection to a grant server. It has fetched the grants, and receives announcements of new
/// keys.
pub struct Channel {
    server: SocketAddr,
    stream: StreamOwned<ClientConnection, Timed>,
    came: Zeroizing<Vec<u8>>,
    /// True while the server keeps the connection open for announcements.
    follows: bool,
}

/// A TCP stream whose reads and writes share one deadline.
struct Timed {
    inner: TcpStream,
    until: Instant,
}

/// The shortest socket timeout in use. A timeout of zero is not allowed.
const SHORTEST: Duration = Duration::from_micros(100);

impl Timed {
    fn left(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now()).max(SHORTEST))
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.set_read_timeout(self.left())?;
        self.inner.read(buffer)
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
    /// Connects from the address of `client` to a server and fetches the client's grants. The connection and
    /// the answer together may take `timeout`.
    ///
    /// # Errors
    /// `NoServer`, `NoWay`, `NotTls`, `Fingerprint`, `Silent`, `HungUp`, `Tls` or `Io` if no connection comes
    /// up; `NotAdmitted` or `Translated` if the server refuses the client; `Protocol` if its answer is
    /// malformed.
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

    /// Waits up to `timeout` for the next announcement. Returns `None` if none arrives in that time.
    ///
    /// # Errors
    /// `HungUp` if the server does not send announcements on this connection, or has closed it; `Protocol`,
    /// `Tls` or `Io` if the connection has failed.
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

    /// Splits the channel into its parts: the TLS state, the TCP stream, and the received bytes that no
    /// message has used yet.
    ///
    /// # Errors
    /// `Full` if the server does not keep the connection open, because it has no place for another client.
    pub(crate) fn into_parts(self) -> Result<(ClientConnection, TcpStream, Zeroizing<Vec<u8>>)> {
        if !self.follows {
            return Err(Error::Full(self.server));
        }
        let (tls, stream) = self.stream.into_parts();
        Ok((tls, stream.inner, self.came))
    }

    /// Returns true if the server had kept the connection open and has closed it since.
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

    /// Appends received bytes to `came`. The old buffer of a growing vector is not cleared and would leave
    /// keys in memory, so this function copies into a larger `Zeroizing` buffer.
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

/// Converts an I/O error of the connection into the error that names its cause.
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

/// Connects over TCP from the NIC's address, because the server compares the connection's source address
/// with the NIC's.
fn connect(server: SocketAddr, nic: IpAddr, timeout: Duration) -> Result<TcpStream> {
    let server = scoped(SocketAddr::new(server.ip().to_canonical(), server.port()), server);
    let nic = nic.to_canonical();
    let source = scoped(SocketAddr::new(nic, 0), server);
    let no_way = |cause| Error::NoWay { nic, server, cause };
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    if server.is_ipv4() != nic.is_ipv4() {
        return Err(no_way(io::Error::other("one is IPv4, the other IPv6")));
    }
    socket.bind(&source.into()).map_err(no_way)?;
    socket.connect_timeout(&server.into(), timeout).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => Error::NoServer(server),
        ErrorKind::TimedOut => Error::Silent(server),
        _ => no_way(error),
    })?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Returns the address `own`. If it is an IPv6 link-local address, it gets the scope (interface) of
/// `peer`.
fn scoped(own: SocketAddr, peer: SocketAddr) -> SocketAddr {
    match (own, peer) {
        (SocketAddr::V6(own), SocketAddr::V6(peer)) if own.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*own.ip(), own.port(), 0, peer.scope_id()).into()
        }
        _ => own,
    }
}
