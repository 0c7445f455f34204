//! Events of the port, which the broker sends: whether the port is active, and its GIDs.

use remora_host::packet::PacketSocket;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use super::{ClientError, Range, ask_for_socket};
use crate::PortState;
use crate::message::{MAX_PACKET, Reply, Request};

/// Time limit for the first state, which the broker sends before the socket.
const PATIENCE: Duration = Duration::from_secs(1);
/// Changes that are processed in one call of `look`.
const TURN: usize = 64;

/// Events of the port of a program on a shared address. A [`Watch`](super::Watch) receives them.
pub struct PortEvents {
    socket: PacketSocket,
    first: PortState,
    changed: Box<dyn Fn(PortState) + Send + Sync>,
}

impl std::fmt::Debug for PortEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortEvents").field("first", &self.first).finish_non_exhaustive()
    }
}

impl PortEvents {
    /// Subscribes to events of the port. A range can subscribe once.
    ///
    /// # Errors
    /// `Refused` by the broker; `Silent`, `Nonsense`, `System`.
    pub fn open(range: &Range) -> Result<PortEvents, ClientError> {
        let socket = ask_for_socket(range, &Request::PortEvents, &Reply::PortEvents)?;
        socket.set_patience(None, Some(PATIENCE))?;
        let first = receive(&socket)?.ok_or(ClientError::Silent(PATIENCE))?;
        socket.wait_for_nothing()?;
        Ok(PortEvents { socket, first, changed: Box::new(|_| ()) })
    }

    /// The state of the port when the events were opened.
    pub fn first(&self) -> &PortState {
        &self.first
    }

    /// Calls `changed` with the state after each change, on the thread of the [`Watch`](super::Watch).
    #[must_use]
    pub fn on_change(self, changed: impl Fn(PortState) + Send + Sync + 'static) -> PortEvents {
        PortEvents { changed: Box::new(changed), ..self }
    }

    /// A descriptor that becomes readable with the next change.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Processes the changes that have arrived. Returns false if there will be no more.
    pub(super) fn look(&self) -> bool {
        for _ in 0..TURN {
            match receive(&self.socket) {
                Ok(Some(state)) => (self.changed)(state),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Receives the next state. `None` if none has arrived.
fn receive(socket: &PacketSocket) -> Result<Option<PortState>, ClientError> {
    let mut buffer = [0; MAX_PACKET];
    match socket.receive(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error.into()),
        Ok(packet) => match Reply::parse(&buffer[..packet.len]) {
            Some(Reply::Port(state)) if !packet.cut => Ok(Some(state)),
            _ => Err(ClientError::Nonsense),
        },
    }
}
