//! Processes that spin on one core take turns: all but one are stopped, so that what is measured has the core
//! alone.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, set_parent_process_death_signal, waitid,
};

/// Stops it; returns when it stands still.
pub fn stop(child: &Child) -> Result<()> {
    let id = Pid::from_child(child);
    kill_process(id, Signal::STOP).context("stopping a process of the benchmark")?;
    // Left to be waited for again: if it has died, its owner wants to know how.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(id), options).context("waiting for a process of the benchmark")?;
    ensure!(status.is_some_and(|status| status.stopped()), "a process of the benchmark has died");
    Ok(())
}

/// Lets it run.
pub fn go_on(child: &Child) -> Result<()> {
    kill_process(Pid::from_child(child), Signal::CONT).context("continuing a process of the benchmark")
}

/// Ends this process when its parent ends, even if it is stopped then and could not see that for itself.
pub fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the benchmark")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_stopped_process_does_nothing_until_it_may_go_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        for round in 0..3u8 {
            stop(&child).unwrap();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            assert!(stat.contains(") T "), "{stat}");
            child.stdin.as_mut().unwrap().write_all(&[round]).unwrap();
            go_on(&child).unwrap();
            let mut back = [0xff];
            child.stdout.as_mut().unwrap().read_exact(&mut back).unwrap();
            assert_eq!(back, [round]);
        }
        child.kill().unwrap();
        // Whoever stops a process that is dead learns it, and its status is still there for its owner.
        while stop(&child).is_ok() {}
        assert!(!child.wait().unwrap().success());
    }
}
