//! The clients that are connecting, and the watch of connected ones.

use remora_verbs::{ConnectRequest, Departures, Handshakes, Listener, QueuePair, Ready};
use std::os::fd::{AsFd, BorrowedFd};

use super::program::Program;
use crate::Result;

/// A client whose connection is being set up.
pub(super) struct Joining<C> {
    pub(super) id: u64,
    pub(super) connection: C,
    /// The grant that was sent to the client.
    pub(super) grant: Vec<u8>,
}

/// The clients that are connecting, and the watch of connected ones.
pub(crate) struct Admission<C> {
    pub(super) handshakes: Handshakes,
    pub(super) joining: Vec<Joining<C>>,
    /// A request for which there may be a place if one of the connecting clients fails.
    pub(super) waiting: Option<ConnectRequest>,
    pub(super) departures: Departures,
}

impl<C: Copy> Admission<C> {
    /// Returns an admission without clients.
    ///
    /// # Errors
    /// The system has no free file descriptor.
    pub(crate) fn new() -> Result<Admission<C>> {
        let handshakes = Handshakes::new()?;
        let departures = Departures::new()?;
        Ok(Admission { handshakes, joining: Vec::new(), waiting: None, departures })
    }

    /// Returns the file descriptors that become readable when a client has connected, when one has left, and
    /// when one arrives, if it can be accepted.
    pub(crate) fn descriptors<'a>(&'a self, listener: &'a Listener) -> Vec<BorrowedFd<'a>> {
        let mut all = vec![self.handshakes.as_fd(), self.departures.as_fd()];
        if self.waiting.is_none() && self.handshakes.len() < Handshakes::MOST {
            all.push(listener.as_fd());
        }
        all
    }

    /// Watches a connected client, identified by its queue pair.
    pub(crate) fn watch(&self, pair: &QueuePair<Ready>) {
        // Without the watch, a departure is detected by probing the client's NIC.
        if let Some(connection) = pair.connection()
            && let Err(error) = self.departures.add(connection, pair.number().into())
        {
            tracing::warn!(%error, "a client's connection is not watched");
        }
    }

    /// Ends the watch of a queue pair that is about to be destroyed.
    pub(crate) fn forget(&self, pair: &QueuePair<Ready>) {
        if let Some(connection) = pair.connection() {
            self.departures.remove(connection);
        }
    }

    /// Ends connection attempts of clients that the program wants ended.
    pub(crate) fn end_over<P: Program<Connection = C>>(&mut self, program: &P) {
        for Joining { id, connection, .. } in &self.joining {
            if program.is_over(*connection) {
                self.handshakes.end(*id);
            }
        }
    }
}
