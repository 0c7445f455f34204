//! Threads that do what would make a call wait.

use std::ffi::c_int;

/// Starts work beside the program. The thread leaves signals to the program's own threads.
pub fn start(work: impl FnOnce() + Send + 'static) -> Result<(), c_int> {
    let thread = std::thread::Builder::new().name("remora-resolve".to_owned());
    let started = thread.spawn(move || {
        let _ = remora_port::block_signals();
        work();
    });
    started.map(|_| ()).map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))
}
