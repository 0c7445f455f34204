//! One client's connection: its TLS handshake, its request, and then calls and announcements.

use mio::net::TcpStream;
use remora_verbs::rma::Client;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use zeroize::Zeroizing;

use crate::certificate::Fingerprint;
use crate::message::{self, ClientMessage, GrantReply, GrantRequest, LONGEST_REPLY, LONGEST_REQUEST};

/// The maximum number of bytes that a client may send before it has its grants, handshake included.
const MOST: usize = 32 << 10;

/// The state of a connection.
enum State {
    /// The client has yet to send its request.
    Asks { until: Instant },
    /// The client has its grants and stays connected.
    Follows(Client),
    /// The client has its answer; the server waits for the client to close.
    Leaves { until: Instant },
}

/// The connection's fate after the answer: it stays open, or it ends.
pub(super) enum Answer {
    Follows(Client),
    Leaves,
}

/// The result of processing a connection that became ready.
pub(super) enum Drive {
    Waits,
    Ended,
    Asks(GrantRequest),
    Says(Client, ClientMessage),
}

pub(super) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    tls: ServerConnection,
    state: State,
    came: Zeroizing<Vec<u8>>,
    received: usize,
    /// The maximum length in bytes of a message after the grants; 0 if the client may not send any.
    longest: usize,
    /// True if the client does not read and the send buffer is full.
    deaf: bool,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        config: &Arc<ServerConfig>,
        until: Instant,
        longest: usize,
    ) -> Option<Connection> {
        let mut tls = ServerConnection::new(Arc::clone(config)).ok()?;
        tls.set_buffer_limit(Some(2 * (LONGEST_REPLY + longest)));
        let _ = stream.set_nodelay(true);
        let came = Zeroizing::new(Vec::with_capacity(2 * LONGEST_REQUEST));
        Some(Connection {
            stream,
            peer,
            tls,
            state: State::Asks { until },
            came,
            received: 0,
            longest,
            deaf: false,
        })
    }

    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the time at which the server ends the connection. `None` if the client stays connected.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asks { until } | State::Leaves { until } => Some(until),
            State::Follows(_) => None,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.state, State::Asks { .. })
    }

    /// Returns the client, if it stays connected for announcements.
    pub(super) fn client(&self) -> Option<Client> {
        match self.state {
            State::Follows(client) => Some(client),
            _ => None,
        }
    }

    /// Returns the fingerprint of the client's certificate. The handshake has proved that the client has its
    /// key.
    pub(super) fn certificate(&self) -> Option<Fingerprint> {
        self.tls.peer_certificates()?.first().map(|certificate| Fingerprint::of(certificate))
    }

    /// Reads from the socket, returns the next message if one is complete, and sends buffered data.
    pub(super) fn drive(&mut self) -> Drive {
        loop {
            match self.next() {
                Drive::Waits => {}
                step => return step,
            }
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Drive::Ended,
                Ok(count) => self.received = self.received.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Drive::Ended,
            }
            if self.is_too_much() {
                return Drive::Ended;
            }
            let Ok(state) = self.tls.process_new_packets() else {
                // Sends the TLS alert that states the reason.
                self.flush();
                return Drive::Ended;
            };
            if self.take(state.plaintext_bytes_to_read()).is_none() || state.peer_has_closed() {
                return Drive::Ended;
            }
        }
        if self.flush() { Drive::Waits } else { Drive::Ended }
    }

    /// Returns the next complete message among the received bytes.
    fn next(&mut self) -> Drive {
        let result = match self.state {
            State::Asks { .. } => message::next(&mut self.came, LONGEST_REQUEST, GrantRequest::decode)
                .map(|it| it.map(Drive::Asks)),
            State::Follows(client) if self.longest > 0 => {
                message::next(&mut self.came, self.longest, ClientMessage::decode)
                    .map(|it| it.map(|request| Drive::Says(client, request)))
            }
            // The client may send nothing in this state.
            _ if self.came.is_empty() => Ok(None),
            _ => Err(message::Malformed),
        };
        match result {
            Ok(Some(step)) => step,
            Ok(None) => Drive::Waits,
            Err(message::Malformed) => Drive::Ended,
        }
    }

    /// Returns true if the client has sent more bytes than a handshake and a request can have.
    fn is_too_much(&self) -> bool {
        self.received > MOST && (self.longest == 0 || !self.is_answered())
    }

    /// Takes `count` decrypted bytes. Returns `None` if they are more than a request has.
    fn take(&mut self, count: usize) -> Option<()> {
        let before = self.came.len();
        if !self.is_answered() && before + count > 4 + LONGEST_REQUEST {
            return None;
        }
        self.came.resize(before + count, 0);
        self.tls.reader().read_exact(&mut self.came[before..]).ok()
    }

    pub(super) fn answer(&mut self, reply: &GrantReply, answer: Answer) {
        self.send(reply);
        self.state = match (answer, self.deadline()) {
            (Answer::Follows(client), _) => State::Follows(client),
            (Answer::Leaves, until) => {
                self.tls.send_close_notify();
                State::Leaves { until: until.unwrap_or_else(Instant::now) }
            }
        };
    }

    /// Encrypts a message into the send buffer. If the buffer is full because the client does not read, the
    /// next [`flush`](Connection::flush) reports the end of the connection.
    pub(super) fn send(&mut self, reply: &GrantReply) {
        if self.tls.writer().write_all(&reply.encode()).is_err() {
            self.deaf = true;
        }
    }

    /// Writes the send buffer to the socket. Returns false if the connection is to be ended.
    pub(super) fn flush(&mut self) -> bool {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        !self.deaf && !self.is_too_much()
    }
}
