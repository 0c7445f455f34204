//! What others make of the same wire by the kernel's TCP: UCX's and libfabric's ping-pongs, from the
//! distribution's packages.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::testbed::Testbed;
use crate::testbed::process::Process;
use crate::testbed::veth::{KERNEL, Side};

/// A communication library with a ping-pong program of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// UCX, by `ucx_perftest`: tagged messages.
    Ucx,
    /// libfabric, by `fi_pingpong`: messages of a connection.
    Libfabric,
}

/// Messages of a round.
const MESSAGES: &str = "10000";
/// No server takes longer to begin.
const PATIENCE: Duration = Duration::from_secs(20);
/// Lines of a failed program's words that are shown.
const LINES: usize = 4;
/// Seconds; no client takes longer to end.
const TIMEOUT: &str = "20";

impl Stack {
    const ALL: [Stack; 2] = [Stack::Ucx, Stack::Libfabric];

    /// Those whose programs are there; of the others it is said how to get them.
    pub fn installed() -> Vec<Stack> {
        Stack::ALL.into_iter().filter(|stack| stack.is_there()).collect()
    }

    fn is_there(self) -> bool {
        let name = self.program();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
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

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Stack::Ucx => "ucx-tcp-pingpong",
            Stack::Libfabric => "libfabric-tcp-pingpong",
        }
    }

    /// Words for both ends, then those of the server, then those of the client.
    fn words(self, port: u16, len: usize) -> [Vec<String>; 3] {
        let [port, len, far] = [port.to_string(), len.to_string(), Side::Far.kernel().to_string()];
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        match self {
            Stack::Ucx => [
                words(&["-p", &port]),
                words(&[]),
                words(&[&far, "-t", "tag_lat", "-s", &len, "-n", MESSAGES, "-w", "1000", "-f", "-v"]),
            ],
            Stack::Libfabric => [
                words(&["-p", "tcp", "-e", "msg", "-m", "msg", "-I", MESSAGES, "-S", &len]),
                words(&["-B", &port]),
                words(&["-P", &port, &far]),
            ],
        }
    }

    /// Round trip of messages of `len` bytes, nanoseconds: from this thread's core and the near end of the
    /// pair to the other core and the far end. Each has a port of its own, so that a round does not wait for
    /// the last one's.
    pub fn round_trip(self, testbed: &Testbed, port: u16, len: usize) -> Result<f64> {
        let name = self.program();
        let [both, server, client] = self.words(port, len);
        let mut serving = self.start_server(testbed, [&both[..], &server].concat())?;
        let asked = listening(&mut serving, port).and_then(|()| {
            // Not from this thread's own network: UCX looks for interfaces in /sys, which shows those of the
            // network that it was mounted in, and `ip netns exec` mounts it anew.
            let mut command = testbed.command(Side::Near, "timeout");
            limit(&mut command).args([TIMEOUT, name]).args(both).args(client);
            command.output().with_context(|| format!("running {name}"))
        })?;
        let text = String::from_utf8_lossy(&asked.stdout);
        ensure!(asked.status.success(), "{name} failed: {}", reason(&asked));
        let one_way = self.one_way(&text).with_context(|| format!("{name} says no latency:\n{text}"))?;
        Ok(2000.0 * one_way)
    }

    fn start_server(self, testbed: &Testbed, words: Vec<String>) -> Result<Process> {
        let [_, core] = testbed.cores();
        let mut command = testbed.command(Side::Far, self.program());
        limit(&mut command).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        Process::start_on(core, command)?.context("starting a server to compare with")
    }

    /// Both give half of a round trip, in microseconds: UCX its median, libfabric the mean.
    fn one_way(self, text: &str) -> Option<f64> {
        let last = text.lines().rfind(|line| !line.trim().is_empty())?;
        match self {
            Stack::Ucx => last.split(',').nth(1)?.trim().parse().ok(),
            Stack::Libfabric => last.split_whitespace().nth_back(1)?.parse().ok(),
        }
    }
}

/// Why a program failed, in one line: its status and the end of what it said, wherever it said it (UCX logs
/// to its standard output).
fn reason(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let lines: Vec<&str> =
        said.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join(" | ");
    if last.is_empty() {
        format!("{}, without a word", output.status)
    } else {
        format!("{}: {last}", output.status)
    }
}

/// UCX may not take what it would like better than the kernel's TCP over this pair.
fn limit(command: &mut Command) -> &mut Command {
    command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", KERNEL).env("UCX_WARN_UNUSED_ENV_VARS", "n");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// Waits until the server listens: neither takes a second connection, so it cannot be tried.
fn listening(server: &mut Process, port: u16) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(status) = server.ended()? {
            bail!("a server to compare with ended at once: {status}");
        }
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", server.id()));
        if tables.iter().any(|table| listens(&std::fs::read_to_string(table).unwrap_or_default(), port)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("a server to compare with does not listen")
}

/// Does a socket of this table of the kernel's listen on this port?
fn listens(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
    })
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

    #[test]
    fn a_listening_socket_is_seen_in_the_kernels_table() {
        let table = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        // Whoever else runs here may be given the port a moment after it was let go, but not each time.
        let let_go = (0..20).any(|_| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            assert!(listens(&table(), address.port()));
            let near = std::net::TcpStream::connect(address).unwrap();
            drop(listener);
            !listens(&table(), address.port()) && !listens(&table(), near.local_addr().unwrap().port())
        });
        assert!(let_go);
    }
}
