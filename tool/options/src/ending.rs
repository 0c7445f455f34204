//! The signals that end a long-running command: SIGINT, SIGTERM and SIGHUP. A server that ends because of
//! one removes its socket and completes its capture file.

use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, set_parent_process_death_signal, waitid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

/// Signals of Ctrl-C, of `kill`, and of a closed terminal.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns the signals that end a server. A signal that this process inherited as ignored stays ignored:
/// SIGHUP under `nohup`, SIGINT in the background of a script.
///
/// # Errors
/// Fails if /proc is not mounted.
pub fn signals() -> Result<Vec<i32>> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading the ignored signals")?;
    Ok(ENDING.into_iter().filter(|signal| ignored(&status) >> (signal - 1) & 1 == 0).collect())
}

/// Ends this process when its parent ends, even while this process is stopped.
///
/// # Errors
/// Fails if the system refuses.
pub fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("requesting SIGKILL at the end of the parent process")
}

/// Returns the mask of ignored signals from the text of `/proc/PID/status`. Bit `n - 1` stands for signal
/// `n`.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns a flag that becomes true with the first ending signal. The second signal ends the process at
/// once, since an orderly shutdown may hang.
///
/// # Errors
/// Fails if /proc is not mounted or a signal handler cannot be installed.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let stop_flag = Arc::new(AtomicBool::new(false));
    for signal in signals()? {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop_flag))
            .and_then(|_| flag::register(signal, Arc::clone(&stop_flag)))
            .context("installing signal handlers")?;
    }
    Ok(stop_flag)
}

/// Returns a stream that becomes readable with the first ending signal, for servers that sleep in poll or
/// epoll.
///
/// # Errors
/// Fails if /proc is not mounted or a signal handler cannot be installed.
pub fn readable() -> Result<UnixStream> {
    let (reader, writer) = UnixStream::pair().context("installing signal handlers")?;
    reader.set_nonblocking(true).context("installing signal handlers")?;
    for signal in signals()? {
        let writer = writer.try_clone().context("installing signal handlers")?;
        low_level::pipe::register(signal, writer).context("installing signal handlers")?;
    }
    Ok(reader)
}

/// Runs a command and returns its exit status. Signals that would end this process are passed on to the
/// command, and this process continues until the command has ended. Ctrl-C in a terminal reaches both
/// processes and is not passed on.
///
/// # Errors
/// Fails if the command cannot be started, or a signal handler or thread cannot be created.
pub fn pass_on(command: &mut Command) -> Result<ExitStatus> {
    let mut signals = Signals::new(signals()?).context("installing signal handlers")?;
    let handle = signals.handle();
    let mut child = command.spawn()?;
    let id = Pid::from_child(&child);
    let terminal = std::fs::File::open("/dev/tty").is_ok();
    let pass = move || {
        for signal in signals.forever().filter(|signal| *signal != SIGINT || !terminal) {
            let _ = Signal::from_named_raw(signal).map(|signal| kill_process(id, signal));
        }
    };
    let passing =
        thread::Builder::new().name("signals".into()).spawn(pass).context("starting the signal thread")?;
    // WNOWAIT keeps the ended child a zombie until the signal thread has ended. Its process id is therefore
    // not reused for another process, which would receive the signal.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = waitid(WaitId::Pid(id), ended) {}
    handle.close();
    passing.join().map_err(|_| anyhow!("the signal thread panicked"))?;
    Ok(child.wait()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_mask() {
        let status = "Name:\tremora\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 0x1001);
        assert_eq!(ignored("Name:\tremora\n"), 0);
        // The process of this test ignores SIGPIPE, as every Rust program does.
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(ignored(&own) >> 12 & 1, 1);
    }
}
