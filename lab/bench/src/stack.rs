//! Ping-pongs of UCX and libfabric, from the distribution's packages, over the kernel's TCP or over Remora's
//! libraries.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::dropin::run_command::RunCommand;
use crate::testbed::Testbed;
use crate::testbed::process::Process;
use crate::testbed::veth::{KERNEL, Side};

/// A communication library with a ping-pong program of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// UCX, measured with `ucx_perftest` and tagged messages.
    Ucx,
    /// libfabric, measured with `fi_pingpong` and messages of a connection.
    Libfabric,
}

/// Transport below UCX or libfabric.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Carrier<'a> {
    /// The kernel's TCP.
    Tcp,
    /// Remora's libraries over UDP sockets.
    Verbs(&'a RunCommand),
}

/// The name of the device that Remora's libraries show, and its port.
const DEVICE: &str = "remora0:1";

/// The number of messages of a round.
const MESSAGES: &str = "10000";
/// The number of output lines of a failed program that an error shows.
const LINES: usize = 4;
/// The maximum time in seconds until a client ends.
const TIMEOUT: &str = "20";

impl Stack {
    const ALL: [Stack; 2] = [Stack::Ucx, Stack::Libfabric];

    /// Returns the libraries whose test programs are installed, and prints how to install the others.
    pub(crate) fn installed() -> Vec<Stack> {
        Stack::ALL.into_iter().filter(|stack| stack.is_there()).collect()
    }

    fn is_there(self) -> bool {
        let name = self.program();
        let there = is_installed(self.program());
        if !there {
            tracing::warn!("{name} is not installed (`make setup-bench`): its figures are left out");
        }
        there
    }

    fn program(self) -> &'static str {
        match self {
            Stack::Ucx => "ucx_perftest",
            Stack::Libfabric => "fi_pingpong",
        }
    }

    /// Returns the name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stack::Ucx => "ucx-tcp-pingpong",
            Stack::Libfabric => "libfabric-tcp-pingpong",
        }
    }

    /// Returns the name in the paths of cases.
    pub(crate) fn short_name(self) -> &'static str {
        match self {
            Stack::Ucx => "ucx",
            Stack::Libfabric => "libfabric",
        }
    }

    /// Returns the arguments of both ends, of the server, and of the client.
    fn words(self, carrier: Carrier<'_>, port: u16, len: usize) -> [Vec<String>; 3] {
        let [port, len, far] = [port.to_string(), len.to_string(), Side::Far.kernel().to_string()];
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        let provider = match carrier {
            Carrier::Tcp => "tcp",
            Carrier::Verbs(_) => "verbs",
        };
        match self {
            Stack::Ucx => [
                words(&["-p", &port]),
                words(&[]),
                words(&[&far, "-t", "tag_lat", "-s", &len, "-n", MESSAGES, "-w", "1000", "-f", "-v"]),
            ],
            Stack::Libfabric => [
                words(&["-p", provider, "-e", "msg", "-m", "msg", "-I", MESSAGES, "-S", &len]),
                words(&["-B", &port]),
                words(&["-P", &port, &far]),
            ],
        }
    }

    /// Measures the round trip of messages of `len` bytes in nanoseconds, from this thread's core and the
    /// near end of the pair to the other core and the far end. Each round uses another port, so that it need
    /// not wait for the port of the previous one.
    pub(crate) fn round_trip(
        self,
        testbed: &Testbed,
        carrier: Carrier<'_>,
        port: u16,
        len: usize,
    ) -> Result<f64> {
        let name = self.program();
        let [both, server, client] = self.words(carrier, port, len);
        let mut serving = self.command(testbed, Side::Far, carrier);
        serving.args([&both[..], &server].concat());
        let [_, core] = testbed.cores();
        let mut serving =
            Process::start_server(core, serving)?.context("starting a server to compare with")?;
        let asked = serving.wait_until_listening(port).and_then(|()| {
            let mut command = self.command(testbed, Side::Near, carrier);
            command.args(both).args(client);
            command.output().with_context(|| format!("running {name}"))
        })?;
        let text = String::from_utf8_lossy(&asked.stdout);
        ensure!(asked.status.success(), "{name} failed: {}", reason(&asked));
        let one_way = self.one_way(&text).with_context(|| format!("{name} prints no latency:\n{text}"))?;
        if let Carrier::Verbs(_) = carrier {
            serving.end()?;
        }
        Ok(2000.0 * one_way)
    }

    /// Returns the command that runs a program at a side, with a limit on its time. The command uses `ip
    /// netns exec`, because UCX looks for interfaces in /sys. That file system shows the network from which
    /// it was mounted, and `ip netns exec` mounts it anew.
    fn command(self, testbed: &Testbed, side: Side, carrier: Carrier<'_>) -> Command {
        let limited = ["timeout", TIMEOUT, self.program()];
        let mut command = match carrier {
            Carrier::Tcp => {
                // Without this limit UCX would choose other transports than the kernel's TCP over this pair.
                let mut command = testbed.command(side, limited[0]);
                command.args(&limited[1..]).env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", KERNEL);
                command
            }
            Carrier::Verbs(run) => {
                let mut command = testbed.command(side, run.program());
                run.complete(&mut command, "udp", side.kernel());
                command.args(limited).env("UCX_TLS", "rc_v").env("UCX_NET_DEVICES", DEVICE);
                command
            }
        };
        command.env("UCX_WARN_UNUSED_ENV_VARS", "n");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Parses half of a round trip in microseconds: the median of UCX, or the mean of libfabric.
    fn one_way(self, text: &str) -> Option<f64> {
        let last = text.lines().rfind(|line| !line.trim().is_empty())?;
        match self {
            Stack::Ucx => last.split(',').nth(1)?.trim().parse().ok(),
            Stack::Libfabric => last.split_whitespace().nth_back(1)?.parse().ok(),
        }
    }
}

/// Returns the cause of a program's failure in one line: its exit status and the end of its output. Both
/// streams are included, since UCX logs to standard output.
pub(crate) fn reason(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let lines: Vec<&str> =
        texts.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join(" | ");
    if last.is_empty() {
        format!("{}, without a word", output.status)
    } else {
        format!("{}: {last}", output.status)
    }
}

/// Returns whether a folder of `PATH` holds a program of this name.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_found_in_the_last_line() {
        let ucx = "iterations,50.0_percentile_lat,avg_lat,overall_lat\n10000,6.772,10.269,10.269,5.94\n";
        assert_eq!(Stack::Ucx.one_way(ucx), Some(6.772));
        let libfabric = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                         64      10k     =10k     1.2m        0.20s      6.37      10.04       0.10\n\n";
        assert_eq!(Stack::Libfabric.one_way(libfabric), Some(10.04));
        for stack in Stack::ALL {
            assert_eq!((stack.one_way(""), stack.one_way("error")), (None, None));
        }
    }

    #[test]
    fn a_failure_says_its_reason_wherever_the_program_said_it() {
        let ran = |script: &str| reason(&Command::new("sh").args(["-c", script]).output().unwrap());
        assert_eq!(ran("echo head; echo why; exit 3"), "exit status: 3: head | why");
        assert_eq!(ran("echo out; echo ' err ' >&2; exit 1"), "exit status: 1: out | err");
        assert_eq!(ran("seq 9; exit 1"), "exit status: 1: 6 | 7 | 8 | 9");
        assert_eq!(ran("exit 255"), "exit status: 255, without a word");
    }
}
