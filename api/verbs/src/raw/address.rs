//! Address handles, by number.

use remora_memory::Pd;
use remora_nic::AddressVector;
use std::sync::Arc;

use super::ChannelAdapter;
use crate::CreateError;

/// An address handle (`ibv_ah`): where datagrams go.
#[derive(Debug)]
pub struct Ah {
    adapter: Arc<ChannelAdapter>,
    number: u32,
    pd: Pd,
}

impl Ah {
    /// A handle of this domain, for this way.
    ///
    /// # Errors
    /// `Nic(Full)`; `Memory(Unknown)`: the domain; `Forked`.
    pub fn create(adapter: &Arc<ChannelAdapter>, pd: Pd, address: &AddressVector) -> Result<Ah, CreateError> {
        adapter.refuse_child()?;
        adapter.table().retain_pd(pd)?;
        let made = adapter.engine().control(|control| control.nic.create_address_handle(pd, address));
        let number = made.inspect_err(|_| {
            let _ = adapter.table().release_pd(pd);
        })?;
        Ok(Ah { adapter: Arc::clone(adapter), number, pd })
    }

    /// Its number, which a datagram names ([`Target`](super::Target)).
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends it.
    ///
    /// # Errors
    /// `Nic(Unknown)` if it is ended.
    pub fn destroy(&self) -> Result<(), CreateError> {
        if self.adapter.is_child() {
            return Ok(());
        }
        self.adapter.engine().control(|control| control.nic.destroy_address_handle(self.number))?;
        Ok(self.adapter.table().release_pd(self.pd)?)
    }
}
