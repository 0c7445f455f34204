//! Threads of a library in a program that knows nothing of them.
//!
//! Programs overwrite the first bytes of `mmap`, `munmap`, `madvise` and their relatives while they run: the
//! memory hooks of libfabric and UCX do it as soon as the device is open. A thread that is inside such a
//! function then returns into the middle of other instructions. The C library calls these functions when a
//! thread first allocates and frees memory, so each thread does that before its start is reported.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use crate::signals::block_signals;

/// Bytes of the block by which a thread gets its arena of memory: more than the C library keeps aside for one
/// thread, and less than it maps alone.
const SETTLING: usize = 1 << 14;

/// Starts a thread for a NIC, with the program's signals blocked. Returns once the thread has allocated and
/// freed memory and has waited once, so that its start calls none of the functions that programs overwrite.
///
/// # Errors
/// The system gives no thread.
pub fn spawn_settled<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (settled, starting) = sync_channel::<()>(0);
    let thread = Builder::new().name(name).spawn(move || {
        // A handler of the program that ran here would find this thread inside an engine.
        if let Err(error) = block_signals() {
            tracing::warn!(%error, "signals of the program may interrupt a thread of the NIC");
        }
        drop(std::hint::black_box(Vec::<u8>::with_capacity(SETTLING)));
        // Waits for the caller, which takes it.
        let _ = settled.send(());
        drop(settled);
        body()
    })?;
    // An error is a thread that has ended before: its owner learns of it when it joins.
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
