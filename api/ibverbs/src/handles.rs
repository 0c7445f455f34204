//! The objects whose addresses programs hold: boxes that contain the structure of `verbs.h`.
//!
//! Verbs that create, change and destroy objects look an address up among the live ones, and return EINVAL
//! for NULL, an object of another kind, or a destroyed object. The data path checks only for NULL.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kinds of objects.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// An object whose structure for programs, of type `C`, begins at `OFFSET`.
pub(crate) trait Object: Sized {
    /// The structure of `verbs.h`.
    type C;
    const KIND: Kind;
    const OFFSET: usize = 0;
}

static LIVE: Mutex<BTreeMap<usize, Kind>> = Mutex::new(BTreeMap::new());

fn live() -> MutexGuard<'static, BTreeMap<usize, Kind>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands an object over to the program, and returns its handle.
pub(crate) fn give<T: Object>(object: Box<T>) -> *mut T::C {
    let handle = Box::into_raw(object).wrapping_byte_add(T::OFFSET).cast::<T::C>();
    live().insert(handle as usize, T::KIND);
    handle
}

/// Returns the object of a handle if it is live and of this kind; otherwise EINVAL.
pub(crate) fn look<'a, T: Object>(handle: *mut T::C) -> Result<&'a T, c_int> {
    if live().get(&(handle as usize)) != Some(&T::KIND) {
        return Err(libc::EINVAL);
    }
    // SAFETY: `give` made the handle from a box of this type, and `take` has not removed it. By the manual
    // pages, programs do not destroy an object that another thread uses.
    Ok(unsafe { &*handle.wrapping_byte_sub(T::OFFSET).cast::<T>() })
}

/// Like [`look`], but NULL stands for no object.
pub(crate) fn look_if_any<'a, T: Object>(handle: *mut T::C) -> Result<Option<&'a T>, c_int> {
    if handle.is_null() { Ok(None) } else { look(handle).map(Some) }
}

/// Returns the first live object of this kind that `is_it` accepts.
pub(crate) fn find<T: Object>(is_it: impl Fn(&T) -> bool) -> Option<*mut T::C> {
    let live = live();
    let mut handles =
        live.iter().filter(|(_, kind)| **kind == T::KIND).map(|(handle, _)| *handle as *mut T::C);
    // SAFETY: `give` made the handle from a box of this type. The list is locked, so the object cannot be
    // removed now.
    handles.find(|handle| is_it(unsafe { &*handle.wrapping_byte_sub(T::OFFSET).cast::<T>() }))
}

/// Takes an object back from the program. The caller has found it by [`look`] and has destroyed what it
/// represents.
pub(crate) fn take<T: Object>(handle: *mut T::C) -> Result<Box<T>, c_int> {
    let mut live = live();
    if live.get(&(handle as usize)) != Some(&T::KIND) {
        return Err(libc::EINVAL);
    }
    live.remove(&(handle as usize));
    // SAFETY: `give` made the handle from a box of this type, and the handle was just removed from the list.
    Ok(unsafe { Box::from_raw(handle.wrapping_byte_sub(T::OFFSET).cast::<T>()) })
}

/// Returns the object of a handle on the data path, or `None` for NULL.
///
/// # Safety
/// The handle is NULL or a live one of this kind.
#[inline(always)]
pub(crate) unsafe fn fast<'a, T: Object>(handle: *mut T::C) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.wrapping_byte_sub(T::OFFSET).cast::<T>().as_ref().filter(|_| !handle.is_null()) }
}

/// The initial value of a mutex in a structure of `verbs.h`.
pub(crate) const MUTEX: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
/// The initial value of a condition variable in a structure of `verbs.h`.
pub(crate) const COND: libc::pthread_cond_t = libc::PTHREAD_COND_INITIALIZER;

/// The count of acknowledged events of an object, with its lock and its condition variable.
pub(crate) struct Acknowledged {
    pub mutex: *mut libc::pthread_mutex_t,
    pub cond: *mut libc::pthread_cond_t,
    pub count: *mut u32,
}

impl Acknowledged {
    /// Counts `more` acknowledged events.
    pub(crate) fn add(&self, more: u32) {
        // SAFETY: all three are parts of one live object, which the program does not move.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.count = (*self.count).wrapping_add(more);
            libc::pthread_cond_broadcast(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until as many events are acknowledged as were delivered.
    pub(crate) fn wait(&self, delivered: impl Fn() -> u32) {
        // SAFETY: as in `add`.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            while *self.count != delivered() {
                libc::pthread_cond_wait(self.cond, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}
