//! The log of faults: a line of JSON for each, without times, so that equal runs have equal logs.

use remora_verbs::OpenError;
use remora_verbs::faults::{Occurrence, WorkKind};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::attributes::NAME;

/// The log of faults.
#[derive(Debug)]
pub(super) struct Log(Option<Mutex<File>>);

/// The subject of a fault.
pub(super) enum FaultSubject {
    /// The queue pair that was created as number `number`.
    QueuePair { number: u32, work: WorkKind },
    /// A registration of `len` bytes beside `held` ones.
    Registration { held: u64, len: u64 },
}

impl Log {
    /// Opens the file at this path, to which several processes may append.
    pub(super) fn open(path: Option<&str>) -> Result<Log, OpenError> {
        let Some(path) = path else { return Ok(Log(None)) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| OpenError::Port(format!("the log of faults {path}: {error}")))?;
        Ok(Log(Some(Mutex::new(file))))
    }

    /// Writes a fault.
    pub(super) fn write(&self, occurrence: &Occurrence, subject: &FaultSubject) {
        let Occurrence { rule: (table, number), count, effect } = occurrence;
        let subject = match subject {
            FaultSubject::QueuePair { number, work } => {
                format!("\"qp\":{number},\"work\":\"{}\"", work.name())
            }
            FaultSubject::Registration { held, len } => format!("\"held\":{held},\"len\":{len}"),
        };
        self.line(&format!(
            "\"rule\":\"{table} {number}\",{subject},\"count\":{count},\"effect\":\"{effect}\""
        ));
    }

    /// Writes an incident, by its number in the file.
    pub(super) fn incident(&self, number: usize, effect: &str) {
        self.line(&format!("\"rule\":\"incident {number}\",\"effect\":\"{effect}\""));
    }

    fn line(&self, fields: &str) {
        let Some(file) = &self.0 else { return };
        // One write, which the system does not mix with those of other processes. A full disk ends the log
        // only.
        let line = format!("{{\"device\":\"{NAME}\",{fields}}}\n");
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}
