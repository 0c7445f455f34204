//! The arrival and departure of clients. The serving thread creates a queue pair for a client, and is
//! notified when the client is connected; it never waits for a client.

use std::time::Duration;

use remora_verbs::{
    Answered, ConnectError, ConnectRequest, EMPTY, Handshakes, Init, Listener, QpOptions, QueuePair,
};

use super::joining::Admission;
use super::joining::Joining;
use super::program::Program;
use super::service::{Client, Life, Service};
use crate::post::Later;
use crate::{Error, Result};

/// Maximum number of READs that a connection may have outstanding: a full window of two-READ lookups.
pub const READS: u8 = 128;

/// Maximum time for a client to connect. The client occupies a place meanwhile.
const CONNECTING: Duration = Duration::from_secs(3);
/// Maximum number of clients accepted between two checks of connections.
const TOGETHER: usize = 4;
/// Maximum number of polls for completions that a departed client left.
const LAST_LOOKS: usize = 16;

impl<P: Program> Service<P> {
    /// Accepts clients, and removes departed ones.
    pub(super) fn admit(&mut self, listener: &Listener) -> Result<()> {
        self.part()?;
        while let Some((id, outcome)) = self.admission.handshakes.finished() {
            self.join(id, outcome);
        }
        for _ in 0..TOGETHER {
            if !self.admission.handshakes.has_capacity(Handshakes::HASTE) {
                break;
            }
            let next = match self.admission.waiting.take() {
                Some(waiting) => Some(waiting).filter(|request| !request.has_hung_up()),
                None => None,
            };
            let next = match next {
                Some(waiting) => Some(waiting),
                None => listener.accept(Some(Duration::ZERO))?,
            };
            let Some(request) = next else { break };
            self.admission.waiting = self.begin(request);
            if self.admission.waiting.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Removes the clients whose connections have ended.
    fn part(&mut self) -> Result<()> {
        let ended = self.admission.departures.ended()?;
        if ended.is_empty() {
            return Ok(());
        }
        // Messages that the clients sent before they left are still processed.
        let mut done = [EMPTY; 64];
        for _ in 0..LAST_LOOKS {
            let got = self.cq.poll(&mut done)?;
            self.handle(&done[..got]);
        }
        for number in ended {
            let position = self.clients.iter().position(|client| u64::from(client.pair.number()) == number);
            if let Some(index) = position {
                tracing::info!(qp = number, "a client has left");
                self.end(index);
            }
        }
        Ok(())
    }

    /// Starts to accept a client. Returns the request if it must wait for another client to leave.
    fn begin(&mut self, request: ConnectRequest) -> Option<ConnectRequest> {
        let hello = request.private_data();
        for index in (0..self.clients.len()).rev() {
            if self.program.gives_way(self.clients[index].connection, hello) {
                self.end(index);
            }
        }
        let Admission { handshakes, joining, .. } = &mut self.admission;
        let mut gives_way = false;
        for Joining { id, connection, .. } in joining.iter() {
            if self.program.gives_way(*connection, hello) {
                handshakes.end(*id);
                gives_way = true;
            }
        }
        if gives_way {
            return Some(request);
        }
        let mut later = Later::default();
        let (connection, grant) = match self.program.accept(hello, &mut later) {
            Ok(granted) => granted,
            Err(error) => return self.refuse(request, &error),
        };
        let begun = self
            .pair(&later, grant.clone())
            .and_then(|pair| Ok(self.admission.handshakes.begin(request, pair)?));
        match begun {
            Ok(id) => self.admission.joining.push(Joining { id, connection, grant }),
            Err(error) => {
                tracing::warn!("a client could not be connected: {}", error.chain());
                self.program.abandon(connection, &grant);
            }
        }
        None
    }

    /// Rejects a request, or returns it if a place may become free because a connecting client fails.
    fn refuse(&mut self, request: ConnectRequest, error: &Error) -> Option<ConnectRequest> {
        let Error::Full(full) = error else {
            tracing::warn!("a client could not be connected: {}", error.chain());
            request.reject(&error.to_string());
            return None;
        };
        if self.admission.joining.is_empty() {
            tracing::info!("a client found no place: {full}");
            request.reject_full(*full);
            return None;
        }
        self.admission.handshakes.end_oldest(Handshakes::HASTE);
        Some(request)
    }

    /// Creates a client's queue pair.
    fn pair(&self, later: &Later, private_data: Vec<u8>) -> Result<QueuePair<Init>> {
        let needs = self.program.needs();
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            max_send_sge: needs.sges,
            private_data,
            connect_timeout: CONNECTING,
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            prism: self.extensions.prism,
            strom: self.extensions.strom,
            irn: self.extensions.irn,
            ..QpOptions::default()
        };
        let mut pair = self.memory.domain.create_qp(&self.cq, &self.cq, &options)?;
        later.post(&mut pair)?;
        Ok(pair)
    }

    /// Completes or abandons the connection of a client.
    fn join(&mut self, id: u64, outcome: Result<Answered, ConnectError>) {
        let Some(index) = self.admission.joining.iter().position(|joining| joining.id == id) else { return };
        let Joining { connection, grant, .. } = self.admission.joining.swap_remove(index);
        // From here on the client may send.
        match outcome.and_then(Answered::go) {
            Ok(pair) if self.program.is_brief(connection) => {
                drop(pair);
                self.program.disconnect(connection);
            }
            Ok(pair) => {
                self.admission.watch(&pair);
                self.clients.push(Client { pair, connection, life: Life::Seen, late: None });
            }
            Err(error) => {
                self.program.abandon(connection, &grant);
                match error {
                    ConnectError::Closed(_) | ConnectError::Timeout(_) => {
                        tracing::info!("a client that began to connect is gone: {error}");
                    }
                    error => tracing::warn!("a client could not be connected: {error}"),
                }
            }
        }
    }
}
