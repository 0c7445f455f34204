//! Address handles, as the program makes and ends them.

use remora_memory::Pd;

use super::Nic;
use crate::attributes::AddressVector;
use crate::config::NicError;

impl Nic {
    /// Makes an address handle of a protection domain; its number.
    ///
    /// # Errors
    /// `Full`.
    pub fn create_address_handle(&mut self, pd: Pd, address: &AddressVector) -> Result<u32, NicError> {
        self.shared.handles.create(pd, address)
    }

    /// Ends an address handle. Work requests that name it and have not left end in error.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn destroy_address_handle(&mut self, handle: u32) -> Result<(), NicError> {
        self.shared.handles.destroy(handle)
    }
}
