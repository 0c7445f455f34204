//! A NIC daemon, and a region of a program on the daemon's NIC.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use remora_verbs::rma::{Grant, Rights, RmaOptions, RmaRegion};
use remora_verbs::{Access, Context, Device};

use super::client::{Client, PATIENCE};
use crate::testbed::process::Process;
use remora_options::cores::pin;

/// The length in bytes of the region, and of a read.
const REGION: usize = 4096;
const LEN: u64 = 64;

/// A NIC daemon over UDP on the second core.
pub(crate) struct Daemon {
    socket: PathBuf,
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts a daemon.
    pub(crate) fn start(cores: [usize; 2]) -> Result<Daemon> {
        let folder = tempfile::Builder::new().prefix("remora-bench-").tempdir()?;
        let socket = folder.path().join("nic.sock");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["nicd", "--json", "--child", "--port", "udp", "--socket"]).arg(&socket);
        // A process starts on the core of the thread that starts it, and ends with that thread.
        pin(cores[1])?;
        let started = Process::start_ready(command.stdin(Stdio::null()), 1);
        pin(cores[0])?;
        let (process, _) = started.context("the NIC daemon did not start")?;
        Ok(Daemon { socket, _process: process, _folder: folder })
    }

    /// Attaches one more tenant to the daemon's NIC.
    pub(crate) fn attach(&self) -> Result<Context> {
        Ok(Device::nicd(&self.socket).open()?)
    }
}

/// A region of this program on the daemon's NIC.
pub(crate) struct Lent {
    region: RmaRegion,
    grant: Grant,
    _context: Context,
    _daemon: Daemon,
}

impl Lent {
    /// Starts the daemon and exposes a region.
    pub(crate) fn open(client: &Client, cores: [usize; 2]) -> Result<Lent> {
        let daemon = Daemon::start(cores)?;
        let context = daemon.attach()?;
        let rma = context.open_rma(&RmaOptions::default())?;
        let memory = context.alloc_pd()?.allocate(REGION, Access::LOCAL_WRITE)?;
        let region = rma.expose(memory, Rights::READ, None)?;
        let grant = region.grant(&client.portal.identity());
        Ok(Lent { region, grant, _context: context, _daemon: daemon })
    }

    /// Measures the gap in the reads while the region is deregistered and registered through the daemon.
    pub(crate) fn registered_anew(&mut self, client: &mut Client) -> Result<Duration> {
        let mut read = |grant: &Grant| client.portal.read(&client.local, 0, grant, 0, LEN, PATIENCE);
        read(&self.grant)?;
        let last = Instant::now();
        self.region.register_anew(None)?;
        self.grant = self.region.grant(&client.portal.identity());
        client.portal.read(&client.local, 0, &self.grant, 0, LEN, PATIENCE)?;
        Ok(last.elapsed())
    }
}
