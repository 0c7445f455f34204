//! The server process of a store.

use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::args::Args;
use crate::testbed::process::Process;

/// The maximum time until a table is available again.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from(([127, 0, 0, 1], remora_netns::free_port()?)))
}

/// A server process of this program, started with other arguments. It reports when it is ready.
pub(super) struct Server {
    pub(super) words: Vec<String>,
    pub(super) address: SocketAddr,
    pub(super) running: Option<Process>,
}

impl Server {
    /// Describes a server with the benchmark's number of records, at an unused address. `option` and `value`
    /// choose its NIC.
    pub(super) fn new(args: &Args, words: &[&str], option: &str, value: String) -> Result<Server> {
        let address = free_address()?;
        let named = [
            ("--records", args.records.to_string()),
            ("--value-len", args.value_len.to_string()),
            ("--listen", address.to_string()),
            (option, value),
        ];
        let named = named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let words = words.iter().copied().map(str::to_owned).chain(named).collect();
        Ok(Server { words, address, running: None })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let mut command = program()?;
        command.args(&self.words).stderr(Stdio::null());
        let (running, _) = Process::start_ready(&mut command, 1).context("the server did not start")?;
        self.running = Some(running);
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        self.running = None;
    }
}

pub(super) fn program() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.stdin(Stdio::null());
    Ok(command)
}
