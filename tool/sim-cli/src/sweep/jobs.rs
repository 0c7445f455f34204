//! Runs the scenarios of a sweep as child processes in parallel.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Seek as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use remora_options::{ending, print};
use rustix::process::{Pid, Signal, kill_process};

use super::plan::{Plan, Planned};
use crate::scenario_args::INCOMPLETE;

/// Interval between two checks of the processes.
const OFTEN: Duration = Duration::from_millis(10);

/// The end of a sweep.
pub(crate) struct Ended {
    /// True if a signal stopped the sweep.
    pub stopped: bool,
    /// Error of the first run that failed.
    pub error: Option<anyhow::Error>,
}

/// A running child process.
struct Running<'a> {
    run: &'a Planned,
    child: Child,
    /// File with the error output of the process.
    output: File,
}

/// Runs the unfinished scenarios, `jobs` at the same time. A signal stops all of them: their files are then
/// complete, but the runs count as unfinished.
///
/// # Errors
/// Fails if a process cannot be started or waited for.
pub(crate) fn run(plan: &Plan, jobs: usize) -> Result<Ended> {
    let stop_flag = ending::flag()?;
    let mut left: Vec<&Planned> = plan.left().collect();
    let bar = bar(plan.runs.len(), plan.runs.len() - left.len())?;
    left.reverse();
    let mut running: Vec<Running<'_>> = Vec::new();
    let mut error = None;
    let mut passed_on = false;
    loop {
        let stopped = stop_flag.load(Ordering::Relaxed);
        while !stopped
            && error.is_none()
            && running.len() < jobs
            && let Some(run) = left.pop()
        {
            running.push(start(plan, run)?);
        }
        if running.is_empty() {
            break;
        }
        if stopped && !std::mem::replace(&mut passed_on, true) {
            // Ctrl-C in a terminal reaches all processes, any other signal only this one.
            for process in &running {
                let _ = kill_process(Pid::from_child(&process.child), Signal::TERM);
            }
        }
        let mut index = 0;
        while index < running.len() {
            match running[index].child.try_wait().context("waiting for a run")? {
                None => index += 1,
                Some(status) => {
                    let process = running.swap_remove(index);
                    // A process that a signal ended has reported no error of its own.
                    error = error.or(ended(process, status, &bar).err().filter(|_| !stopped));
                }
            }
        }
        bar.tick();
        std::thread::sleep(OFTEN);
    }
    bar.finish_and_clear();
    Ok(Ended { stopped: stop_flag.load(Ordering::Relaxed), error })
}

fn start<'a>(plan: &Plan, run: &'a Planned) -> Result<Running<'a>> {
    let output = tempfile::tempfile().context("creating a file for the output of a run")?;
    let program = std::env::current_exe().context("finding the path of this executable")?;
    let mut command = Command::new(program);
    command.args(run.words(&plan.base)).arg("--end-with-parent");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output.try_clone().context("sharing the output file with a run")?);
    let child = command.spawn().context("starting a run")?;
    Ok(Running { run, child, output })
}

/// Processes the end of a run: prints its summary, or returns its error.
fn ended(process: Running<'_>, status: ExitStatus, bar: &ProgressBar) -> Result<()> {
    let Running { run, mut output, .. } = process;
    if let Some(summary) = run.summary().filter(|_| matches!(status.code(), Some(0 | INCOMPLETE))) {
        bar.inc(1);
        bar.suspend(|| print::line(format!("{}: {}", run.name(), summary.line())));
        return Ok(());
    }
    if status.code() == Some(INCOMPLETE) {
        // The run was stopped before its end.
        return Ok(());
    }
    let mut text = String::new();
    output.rewind().and_then(|()| output.read_to_string(&mut text)).context("reading the output of a run")?;
    let says = text.lines().filter_map(|line| line.strip_prefix("error: ")).next_back();
    Err(anyhow!("{}: {}", run.name(), says.map_or_else(|| status.to_string(), str::to_owned)))
}

/// Returns a progress bar, which is visible on a terminal only.
fn bar(runs: usize, done: usize) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{spinner} {wide_bar} {pos}/{len} runs {elapsed}, {eta} left")?;
    Ok(ProgressBar::new(runs as u64).with_style(style).with_position(done as u64))
}
