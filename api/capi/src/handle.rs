//! Handles: boxes that a C program has by their address. They begin with a word for their kind.

use remora_memory::ForkMark;
use remora_verbs::CreateError;
use std::ffi::{CStr, c_char, c_void};

use crate::errno::Fault;

/// A type that a handle may hold.
pub trait Kind {
    /// The word that its handles begin with.
    const WORD: u64;
    /// The kind's name in error texts.
    const NAME: &'static str;
    /// A forked child may use what it inherits.
    const INHERITED: bool = false;
}

/// A boxed value behind its kind's word.
#[repr(C)]
pub struct Handle<T> {
    word: u64,
    fork: ForkMark,
    value: T,
}

/// Boxes `value` and writes its handle to `out`.
///
/// # Safety
/// `out` may be written, unless it is null.
pub unsafe fn give<T: Kind>(value: T, out: *mut *mut Handle<T>) -> Result<(), Fault> {
    let out = filled(out)?;
    let handle = Box::into_raw(Box::new(Handle { word: T::WORD, fork: ForkMark::get(), value }));
    // SAFETY: the caller's promise, and `filled` refused null.
    unsafe { out.write(handle) };
    Ok(())
}

/// Refuses a null pointer for a result.
pub fn filled<T>(out: *mut T) -> Result<*mut T, Fault> {
    if out.is_null() || !out.is_aligned() {
        Err(Fault::invalid("NULL where a result belongs"))
    } else {
        Ok(out)
    }
}

/// Writes a result.
///
/// # Safety
/// `out` may be written, unless it is null.
pub unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Fault> {
    let out = filled(out)?;
    // SAFETY: the caller's promise, and `filled` refused null.
    unsafe { out.write(value) };
    Ok(())
}

fn check<T: Kind>(handle: *const Handle<T>) -> Result<(), Fault> {
    let refused = || Fault::invalid(format_args!("NULL, or no {}", T::NAME));
    if handle.is_null() || !handle.is_aligned() {
        return Err(refused());
    }
    // SAFETY: a live handle of any kind begins with a word; the header asks for live handles.
    if unsafe { handle.cast::<u64>().read_volatile() } != T::WORD { Err(refused()) } else { Ok(()) }
}

/// The value behind a handle. Null, handles of another kind and those of a parent process are refused. The
/// lock of the last may be held by a thread that was not forked.
///
/// # Safety
/// The handle is null or of any kind, and is not destroyed while the result is used.
pub unsafe fn look<'a, T: Kind>(handle: *const Handle<T>) -> Result<&'a T, Fault> {
    check(handle)?;
    // SAFETY: it is of this kind, and alive by the caller's promise.
    let handle = unsafe { &*handle };
    if !T::INHERITED && handle.fork.is_child() {
        return Err(CreateError::Forked.into());
    }
    Ok(&handle.value)
}

/// Takes the value out of a handle, which ends.
///
/// # Safety
/// As [`look`]; and nobody else uses the handle now or later.
pub unsafe fn take<T: Kind>(handle: *mut Handle<T>) -> Result<T, Fault> {
    check(handle)?;
    // SAFETY: `give` boxed it, and it is used no more by the caller's promise. The word is erased first, so
    // that most mistakes show.
    let boxed = unsafe {
        handle.cast::<u64>().write_volatile(0);
        Box::from_raw(handle)
    };
    Ok(boxed.value)
}

/// A C string; `None` for null.
///
/// # Safety
/// It is null, or ends with a zero byte and lives while the result is used.
pub unsafe fn string<'a>(text: *const c_char) -> Result<Option<&'a str>, Fault> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Fault::invalid("a string that is no UTF-8"))
}

/// A block of bytes; empty for a length of 0.
///
/// # Safety
/// `len` bytes may be read while the result is used, unless `start` is null.
pub unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Result<&'a [u8], Fault> {
    // SAFETY: the caller's promise.
    unsafe { list(start.cast(), len) }
}

/// A list; empty for a length of 0.
///
/// # Safety
/// `len` elements may be read while the result is used, unless `start` is null.
pub unsafe fn list<'a, T>(start: *const T, len: usize) -> Result<&'a [T], Fault> {
    if len == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Fault::invalid("NULL, or too long, where a list belongs"));
    }
    // SAFETY: the caller's promise; not null, aligned, and no longer than can be.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}
