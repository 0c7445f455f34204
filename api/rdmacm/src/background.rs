//! Threads for work that must not block a call.

use std::ffi::c_int;

/// Starts `work` in a thread. The thread blocks all signals, so that the program's own threads handle them,
/// and its start calls no function that the program may be patching.
pub(crate) fn start(work: impl FnOnce() + Send + 'static) -> Result<(), c_int> {
    let started = remora_port::spawn_settled("remora-resolve".to_owned(), work);
    started.map(|_| ()).map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))
}
