//! Handles: boxed values that a C program refers to by address. Each begins with a word that identifies its
//! kind.

use remora_memory::ForkMark;
use remora_verbs::CreateError;
use std::ffi::{CStr, c_char, c_void};

use crate::errno::Fault;

/// A type whose values C programs use through handles.
pub(crate) trait Kind {
    /// The word with which the handles of this kind begin.
    const WORD: u64;
    /// The name of the kind in error texts.
    const NAME: &'static str;
    /// True if a forked child may use the handles of its parent.
    const INHERITED: bool = false;
}

/// A boxed value, preceded by the word of its kind.
#[repr(C)]
pub(crate) struct Handle<T> {
    word: u64,
    fork: ForkMark,
    value: T,
}

/// Boxes `value` and writes its handle to `out`.
///
/// # Safety
/// `out` is null or may be written.
pub(crate) unsafe fn give<T: Kind>(value: T, out: *mut *mut Handle<T>) -> Result<(), Fault> {
    let out = filled(out)?;
    let handle = Box::into_raw(Box::new(Handle { word: T::WORD, fork: ForkMark::get(), value }));
    // SAFETY: `out` may be written by the caller's promise, and `filled` refused null.
    unsafe { out.write(handle) };
    Ok(())
}

/// Returns the pointer, or an error if it is null or misaligned.
pub(crate) fn filled<T>(out: *mut T) -> Result<*mut T, Fault> {
    if out.is_null() || !out.is_aligned() {
        Err(Fault::invalid("NULL where a result belongs"))
    } else {
        Ok(out)
    }
}

/// Writes a result to `out`.
///
/// # Safety
/// `out` is null or may be written.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Fault> {
    let out = filled(out)?;
    // SAFETY: `out` may be written by the caller's promise, and `filled` refused null.
    unsafe { out.write(value) };
    Ok(())
}

fn check<T: Kind>(handle: *const Handle<T>) -> Result<(), Fault> {
    let refused = || Fault::invalid(format_args!("NULL, or no {}", T::NAME));
    if handle.is_null() || !handle.is_aligned() {
        return Err(refused());
    }
    // SAFETY: every live handle begins with a word, and the header requires live handles.
    if unsafe { handle.cast::<u64>().read_volatile() } != T::WORD { Err(refused()) } else { Ok(()) }
}

/// Returns the value of a handle. Refuses null, handles of another kind, and handles of the parent process:
/// a lock of theirs may be held by a thread that does not exist in the child.
///
/// # Safety
/// The handle is null or of any kind, and is not destroyed while the result is in use.
pub(crate) unsafe fn look<'a, T: Kind>(handle: *const Handle<T>) -> Result<&'a T, Fault> {
    check(handle)?;
    // SAFETY: the handle is of this kind, and alive by the caller's promise.
    let handle = unsafe { &*handle };
    if !T::INHERITED && handle.fork.is_child() {
        return Err(CreateError::Forked.into());
    }
    Ok(&handle.value)
}

/// Destroys a handle and returns its value.
///
/// # Safety
/// The conditions of [`look`], and nobody else uses the handle now or later.
pub(crate) unsafe fn take<T: Kind>(handle: *mut Handle<T>) -> Result<T, Fault> {
    check(handle)?;
    // SAFETY: `give` boxed the value, and by the caller's promise nobody uses the handle any more. Its word
    // is erased first, so that most later uses of the handle are detected.
    let boxed = unsafe {
        handle.cast::<u64>().write_volatile(0);
        Box::from_raw(handle)
    };
    Ok(boxed.value)
}

/// Returns a C string as UTF-8, or `None` for null.
///
/// # Safety
/// The pointer is null or a string that ends with a zero byte and lives while the result is in use.
pub(crate) unsafe fn string<'a>(text: *const c_char) -> Result<Option<&'a str>, Fault> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is a C string by the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Fault::invalid("a string that is no UTF-8"))
}

/// Returns a block of bytes, which is empty for a length of 0.
///
/// # Safety
/// `start` is null, or `len` bytes from it may be read while the result is in use.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Result<&'a [u8], Fault> {
    // SAFETY: the bytes may be read by the caller's promise.
    unsafe { list(start.cast(), len) }
}

/// Returns a slice, which is empty for a length of 0.
///
/// # Safety
/// `start` is null, or `len` elements from it may be read while the result is in use.
pub(crate) unsafe fn list<'a, T>(start: *const T, len: usize) -> Result<&'a [T], Fault> {
    if len == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Fault::invalid("NULL, or too long, where a list belongs"));
    }
    // SAFETY: the elements may be read by the caller's promise; the pointer is aligned and not null, and the
    // length is possible.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}
