//! C functions for the free lists of PRISM (`remora_free_list`).

use remora_verbs::{FreeList, FreeListOptions, MemoryRegion, ProtectionDomain};
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use crate::device::{end, kind};
use crate::errno::{Fault, number};
use crate::handle::{Handle, Kind, filled, give, list, look, put, take};

/// A free list that any thread may post to.
pub(crate) struct List {
    inner: Mutex<FreeList>,
    count: u32,
}

kind!(List, b"rmr.list", "remora_free_list");

/// `remora_free_list_facts`: the numbers of buffers by state, and of bad posts.
#[repr(C)]
pub(crate) struct Facts {
    pub capacity: u32,
    pub free: u32,
    pub resting: u32,
    pub reserved: u32,
    pub bad_posts: u64,
}

end!(
    /// Destroys a free list.
    remora_destroy_free_list,
    List
);

/// Creates a free list over a part of a region and writes its handle to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_create_free_list(
    pd: *const Handle<ProtectionDomain>,
    mr: *const Handle<MemoryRegion>,
    offset: usize,
    size: u32,
    count: u32,
    out: *mut *mut Handle<List>,
) -> c_int {
    number((|| {
        filled(out)?;
        let options = FreeListOptions { offset, size, count, engine: 0 };
        // SAFETY: the caller meets the conditions of the header.
        let inner = unsafe { look(pd)?.create_free_list(look(mr)?, &options)? };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { give(List { inner: Mutex::new(inner), count }, out) }
    })())
}

/// Locks the list and calls `use_it` with it and its number of buffers.
///
/// # Safety
/// The caller meets the conditions of the header.
unsafe fn with<T>(
    handle: *const Handle<List>,
    use_it: impl FnOnce(&mut FreeList, u32) -> Result<T, Fault>,
) -> Result<T, Fault> {
    // SAFETY: the caller meets the conditions of the header.
    let list = unsafe { look(handle)? };
    use_it(&mut list.inner.lock().unwrap_or_else(PoisonError::into_inner), list.count)
}

/// Writes to `out` the number by which ALLOCATE operations refer to the list.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_free_list_number(handle: *const Handle<List>, out: *mut u64) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe { with(handle, |list, _| put(out, list.number())) })
}

/// Writes the address of the buffer `index` to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_free_list_address(
    handle: *const Handle<List>,
    index: u32,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe {
        with(handle, |list, count| match index < count {
            true => put(out, list.address(index)),
            false => Err(Fault::invalid("the list has no such buffer")),
        })
    })
}

/// Writes the index of the buffer at `address` to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_free_list_index(
    handle: *const Handle<List>,
    address: u64,
    out: *mut u32,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe {
        with(handle, |list, count| match list.index(address).filter(|index| *index < count) {
            Some(index) => put(out, index),
            None => Err(Fault::invalid("no buffer of the list begins there")),
        })
    })
}

/// Makes the buffer `index` free.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_free_list_post(handle: *const Handle<List>, index: u32) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe {
        with(handle, |list, count| match index < count {
            true => Ok(list.post(index)?),
            false => Err(Fault::invalid("the list has no such buffer")),
        })
    })
}

/// Writes a bit map of the buffers that are neither free nor resting; bit 0 is the buffer `first`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_free_list_out(
    handle: *const Handle<List>,
    first: u32,
    words: *mut u64,
    count: usize,
) -> c_int {
    number((|| {
        // SAFETY: the caller meets the conditions of the header. `list` only checks that the pointer and the
        // length are possible.
        unsafe { list(words.cast_const(), count)? };
        if count == 0 {
            return Ok(());
        }
        // SAFETY: `list` refused an impossible pointer or length, and the header requires `count` words.
        let words = unsafe { std::slice::from_raw_parts_mut(words, count) };
        // SAFETY: the caller meets the conditions of the header.
        unsafe { with(handle, |list, _| Ok(list.out(first, words)?)) }
    })())
}

/// Writes the numbers of free and resting buffers and of bad posts to `out`.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_free_list_query(
    handle: *const Handle<List>,
    out: *mut Facts,
) -> c_int {
    // SAFETY: the caller meets the conditions of the header.
    number(unsafe {
        with(handle, |list, _| {
            let facts = list.facts()?;
            let capacity = facts.capacity;
            let free = facts.free;
            let resting = facts.resting;
            put(out, Facts { capacity, free, resting, reserved: 0, bad_posts: facts.bad_posts })
        })
    })
}
