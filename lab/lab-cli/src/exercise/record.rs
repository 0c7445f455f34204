//! The file of the history. An operation is written to the file before it starts, so that the history of a
//! client that is killed is complete.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use remora_check::{Event, Kind, Step};
use rustix::time::{ClockId, clock_gettime};

/// The file of the history, and counters of its operations.
pub(crate) struct Record {
    /// The file; `None` if no history is wanted.
    file: Option<File>,
    /// Number of this process's first client.
    first: u32,
    /// Number of operations that were started.
    pub invoked: u64,
    /// Number of operations that had no effect.
    pub failed: u64,
    /// Number of operations whose result is unknown.
    pub unknown: u64,
}

/// Returns the time in nanoseconds of the clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Record {
    /// Opens the file for clients numbered from `first`. An existing file is continued at its end.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub(crate) fn open(path: Option<&Path>, first: u32) -> Result<Record> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.with_context(|| format!("opening {}", path.display()))
        };
        let file = path.map(open).transpose()?;
        Ok(Record { file, first, invoked: 0, failed: 0, unknown: 0 })
    }

    /// Records that a client is about to start an operation.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn invoke(&mut self, lane: u32, steps: &[Step]) -> Result<()> {
        self.invoked += 1;
        self.write(Kind::Invoke, lane, steps)
    }

    /// Records that the client's operation has taken effect.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn ok(&mut self, lane: u32, steps: &[Step]) -> Result<()> {
        self.write(Kind::Ok, lane, steps)
    }

    /// Records that the client's operation had no effect and never will.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn fail(&mut self, lane: u32) -> Result<()> {
        self.failed += 1;
        self.write(Kind::Fail, lane, &[])
    }

    /// Records that the result of the client's operation is unknown.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn info(&mut self, lane: u32) -> Result<()> {
        self.unknown += 1;
        self.write(Kind::Info, lane, &[])
    }

    fn write(&mut self, kind: Kind, lane: u32, steps: &[Step]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let event = Event { kind, client: self.first + lane, time: now(), steps: steps.to_vec() };
        file.write_all(event.line().as_bytes()).context("writing the history")
    }
}
