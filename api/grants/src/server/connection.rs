//! One client's connection: its hand-shake, its question, and then the announcements to it.

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

/// Bytes that a client may send before it has its grants, hand-shake included.
const MOST: usize = 32 << 10;

/// What a connection waits for.
enum State {
    /// The client's question.
    Asks { until: Instant },
    /// Announcements.
    Follows(Client),
    /// The client's end.
    Leaves { until: Instant },
}

/// What happens to the client after its answer.
pub(super) enum Answer {
    Follows(Client),
    Leaves,
}

/// What became of a connection that is ready.
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
    /// Bytes of a message once it has its grants; 0: there may be none.
    longest: usize,
    /// It reads nothing.
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

    /// When it is ended; one that follows stays.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asks { until } | State::Leaves { until } => Some(until),
            State::Follows(_) => None,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.state, State::Asks { .. })
    }

    /// Who it is, if announcements go to it.
    pub(super) fn client(&self) -> Option<Client> {
        match self.state {
            State::Follows(client) => Some(client),
            _ => None,
        }
    }

    /// That of the certificate which the client has shown, and whose key it has.
    pub(super) fn certificate(&self) -> Option<Fingerprint> {
        self.tls.peer_certificates()?.first().map(|certificate| Fingerprint::of(certificate))
    }

    /// Takes a message of what came, and sends what waits.
    pub(super) fn drive(&mut self) -> Drive {
        loop {
            match self.next() {
                Drive::Waits => {}
                found => return found,
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
                // The alert that says why.
                self.flush();
                return Drive::Ended;
            };
            if self.take(state.plaintext_bytes_to_read()).is_none() || state.peer_has_closed() {
                return Drive::Ended;
            }
        }
        if self.flush() { Drive::Waits } else { Drive::Ended }
    }

    /// The next message of what came.
    fn next(&mut self) -> Drive {
        let found = match self.state {
            State::Asks { .. } => message::next(&mut self.came, LONGEST_REQUEST, GrantRequest::decode)
                .map(|it| it.map(Drive::Asks)),
            State::Follows(client) if self.longest > 0 => {
                message::next(&mut self.came, self.longest, ClientMessage::decode)
                    .map(|it| it.map(|request| Drive::Says(client, request)))
            }
            // Nothing more may come.
            _ if self.came.is_empty() => Ok(None),
            _ => Err(message::Malformed),
        };
        match found {
            Ok(Some(found)) => found,
            Ok(None) => Drive::Waits,
            Err(message::Malformed) => Drive::Ended,
        }
    }

    /// Did it send more than a question has?
    fn is_too_much(&self) -> bool {
        self.received > MOST && (self.longest == 0 || !self.is_answered())
    }

    /// Takes so many opened bytes. None: they are more than a question has.
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

    /// Seals a message. One that reads nothing is ended by the next [`flush`](Connection::flush).
    pub(super) fn send(&mut self, reply: &GrantReply) {
        if self.tls.writer().write_all(&reply.encode()).is_err() {
            self.deaf = true;
        }
    }

    /// Sends what is sealed. False: the connection is at its end.
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
