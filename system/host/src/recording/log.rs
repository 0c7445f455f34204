//! The file of a recording, as it is written.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use remora_memory::TableChange;
use remora_nic::Ring;

use super::event::{End, Event, Feature, Header};
use super::{MAGIC, MAX_EVENT};

/// Number of buffered bytes from which they are written.
const BUFFERED: usize = 64 << 10;

/// Maximum number of recordings with the same base name that are written at a time.
const RECORDINGS: u32 = 1000;

/// A range of addresses of this process.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stretch {
    pub start: u64,
    pub len: u64,
}

impl Stretch {
    /// Returns the addresses of a ring.
    pub(super) fn new(ring: &Ring) -> Stretch {
        Stretch { start: ring.bytes().address(), len: ring.bytes().len() as u64 }
    }

    fn overlaps(self, other: Stretch) -> bool {
        self.start < other.start.saturating_add(other.len)
            && other.start < self.start.saturating_add(self.len)
    }
}

/// The file of a recording, its end, and the events that are not written yet.
#[derive(Debug)]
pub(crate) struct Log {
    /// `None` once the recording has ended.
    file: Option<File>,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Number of bytes that were written or are buffered, and the number that may be.
    len: u64,
    limit: u64,
    /// True while the NIC executes a call. Changes of the table are then recorded after it.
    in_call: bool,
    late: Vec<TableChange>,
    /// Memory of the program's queues.
    pub(super) queues: Vec<Stretch>,
    /// True once a queue was registered as memory, so that work requests may be changed in it.
    pub(super) rewrites: AtomicBool,
}

impl Log {
    /// Begins a recording of up to `limit` bytes. If another NIC is writing to `path`, the name gets the next
    /// free number.
    ///
    /// # Errors
    /// The error of creating, locking or writing the file.
    pub(crate) fn create(path: &Path, limit: u64, header: &Header) -> io::Result<Log> {
        let (file, path) = claim(path)?;
        let mut log = Log {
            file: Some(file),
            path,
            buffer: Vec::new(),
            len: 0,
            limit,
            in_call: false,
            late: Vec::new(),
            queues: Vec::new(),
            rewrites: AtomicBool::new(false),
        };
        log.buffer.extend_from_slice(MAGIC.as_bytes());
        append(&mut log.buffer, header);
        log.len = log.buffer.len() as u64;
        log.write()?;
        Ok(log)
    }

    /// Returns whether events are still recorded.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the number of bytes of the recording.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Records an event. At the limit, the recording ends.
    pub(crate) fn put(&mut self, event: &Event) {
        if self.file.is_none() {
            return;
        }
        let before = self.buffer.len();
        append(&mut self.buffer, event);
        self.len += (self.buffer.len() - before) as u64;
        if self.len > self.limit && !matches!(event, Event::End(_)) {
            self.end(End::Limit(self.limit));
        } else if self.buffer.len() >= BUFFERED {
            self.flush();
        }
    }

    /// Records the end, and closes the file.
    pub(crate) fn end(&mut self, end: End) {
        if self.file.is_none() {
            return;
        }
        self.put(&Event::End(end));
        self.flush();
        if self.file.take().is_some() && end != End::Closed {
            tracing::warn!(file = %self.path.display(), %end, "the recording ends");
        }
    }

    /// Writes the buffered events. If that fails, the recording ends.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.write() {
            tracing::error!(file = %self.path.display(), %error, "the recording cannot be written and ends");
            self.file = None;
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Marks the begin of a call of the NIC.
    pub(crate) fn begin_call(&mut self) {
        self.in_call = true;
    }

    /// Marks the end of a call of the NIC, and records the changes of the table during it.
    pub(crate) fn end_call(&mut self) {
        self.in_call = false;
        for change in std::mem::take(&mut self.late) {
            self.put(&Event::Table(change));
        }
    }

    /// Records a change of the table.
    pub(crate) fn table(&mut self, change: &TableChange) {
        if let TableChange::Registered { ranges, .. } = change {
            if ranges.iter().any(|range| range.len == u64::MAX) {
                self.end(End::Feature(Feature::ImplicitRegion));
            }
            let memory = |range: &remora_memory::Addresses| Stretch { start: range.start, len: range.len };
            if ranges.iter().any(|range| self.queues.iter().any(|queue| queue.overlaps(memory(range)))) {
                self.rewrites.store(true, Ordering::Relaxed);
                self.end(End::Feature(Feature::Chains));
            }
        }
        match self.in_call {
            true if self.file.is_some() => self.late.push(change.clone()),
            true => {}
            false => self.put(&Event::Table(change.clone())),
        }
    }
}

/// Appends a [`Header`] or an [`Event`] as a file holds it: its length, its checksum and its bytes.
pub fn append(buffer: &mut Vec<u8>, value: &impl serde::Serialize) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 8]);
    let extended = postcard::to_extend(value, std::mem::take(buffer));
    *buffer = extended.expect("lists have lengths");
    let body = &buffer[start + 8..];
    debug_assert!(body.len() <= MAX_EVENT, "an event is short");
    let sum = crc32fast::hash(body);
    let len = body.len() as u32;
    buffer[start..start + 4].copy_from_slice(&len.to_le_bytes());
    buffer[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Opens the file of a recording, or the next one with a number that no other NIC is writing.
fn claim(path: &Path) -> io::Result<(File, PathBuf)> {
    for number in 1..=RECORDINGS {
        let numbered = match (number, path.extension()) {
            (1, _) => path.to_owned(),
            (_, Some(extension)) => path.with_extension(format!("{number}.{}", extension.to_string_lossy())),
            (_, None) => path.with_extension(number.to_string()),
        };
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&numbered)?;
        match file.try_lock() {
            Ok(()) => {
                // A pipe or a device has no length.
                let _ = file.set_len(0);
                return Ok((file, numbered));
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "too many recordings have this name; choose another one"))
}
