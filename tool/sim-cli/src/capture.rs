//! Captures of simulated ports: one pcapng file for each port, with simulated times.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use remora_host::{FrameFile, PacketDirection};
use remora_scenario::record::{Frame, FrameBytes, PortName};
use remora_scenario::units::Size;

/// An argument of `--capture`: `NODE:PORT` or `NODE:PORT=FILE`.
#[derive(Clone, Debug)]
pub(crate) struct CaptureArg {
    pub port: PortName,
    file: Option<PathBuf>,
}

impl FromStr for CaptureArg {
    type Err = String;

    fn from_str(text: &str) -> Result<CaptureArg, String> {
        match text.split_once('=') {
            Some((_, "")) => Err("the capture has no file after `=`: name one, or remove the `=`".into()),
            Some((port, file)) => Ok(CaptureArg { port: port.parse()?, file: Some(file.into()) }),
            None => Ok(CaptureArg { port: text.parse()?, file: None }),
        }
    }
}

/// The capture of one port.
struct Capture {
    port: PortName,
    path: PathBuf,
    /// The open file. `None` after an error and after the end of the run.
    file: Option<FrameFile<BufWriter<File>>>,
    /// Number of frames that were left out because the file was full.
    missing: u64,
}

/// All captures of a run.
pub(crate) struct Captures {
    list: Vec<Capture>,
    limit: Size,
}

impl Captures {
    /// Creates the files. A capture without a file name is created in `folder`, or in the working directory
    /// if that is `None`.
    pub(crate) fn create(asked: &[CaptureArg], folder: Option<&Path>, limit: Size) -> Result<Captures> {
        let mut list: Vec<Capture> = Vec::new();
        for CaptureArg { port, file } in asked {
            let own = format!("{}-{}.pcapng", port.node, port.port);
            let path = match file {
                Some(file) => file.clone(),
                None => folder.map_or(PathBuf::from(&own), |folder| folder.join(&own)),
            };
            if list.iter().any(|other| other.path == path) {
                bail!("two captures have the same file {}: give one of them another file", path.display());
            }
            let made = File::create(&path)
                .and_then(|file| FrameFile::new(BufWriter::new(file), &format!("port {port}")))
                .with_context(|| cannot_write(&path))?;
            list.push(Capture { port: *port, path, file: Some(made), missing: 0 });
        }
        Ok(Captures { list, limit })
    }

    /// Adds a frame unless the capture is full.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The capture then ends.
    pub(crate) fn add(&mut self, number: usize, frame: &Frame<'_>) -> Result<(), (PathBuf, io::Error)> {
        let Capture { port, path, file: place, missing } = &mut self.list[number];
        let Some(file) = place else { return Ok(()) };
        let len = match frame.bytes {
            FrameBytes::Packet(bytes, _) | FrameBytes::Pause(bytes) => bytes.len(),
        };
        if *missing > 0 || file.bytes_with(len) > self.limit.0 {
            if *missing == 0 {
                let us = frame.time_ns as f64 / 1e3;
                let limit = self.limit;
                eprintln!("the capture of {port} is full at {us:.3} us: increase --capture-limit ({limit})");
            }
            *missing += 1;
            return Ok(());
        }
        let direction = if frame.leaves { PacketDirection::Out } else { PacketDirection::In };
        let written = match frame.bytes {
            FrameBytes::Packet(bytes, sealed) => file.packet(frame.time_ns, direction, sealed, bytes),
            FrameBytes::Pause(bytes) => file.frame(frame.time_ns, direction, bytes),
        };
        written.map_err(|error| {
            *place = None;
            (path.clone(), error)
        })
    }

    /// Writes all buffered frames to the files.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for Capture { path, file, .. } in &mut self.list {
            file.as_mut().map_or(Ok(()), FrameFile::flush).with_context(|| cannot_write(path))?;
        }
        Ok(())
    }

    /// Completes the files and prints their names.
    pub(crate) fn end(&mut self) -> Result<()> {
        for Capture { port, path, file, missing } in &mut self.list {
            let Some(file) = file.take() else { continue };
            let frames = file.frames();
            file.finish(*missing).with_context(|| cannot_write(path))?;
            eprintln!("captured {frames} frames of {port} in {}", path.display());
        }
        Ok(())
    }
}

fn cannot_write(path: &Path) -> String {
    format!("the capture {} cannot be written", path.display())
}
