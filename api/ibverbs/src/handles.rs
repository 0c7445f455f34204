//! The objects that programs have by their address: boxes that begin with what `verbs.h` shows of them.
//!
//! Verbs that make, change and end objects look an address up among those that live: NULL, a wrong kind and
//! an ended object are EINVAL. The data path looks at NULL alone.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kinds of objects.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Context,
    Pd,
    Td,
    Mr,
    Mw,
    Dm,
    Channel,
    Cq,
    Srq,
    Xrcd,
    Qp,
    Ah,
}

/// An object whose part for programs, of type `C`, begins at `OFFSET`.
pub trait Object: Sized {
    /// The struct of `verbs.h`.
    type C;
    const KIND: Kind;
    const OFFSET: usize = 0;
}

static LIVE: Mutex<BTreeMap<usize, Kind>> = Mutex::new(BTreeMap::new());

fn live() -> MutexGuard<'static, BTreeMap<usize, Kind>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands an object to the program.
pub fn give<T: Object>(object: Box<T>) -> *mut T::C {
    let handle = Box::into_raw(object).wrapping_byte_add(T::OFFSET).cast::<T::C>();
    live().insert(handle as usize, T::KIND);
    handle
}

/// The object behind a handle, if it lives and is of this kind; else EINVAL.
pub fn look<'a, T: Object>(handle: *mut T::C) -> Result<&'a T, c_int> {
    if live().get(&(handle as usize)) != Some(&T::KIND) {
        return Err(libc::EINVAL);
    }
    // SAFETY: `give` made it of a box of this type, and `take` has not ended it. Programs end no object that
    // another thread uses: the manual pages demand it.
    Ok(unsafe { &*handle.wrapping_byte_sub(T::OFFSET).cast::<T>() })
}

/// As [`look`], where NULL means that there is none.
pub fn look_if_any<'a, T: Object>(handle: *mut T::C) -> Result<Option<&'a T>, c_int> {
    if handle.is_null() { Ok(None) } else { look(handle).map(Some) }
}

/// The first living object of this kind that `is_it` accepts.
pub fn find<T: Object>(is_it: impl Fn(&T) -> bool) -> Option<*mut T::C> {
    let live = live();
    let mut handles =
        live.iter().filter(|(_, kind)| **kind == T::KIND).map(|(handle, _)| *handle as *mut T::C);
    // SAFETY: `give` made it of a box of this type, and the list is locked, so it cannot end meanwhile.
    handles.find(|handle| is_it(unsafe { &*handle.wrapping_byte_sub(T::OFFSET).cast::<T>() }))
}

/// Takes an object back. The caller has found it by [`look`] and has ended what it stands for.
pub fn take<T: Object>(handle: *mut T::C) -> Result<Box<T>, c_int> {
    let mut live = live();
    if live.get(&(handle as usize)) != Some(&T::KIND) {
        return Err(libc::EINVAL);
    }
    live.remove(&(handle as usize));
    // SAFETY: `give` made it of a box of this type, and it has just left the list.
    Ok(unsafe { Box::from_raw(handle.wrapping_byte_sub(T::OFFSET).cast::<T>()) })
}

/// The object behind a handle of the data path.
///
/// # Safety
/// The handle is NULL or a live one of this kind.
#[inline(always)]
pub unsafe fn fast<'a, T: Object>(handle: *mut T::C) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.wrapping_byte_sub(T::OFFSET).cast::<T>().as_ref().filter(|_| !handle.is_null()) }
}

/// A mutex as `verbs.h` has them in objects.
pub const MUTEX: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
/// A condition variable likewise.
pub const COND: libc::pthread_cond_t = libc::PTHREAD_COND_INITIALIZER;

/// The count of acknowledged events of an object, with the lock and the condition beside it.
pub struct Acknowledged {
    pub mutex: *mut libc::pthread_mutex_t,
    pub cond: *mut libc::pthread_cond_t,
    pub count: *mut u32,
}

impl Acknowledged {
    /// Counts `more` events.
    pub fn add(&self, more: u32) {
        // SAFETY: all three are parts of one live object, which the program does not move.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.count = (*self.count).wrapping_add(more);
            libc::pthread_cond_broadcast(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until as many events are acknowledged as were delivered.
    pub fn wait(&self, delivered: impl Fn() -> u32) {
        // SAFETY: as above.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            while *self.count != delivered() {
                libc::pthread_cond_wait(self.cond, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}
