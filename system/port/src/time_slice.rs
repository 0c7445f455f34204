//! The time slice of a thread, which determines how soon it preempts others when it wakes.

use std::time::Duration;

/// Requests time slices of this length for the calling thread. Since Linux 6.12 a thread that wakes
/// preempts a thread with longer slices at once. Older systems accept the request without effect.
///
/// # Errors
/// The error of the system: `EPERM` if a sandbox forbids the call, `ENOSYS` before Linux 3.14.
pub fn ask_for_time_slice(slice: Duration) -> std::io::Result<()> {
    // SAFETY: the structure is plain numbers, and the calls fill it and read it within its size.
    let failed = unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as u32;
        // Policy and nice value are unchanged.
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
        attributes.size = size;
        attributes.sched_runtime = slice.as_nanos() as u64;
        got != 0 || libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_policy_and_nice_value() {
        // SAFETY: they read the calling thread's scheduling.
        let scheduling =
            || unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
        let before = scheduling();
        ask_for_time_slice(Duration::from_micros(100)).unwrap();
        assert_eq!(scheduling(), before);
    }
}
