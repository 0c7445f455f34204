//! Servers with a chain for each client, which accept clients without blocking.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use remora_chain::assemble;
use remora_chain::offload::shipped;
use remora_verbs::{
    Answered, Call, ConnectRequest, Handshakes, Listener, MemoryRegion, Offload, ProtectionDomain, QpOptions,
    QueuePair,
};

use super::table::{PORT, load_onto};

/// The clients of a table, each with its own chain.
pub struct Loading<'a> {
    /// Protection domain of the table.
    pub domain: &'a ProtectionDomain,
    /// Memory of the table.
    pub table: &'a MemoryRegion,
    handshakes: Handshakes,
    joining: Vec<(u64, Call)>,
    loaded: Vec<Offload>,
}

impl<'a> Loading<'a> {
    /// Creates a set without clients.
    ///
    /// # Errors
    /// Fails if the system has no free file descriptor.
    pub fn new(domain: &'a ProtectionDomain, table: &'a MemoryRegion) -> Result<Loading<'a>> {
        let handshakes = Handshakes::new()?;
        Ok(Loading { domain, table, handshakes, joining: Vec::new(), loaded: Vec::new() })
    }

    /// Accepts waiting clients and loads chains for the connected ones. `options` holds the private data that
    /// each client receives.
    ///
    /// # Errors
    /// Fails if the listener reports an error.
    pub fn turn(&mut self, listener: &Listener, options: &QpOptions) -> Result<()> {
        while self.handshakes.has_capacity(Handshakes::HASTE)
            && let Some(request) = listener.accept(Some(Duration::ZERO))?
        {
            if let Err(error) = self.begin(request, options) {
                tracing::warn!("a client was not served: {error:#}");
            }
        }
        while let Some((id, outcome)) = self.handshakes.finished() {
            let Some(index) = self.joining.iter().position(|(joining, _)| *joining == id) else { continue };
            let (_, call) = self.joining.swap_remove(index);
            let port = outcome.and_then(Answered::go).map_err(anyhow::Error::from);
            match port.and_then(|port| load_onto(self.domain, port, &call, "table", self.table)) {
                Ok(offload) => self.loaded.push(offload),
                Err(error) => tracing::warn!("a client was not served: {error:#}"),
            }
        }
        self.loaded.retain(|offload| !offload.queue(PORT).is_some_and(QueuePair::is_peer_gone));
        Ok(())
    }

    fn begin(&mut self, request: ConnectRequest, options: &QpOptions) -> Result<()> {
        let call = Call::from_bytes(request.private_data()).context("it does not say what it wants")?;
        let program = assemble(shipped(&call.program).context("no such program")?)?;
        let port = self.domain.create_port(&program, PORT, options)?;
        self.joining.push((self.handshakes.begin(request, port)?, call));
        Ok(())
    }
}

impl AsFd for Loading<'_> {
    /// Returns a descriptor that is readable when a client has connected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handshakes.as_fd()
    }
}
