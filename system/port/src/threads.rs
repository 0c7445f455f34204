//! Start of a library's threads in a program that does not expect them.
//!
//! Programs overwrite the first bytes of `mmap`, `munmap`, `madvise` and similar functions while they run:
//! the memory hooks of libfabric and UCX do so as soon as the device is open. A thread that is inside such
//! a function at that moment then returns into the middle of other instructions. The C library calls these
//! functions when a thread allocates and frees memory for the first time, so each thread does that before
//! its start is reported.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use crate::signals::block_signals;

/// Size in bytes of the block by which a thread gets its memory arena: more than the C library caches for
/// one thread, and less than it maps separately.
const SETTLING: usize = 1 << 14;

/// Starts a thread of the NIC, with the program's signals blocked. Returns once the thread has allocated
/// and freed memory and has waited once, so that it has called for the first time all functions that
/// programs overwrite.
///
/// # Errors
/// The error of the system if it cannot create the thread.
pub fn spawn_settled<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (settled, starting) = sync_channel::<()>(0);
    let thread = Builder::new().name(name).spawn(move || {
        // A signal handler of the program that ran here would find this thread inside an engine.
        if let Err(error) = block_signals() {
            tracing::warn!(%error, "signals of the program may interrupt a thread of the NIC");
        }
        drop(std::hint::black_box(Vec::<u8>::with_capacity(SETTLING)));
        // Waits until the caller receives the message.
        let _ = settled.send(());
        drop(settled);
        body()
    })?;
    // An error means that the thread has ended already; its owner finds out when it joins the thread.
    let _ = starting.recv();
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_settled_thread_runs_its_body_after_its_start() {
        static RUN: AtomicBool = AtomicBool::new(false);
        let thread = spawn_settled("remora-test".to_owned(), || {
            assert_eq!(std::thread::current().name(), Some("remora-test"));
            RUN.store(true, Ordering::Release);
        });
        thread.unwrap().join().unwrap();
        assert!(RUN.load(Ordering::Acquire));
    }
}
