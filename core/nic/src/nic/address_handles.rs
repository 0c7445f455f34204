//! Creation and destruction of address handles.

use remora_memory::Pd;

use super::Nic;
use crate::attributes::AddressVector;
use crate::config::NicError;

impl Nic {
    /// Creates an address handle in a protection domain and returns its number.
    ///
    /// # Errors
    /// `Full`: the configured maximum number of address handles exists.
    pub fn create_address_handle(&mut self, pd: Pd, address: &AddressVector) -> Result<u32, NicError> {
        self.shared.handles.create(pd, address)
    }

    /// Destroys an address handle. Unsent work requests that name the handle complete with an error.
    ///
    /// # Errors
    /// `Unknown`: there is no such address handle.
    pub fn destroy_address_handle(&mut self, handle: u32) -> Result<(), NicError> {
        self.shared.handles.destroy(handle)
    }
}
