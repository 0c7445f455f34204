//! Files that a run records besides its flows, and writes while it continues.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use remora_scenario::Scenario;
use remora_scenario::record::{Frame, Output, Sink};
use remora_scenario::units::Size;

use super::capture::{CaptureArg, Captures};

/// Output files and captures.
struct Files {
    outputs: BTreeMap<Output, (PathBuf, BufWriter<File>)>,
    captures: Captures,
    failed: Option<(PathBuf, io::Error)>,
}

/// A handle of the recorded files, shared by the simulation and the code that ends it.
#[derive(Clone)]
pub(crate) struct Recorded(Arc<Mutex<Files>>);

impl Recorded {
    /// Creates the captures and, if `folder` is given, the files of the scenario's outputs.
    pub(crate) fn create(
        scenario: &Scenario,
        folder: Option<&Path>,
        captures: &[CaptureArg],
        limit: Size,
    ) -> Result<Recorded> {
        let captures = Captures::create(captures, folder, limit)?;
        let mut outputs = BTreeMap::new();
        if let Some(folder) = folder {
            for output in Output::of(scenario) {
                let path = folder.join(output.file_name(scenario.output.format));
                let file = File::create(&path).with_context(|| cannot_write(&path))?;
                outputs.insert(output, (path, BufWriter::new(file)));
            }
        }
        Ok(Recorded(Arc::new(Mutex::new(Files { outputs, captures, failed: None }))))
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the outputs that have a file.
    pub(crate) fn outputs(&self) -> Vec<Output> {
        self.files().outputs.keys().copied().collect()
    }

    /// Writes all buffered data to the files.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut files = self.files();
        if let Some((path, error)) = files.failed.take() {
            return Err(error).with_context(|| cannot_write(&path));
        }
        for (path, file) in files.outputs.values_mut() {
            file.flush().with_context(|| cannot_write(path))?;
        }
        files.captures.flush()
    }

    /// Completes the files and prints the names of the captures.
    pub(crate) fn end(&self) -> Result<()> {
        self.flush()?;
        self.files().captures.end()
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

impl Sink for Recorded {
    fn append(&mut self, output: Output, bytes: &[u8]) {
        let mut files = self.files();
        let Some((path, file)) = files.outputs.get_mut(&output) else { return };
        if let Err(error) = file.write_all(bytes) {
            let path = path.clone();
            files.failed.get_or_insert((path, error));
        }
    }

    fn frame(&mut self, capture: usize, frame: &Frame<'_>) {
        let mut files = self.files();
        if let Err((path, error)) = files.captures.add(capture, frame) {
            files.failed.get_or_insert((path, error));
        }
    }
}
