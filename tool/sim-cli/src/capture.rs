//! Captures of ports: a pcapng file each, with the times of the simulation.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use remora_host::{FrameFile, PacketDirection};
use remora_scenario::record::{Frame, FrameBytes, PortName};
use remora_scenario::units::Size;

/// `NODE:PORT`, or `NODE:PORT=FILE`.
#[derive(Clone, Debug)]
pub struct CaptureArg {
    pub port: PortName,
    file: Option<PathBuf>,
}

impl FromStr for CaptureArg {
    type Err = String;

    fn from_str(text: &str) -> Result<CaptureArg, String> {
        match text.split_once('=') {
            Some((_, "")) => Err("the capture has no file behind `=`: name one, or drop the `=`".into()),
            Some((port, file)) => Ok(CaptureArg { port: port.parse()?, file: Some(file.into()) }),
            None => Ok(CaptureArg { port: text.parse()?, file: None }),
        }
    }
}

/// The file of one port.
struct Capture {
    port: PortName,
    path: PathBuf,
    /// `None` behind a failure.
    file: Option<FrameFile<BufWriter<File>>>,
    /// Frames that came when the file was full.
    missing: u64,
}

/// All captures of a run.
pub struct Captures {
    list: Vec<Capture>,
    limit: Size,
}

impl Captures {
    /// Makes the files: in `folder`, or here, where none is named.
    pub fn create(asked: &[CaptureArg], folder: Option<&Path>, limit: Size) -> Result<Captures> {
        let mut list: Vec<Capture> = Vec::new();
        for CaptureArg { port, file } in asked {
            let own = format!("{}-{}.pcapng", port.node, port.port);
            let path = match file {
                Some(file) => file.clone(),
                None => folder.map_or(PathBuf::from(&own), |folder| folder.join(&own)),
            };
            if list.iter().any(|other| other.path == path) {
                bail!("two captures go to {}: name another file for one", path.display());
            }
            let made = File::create(&path)
                .and_then(|file| FrameFile::new(BufWriter::new(file), &format!("port {port}")))
                .with_context(|| cannot_write(&path))?;
            list.push(Capture { port: *port, path, file: Some(made), missing: 0 });
        }
        Ok(Captures { list, limit })
    }

    /// Adds a frame, if the capture is not full.
    ///
    /// # Errors
    /// That of writing the file, which then ends.
    pub fn add(&mut self, number: usize, frame: &Frame<'_>) -> Result<(), (PathBuf, io::Error)> {
        let Capture { port, path, file: place, missing } = &mut self.list[number];
        let Some(file) = place else { return Ok(()) };
        let len = match frame.bytes {
            FrameBytes::Packet(bytes, _) | FrameBytes::Pause(bytes) => bytes.len(),
        };
        if *missing > 0 || file.bytes_with(len) > self.limit.0 {
            if *missing == 0 {
                let (us, limit) = (frame.time_ns as f64 / 1e3, self.limit);
                eprintln!(
                    "the capture at {port} is full at {us:.3} us: --capture-limit is {limit}, raise it"
                );
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

    /// Writes what was recorded so far.
    pub fn flush(&mut self) -> Result<()> {
        for Capture { path, file, .. } in &mut self.list {
            file.as_mut().map_or(Ok(()), FrameFile::flush).with_context(|| cannot_write(path))?;
        }
        Ok(())
    }

    /// Ends the files, and says where they are.
    pub fn end(&mut self) -> Result<()> {
        for Capture { port, path, file, missing } in &mut self.list {
            let Some(file) = file.take() else { continue };
            let frames = file.frames();
            file.finish(*missing).with_context(|| cannot_write(path))?;
            eprintln!("captured at {port}: {frames} frames, in {}", path.display());
        }
        Ok(())
    }
}

fn cannot_write(path: &Path) -> String {
    format!("the capture {} cannot be written", path.display())
}
