//! Blocking of the program's signals in threads of the NIC.

/// Blocks the program's signals in the calling thread. A signal handler that ran there would find the
/// thread inside an engine, and its posts would be refused. Signals of the thread's own faults are
/// unblocked, even if its creator blocks them: the NIC accesses pages that may be absent, and the kernel
/// kills a thread that blocks the signal of its own fault.
///
/// # Errors
/// The error of pthread_sigmask(3).
pub fn block_signals() -> std::io::Result<()> {
    // SAFETY: a set of signals is plain numbers, and these calls fill it and read it.
    let failed = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(&raw mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(failed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: in a program that blocks all signals while it opens the device, the NIC's thread
    /// inherited the mask, and the kernel ended it at a fault in a region.
    #[test]
    fn a_thread_without_signals_takes_its_own_faults_alone() {
        let blocked = || {
            // SAFETY: as in `block_signals`.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigfillset(&raw mut set);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            }
            block_signals().unwrap();
            // SAFETY: reads the calling thread's mask.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
                [libc::SIGALRM, libc::SIGUSR1, libc::SIGTERM, libc::SIGSEGV, libc::SIGBUS]
                    .map(|signal| libc::sigismember(&raw const set, signal))
            }
        };
        assert_eq!(std::thread::spawn(blocked).join().unwrap(), [1, 1, 1, 0, 0]);
    }
}
