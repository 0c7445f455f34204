//! The history as it is written: what is asked stands in the file before anything is done about it, so a
//! client that is killed leaves it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use remora_check::{Event, Kind, Step};
use rustix::time::{ClockId, clock_gettime};

/// The file, and what was written to it.
pub struct Record {
    /// None: nobody wants it.
    file: Option<File>,
    /// Of this process's clients.
    first: u32,
    /// Operations.
    pub invoked: u64,
    /// Of them, those that did nothing.
    pub failed: u64,
    /// Of them, those of which nobody knows.
    pub unknown: u64,
}

/// The one clock that all processes of a machine read, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Record {
    /// A file for clients numbered from `first`; of one that is there, its end.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: Option<&Path>, first: u32) -> Result<Record> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.with_context(|| format!("opening {}", path.display()))
        };
        let file = path.map(open).transpose()?;
        Ok(Record { file, first, invoked: 0, failed: 0, unknown: 0 })
    }

    /// A client begins an operation, after this.
    ///
    /// # Errors
    /// The file's.
    pub fn invoke(&mut self, lane: u32, steps: &[Step]) -> Result<()> {
        self.invoked += 1;
        self.write(Kind::Invoke, lane, steps)
    }

    /// Its operation is done.
    ///
    /// # Errors
    /// The file's.
    pub fn ok(&mut self, lane: u32, steps: &[Step]) -> Result<()> {
        self.write(Kind::Ok, lane, steps)
    }

    /// Its operation did nothing and never will.
    ///
    /// # Errors
    /// The file's.
    pub fn fail(&mut self, lane: u32) -> Result<()> {
        self.failed += 1;
        self.write(Kind::Fail, lane, &[])
    }

    /// Nobody knows about its operation.
    ///
    /// # Errors
    /// The file's.
    pub fn info(&mut self, lane: u32) -> Result<()> {
        self.unknown += 1;
        self.write(Kind::Info, lane, &[])
    }

    fn write(&mut self, kind: Kind, lane: u32, steps: &[Step]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let event = Event { kind, client: self.first + lane, time: now(), steps: steps.to_vec() };
        file.write_all(event.line().as_bytes()).context("writing the history")
    }
}
