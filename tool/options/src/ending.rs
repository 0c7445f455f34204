//! How a command ends that runs until it is told to: the signals that tell it, in one place. A server that
//! ends by them cleans up behind itself: its socket goes, its capture is whole.

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

/// Ctrl-C, `kill`, and a terminal that is closed.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The signals that end a server. One that whoever started it has it ignore stays ignored: SIGHUP under
/// `nohup`, SIGINT in the background of a script.
///
/// # Errors
/// Fails if /proc is not mounted.
pub fn signals() -> Result<Vec<i32>> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading which signals are ignored")?;
    Ok(ENDING.into_iter().filter(|signal| ignored(&status) >> (signal - 1) & 1 == 0).collect())
}

/// Ends this process when its parent ends, even while this process is stopped.
///
/// # Errors
/// Fails if the system refuses.
pub fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the parent process")
}

/// The signals that a process ignores, a bit each from signal 1 on.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Becomes true with the first of them. The second one ends the process at once: what cleans up may hang,
/// too.
///
/// # Errors
/// The system refuses.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in signals()? {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&told))
            .and_then(|_| flag::register(signal, Arc::clone(&told)))
            .context("waiting for signals")?;
    }
    Ok(told)
}

/// Becomes readable with the first of them: for servers that sleep until a descriptor is readable.
///
/// # Errors
/// The system refuses.
pub fn readable() -> Result<UnixStream> {
    let (reader, writer) = UnixStream::pair().context("waiting for signals")?;
    reader.set_nonblocking(true).context("waiting for signals")?;
    for signal in signals()? {
        let writer = writer.try_clone().context("waiting for signals")?;
        low_level::pipe::register(signal, writer).context("waiting for signals")?;
    }
    Ok(reader)
}

/// Runs a command to its end. A signal that would end this process ends the command, which this process
/// outlives. The Ctrl-C of a terminal goes to both; all others are passed on.
///
/// # Errors
/// The command cannot be run, or the system refuses.
pub fn pass_on(command: &mut Command) -> Result<ExitStatus> {
    let mut signals = Signals::new(signals()?).context("waiting for signals")?;
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
        thread::Builder::new().name("signals".into()).spawn(pass).context("a thread for signals")?;
    // Left to be waited for again: until then its number is nobody else's.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = waitid(WaitId::Pid(id), ended) {}
    handle.close();
    passing.join().map_err(|_| anyhow!("the thread for signals panicked"))?;
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
        // The tests' own process ignores SIGPIPE at least, as every Rust program does.
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(ignored(&own) >> 12 & 1, 1);
    }
}
