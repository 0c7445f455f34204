//! The objects that programs have by their address, each of which begins with what the headers show of it.
//! NULL, an ended object and one of another kind are EINVAL.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects of one kind, by their address. A call that found an object keeps it until it returns.
pub struct Live<T>(Mutex<BTreeMap<usize, Arc<T>>>);

impl<T> Live<T> {
    /// There is none.
    pub const fn new() -> Live<T> {
        Live(Mutex::new(BTreeMap::new()))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an object to the program: its address.
    pub fn give(&self, object: Arc<T>) -> usize {
        let address = Arc::as_ptr(&object) as usize;
        self.all().insert(address, object);
        address
    }

    /// The object at an address.
    pub fn look<P>(&self, address: *const P) -> Result<Arc<T>, c_int> {
        self.all().get(&(address as usize)).cloned().ok_or(libc::EINVAL)
    }

    /// Takes the object at an address back.
    pub fn take<P>(&self, address: *const P) -> Result<Arc<T>, c_int> {
        self.all().remove(&(address as usize)).ok_or(libc::EINVAL)
    }
}
