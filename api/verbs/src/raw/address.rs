//! Address handles of the raw layer.

use remora_host::Control;
use remora_memory::Pd;
use remora_nic::AddressVector;
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

/// Finds the port's peer entry for an address vector, counts one more user of it, and enters its number in
/// the vector.
pub(super) fn use_peer(control: &mut Control<'_>, address: &mut AddressVector) -> Result<Peer, CreateError> {
    let source = control.address_of(address.route.source);
    let peer = control
        .use_endpoint(source, address.route.destination)
        .map_err(|error| CreateError::Unreachable(error.to_string()))?;
    address.peer = peer;
    Ok(peer)
}

impl Ah {
    /// Creates a handle of this domain for a destination.
    ///
    /// # Errors
    /// `Nic(Full)`; `Memory(Unknown)` if there is no such domain; `Unreachable` if the port takes no more
    /// peers; `Forked` in a forked child.
    pub fn create(adapter: &Arc<ChannelAdapter>, pd: Pd, address: &AddressVector) -> Result<Ah, CreateError> {
        adapter.refuse_child()?;
        adapter.table().retain_pd(pd)?;
        let made = adapter.engine().control(|control| {
            let mut address = *address;
            let peer = use_peer(control, &mut address)?;
            let number = control.nic.create_address_handle(pd, &address);
            Ok((number.inspect_err(|_| control.release_peer(peer))?, peer))
        });
        let (number, peer) = made.inspect_err(|_: &CreateError| {
            let _ = adapter.table().release_pd(pd);
        })?;
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
        self.adapter.engine().control(|control| {
            control.nic.destroy_address_handle(self.number)?;
            control.release_peer(self.peer);
            Ok::<(), CreateError>(())
        })?;
        Ok(self.adapter.table().release_pd(self.pd)?)
    }
}
