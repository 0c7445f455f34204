//! Threads for work that must not block a call.

use std::ffi::c_int;

/// Starts `work` in a thread. The thread blocks all signals, so that the program's own threads handle them.
pub fn start(work: impl FnOnce() + Send + 'static) -> Result<(), c_int> {
    let thread = std::thread::Builder::new().name("remora-resolve".to_owned());
    let started = thread.spawn(move || {
        let _ = remora_port::block_signals();
        work();
    });
    started.map(|_| ()).map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))
}
