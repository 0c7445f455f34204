//! The ping-pong of sockperf in its polling mode, as an independent measurement of raw UDP round trips on
//! this machine.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::testbed::process::Process;

/// A running sockperf server that polls.
pub(crate) struct Sockperf {
    process: Process,
    port: u16,
}

impl Sockperf {
    /// Starts sockperf on `core`; returns `None` if sockperf is not installed.
    pub(crate) fn start(core: usize) -> Result<Option<Sockperf>> {
        let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = match Process::start_on(core, command(&["sr"], port))? {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            started => started.context("starting sockperf")?,
        };
        std::thread::sleep(Duration::from_millis(100));
        Ok(Some(Sockperf { process, port }))
    }

    /// Continues sockperf, or stops it.
    pub(crate) fn go_on(&self, on: bool) -> Result<()> {
        if on { self.process.go_on() } else { self.process.stop() }
    }

    /// Measures the median round trip of messages of `len` bytes from this thread's core, in nanoseconds,
    /// over a second.
    pub(crate) fn round_trip(&self, len: usize) -> Result<f64> {
        let len = len.to_string();
        let output = command(&["pp", "-t", "1", "-m", &len], self.port)
            .stdout(Stdio::piped())
            .output()
            .context("running sockperf")?;
        let text = String::from_utf8_lossy(&output.stdout);
        half(&text).map(|usec| 2000.0 * usec).with_context(|| format!("sockperf prints no median:\n{text}"))
    }
}

fn command(words: &[&str], port: u16) -> Command {
    let mut command = Command::new("sockperf");
    command.args(words).args(["-i", "127.0.0.1", "-p", &port.to_string(), "--nonblocked"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Parses the median. sockperf prints half of a round trip in microseconds.
fn half(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("percentile 50.000"))?;
    line.rsplit('=').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_found_among_the_percentiles() {
        let text =
            "sockperf: ---> percentile 75.000 =    3.820\nsockperf: ---> percentile 50.000 =    3.675\n";
        assert_eq!(half(text), Some(3.675));
        assert_eq!(half("sockperf: ERROR: Can't bind"), None);
    }
}
