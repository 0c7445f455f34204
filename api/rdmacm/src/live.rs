//! The objects to which programs refer by address. Each begins with the structure of the headers. NULL, a
//! destroyed object and an object of another kind are EINVAL.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The live objects of one kind, by their address. A call keeps an object alive until it returns.
pub(crate) struct Live<T>(Mutex<BTreeMap<usize, Arc<T>>>);

impl<T> Live<T> {
    /// Creates an empty table.
    pub(crate) const fn new() -> Live<T> {
        Live(Mutex::new(BTreeMap::new()))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an object over to the program, and returns its address.
    pub(crate) fn give(&self, object: Arc<T>) -> usize {
        let address = Arc::as_ptr(&object) as usize;
        self.all().insert(address, object);
        address
    }

    /// Returns the object at an address.
    pub(crate) fn look<P>(&self, address: *const P) -> Result<Arc<T>, c_int> {
        self.all().get(&(address as usize)).cloned().ok_or(libc::EINVAL)
    }

    /// Takes the object at an address back from the program.
    pub(crate) fn take<P>(&self, address: *const P) -> Result<Arc<T>, c_int> {
        self.all().remove(&(address as usize)).ok_or(libc::EINVAL)
    }
}
