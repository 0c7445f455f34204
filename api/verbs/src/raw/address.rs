//! Address handles of the raw layer.

use remora_memory::Pd;
use remora_nic::{AddressVector, Command};
use remora_wire::frame::Peer;
use std::sync::Arc;

use super::ChannelAdapter;
use crate::CreateError;

/// An address handle (`ibv_ah`): the destination of datagrams.
#[derive(Debug)]
pub struct Ah {
    adapter: Arc<ChannelAdapter>,
    number: u32,
    pd: Pd,
    /// The peer entry of the port, of which this handle is a user.
    peer: Peer,
}

impl Ah {
    /// Creates a handle of this domain for a destination.
    ///
    /// # Errors
    /// `Nic(Full)`; `Memory(Unknown)` if there is no such domain; `Unreachable` if the port takes no more
    /// peers; `Forked` in a forked child.
    pub fn create(adapter: &Arc<ChannelAdapter>, pd: Pd, address: &AddressVector) -> Result<Ah, CreateError> {
        adapter.refuse_child()?;
        adapter.retain_domain(pd)?;
        let made = adapter.handle().create_address_handle(pd, *address);
        let (number, peer) = made.inspect_err(|_| adapter.release_domain(pd))?;
        Ok(Ah { adapter: Arc::clone(adapter), number, pd, peer })
    }

    /// The number by which a datagram names the handle ([`Target`](super::Target)).
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Destroys the handle.
    ///
    /// # Errors
    /// `Nic(Unknown)` if it was destroyed before.
    pub fn destroy(&self) -> Result<(), CreateError> {
        if self.adapter.is_child() {
            return Ok(());
        }
        let engine = self.adapter.handle();
        engine.ask::<()>(Command::DestroyAddressHandle { handle: self.number })?;
        engine.uplink().release_peer(self.peer);
        self.adapter.release_domain(self.pd);
        Ok(())
    }
}
