//! Unmodified programs on the NIC of a daemon (`remora serve nic --share`).

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use remora_netns::free_port;
use tempfile::TempDir;

use crate::connections::CmServer;
use crate::library::{ROOT, address, folder, program_at, remora, unlimited_at};
use crate::pairs::{pair_of, until_listening};

/// A daemon with a NIC at an address of its own.
struct Daemon {
    address: String,
    folder: TempDir,
    child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Daemon {
    fn start() -> Daemon {
        let address = address();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nic.sock");
        let mut command = Command::new(remora());
        command.args(["serve", "nic", "--share", "--port", "udp", "--address", &address, "--socket"]);
        let child = command.arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Daemon { address, folder, child }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nic.sock")
    }

    /// Returns a program on the daemon's NIC, which ends after a time limit.
    fn program(&self, words: &[&str]) -> Command {
        self.lends(program_at(&self.address, words))
    }

    fn lends(&self, mut command: Command) -> Command {
        command.env("REMORA_NICD", self.socket());
        command
    }

    /// Runs a subcommand of `remora nic`, and returns its output.
    fn nic(&self, words: &[&str]) -> String {
        let output =
            Command::new(remora()).arg("nic").args(words).arg("--socket").arg(self.socket()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The number of tenants.
    fn tenants(&self) -> usize {
        self.nic(&["tenants", "--json"]).lines().filter(|line| line.contains("\"uid\"")).count()
    }
}

/// Programs of each transport and operation, with what the client prints.
const PAIRS: [(&[&str], &str); 7] = [
    (&["ib_write_bw", "-s", "4096", "-n", "500"], " 4096 "),
    (&["ib_send_lat", "-e", "-s", "64", "-n", "200"], " 64 "),
    (&["ib_read_bw", "-s", "65536", "-n", "50"], " 65536 "),
    (&["ib_atomic_lat", "-n", "200"], " 8 "),
    (&["ibv_rc_pingpong", "-e", "-g", "0", "-n", "200"], "200 iters"),
    (&["ibv_srq_pingpong", "-g", "0", "-n", "200"], "200 iters"),
    (&["ibv_ud_pingpong", "-g", "0", "-n", "200", "-s", "1024"], "200 iters"),
];

#[test]
fn programs_of_each_kind_run_on_the_nic_of_a_daemon_and_leave_nothing() {
    let daemon = Daemon::start();
    for (words, expected) in PAIRS {
        let printed = pair_of(&|words| daemon.program(words), words, "-p");
        assert!(printed.contains(expected), "{words:?}: {printed}");
    }
    assert_eq!(daemon.tenants(), 0, "{}", daemon.nic(&["tenants"]));
}

#[test]
fn a_program_with_a_nic_of_its_own_reaches_one_on_the_nic_of_a_daemon() {
    let daemon = Daemon::start();
    let own = address();
    let program = |words: &[&str]| match words.last() {
        Some(&"127.0.0.1") => program_at(&own, words),
        _ => daemon.program(words),
    };
    let printed = pair_of(&program, &["ib_write_bw", "-s", "4096", "-n", "200"], "-p");
    assert!(printed.contains(" 4096 "), "{printed}");
}

#[test]
fn rping_connects_by_the_broker_of_the_daemon_and_checks_its_bytes() {
    let daemon = Daemon::start();
    let line = |line: String| daemon.program(&line.split_whitespace().collect::<Vec<_>>());
    let mut server = CmServer::start(line(format!("rping -s -a {} -C 50", daemon.address)));
    let printed = server.serves(line(format!("rping -c -v -V -C 50 -a {}", daemon.address)));
    assert_eq!(printed.matches("ping data: rdma-ping-").count(), 50, "{printed}");
    server.succeeds();
}

#[test]
fn the_memory_of_a_killed_ib_read_lat_server_is_still_read() {
    let daemon = Daemon::start();
    let port = free_port().unwrap().to_string();
    let words = ["ib_read_lat", "-n", "20000", "-p", &port];
    let mut server = daemon.lends(unlimited_at(&daemon.address, &words));
    server.env("REMORA_KEEP", "reads").stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    until_listening(&mut server, port.parse().unwrap());
    let mut client = daemon.program(&[&words[..], &["127.0.0.1"]].concat());
    let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Until the client has its queue pair in the daemon; it reads from then on.
    let began = Instant::now();
    while daemon.tenants() < 2 {
        assert!(began.elapsed() < Duration::from_secs(20), "the client does not attach");
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(300));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(daemon.nic(&["tenants"]).contains("reads"), "the memory is kept");
    // perftest then misses its server's last message over TCP, and fails after it has printed all times.
    let printed = client.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout);
    assert!(printed.contains("20000 "), "{printed}");

    let again = daemon.program(&["ibv_devinfo"]).env("REMORA_KEEP", "reads").output().unwrap();
    let words = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(words.contains("remora nic end"), "{words}");
    daemon.nic(&["end", "reads"]);
    assert_eq!(daemon.tenants(), 0);
}

/// The least number of tests that must pass.
const LEAST: u32 = 115;

#[test]
fn rdma_cores_own_tests_run_on_the_nic_of_a_daemon() {
    let daemon = Daemon::start();
    let script = format!("{ROOT}/scripts/pyverbs");
    let output = daemon.program(&[&script]).env("REMORA_LIB", folder()).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    let passed: u32 = last.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    assert!(passed >= LEAST, "{last}");
    assert_eq!(daemon.tenants(), 0, "{}", daemon.nic(&["tenants"]));
}
