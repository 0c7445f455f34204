//! A process that a benchmark starts, and that is killed when its value is dropped.
//!
//! Processes that poll on one core take turns: all but one are stopped, so that the measured one has the
//! core alone.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use remora_options::cores::pin;

/// A running process.
pub struct Process {
    child: Child,
    /// The file that collects the standard error of a compared server.
    stderr: Option<File>,
}

/// The maximum time until a server is ready, and until it ends after its client.
const PATIENCE: Duration = Duration::from_secs(20);

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// Fails if there is no such program or the system refuses.
    pub fn start(command: &mut Command) -> io::Result<Process> {
        command.spawn().map(|child| Process { child, stderr: None })
    }

    /// Starts a program on a core. A process inherits the cores of the thread that starts it.
    ///
    /// # Errors
    /// Fails if the core does not exist. The inner error is that of [`start`](Process::start).
    pub fn start_on(core: usize, mut command: Command) -> Result<io::Result<Process>> {
        let starting = std::thread::spawn(move || pin(core).map(|()| Process::start(&mut command)));
        starting.join().map_err(|_| anyhow::anyhow!("starting a process of the benchmark panicked"))?
    }

    /// Starts a server to compare with on a core. Its standard output is discarded. Its standard error goes
    /// to a file, so that the server never blocks, and is quoted if the server exits before it listens.
    ///
    /// # Errors
    /// See [`start_on`](Process::start_on). Also fails if no file can be created.
    pub fn start_server(core: usize, mut command: Command) -> Result<io::Result<Process>> {
        let stderr = tempfile::tempfile().context("a file for what a server says")?;
        command.stdout(Stdio::null()).stderr(stderr.try_clone()?);
        let started = Process::start_on(core, command)?;
        Ok(started.map(|mut process| {
            process.stderr = Some(stderr);
            process
        }))
    }

    /// Starts a program of this project, and waits for the `count` lines that it prints when it is ready.
    ///
    /// # Errors
    /// Fails if the program does not start, or ends before it has printed the lines.
    pub fn start_ready(command: &mut Command, count: usize) -> Result<(Process, Vec<String>)> {
        let mut process = Process::start(command.stdout(Stdio::piped()))?;
        let output = BufReader::new(process.child.stdout.take().context("its output")?);
        let lines = output.lines().take(count).collect::<io::Result<Vec<String>>>()?;
        if lines.len() < count {
            bail!("it ended too early: {}", process.child.wait()?);
        }
        Ok((process, lines))
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the pipe to standard input; `None` if there is no pipe or it was taken before.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns the exit status, or `None` while the process runs.
    ///
    /// # Errors
    /// Fails if the system cannot report the status.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until the process ends by itself.
    pub fn wait(&mut self) {
        let _ = self.child.wait();
    }

    /// Waits until a TCP port is in the listening state. It does not connect, since some servers accept only
    /// one connection.
    ///
    /// # Errors
    /// Fails if the process exits first or does not listen in time.
    pub fn wait_until_listening(&mut self, port: u16) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.ended()? {
                bail!("a server to compare with ended at once: {status}{}", self.last_words());
            }
            let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.id()));
            if tables.iter().any(|table| listens(&std::fs::read_to_string(table).unwrap_or_default(), port)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("a server to compare with does not listen")
    }

    /// Returns the last lines of standard error, joined to one.
    fn last_words(&mut self) -> String {
        let mut output = String::new();
        if let Some(stderr) = &mut self.stderr {
            // A failure to read the file only shortens the error message.
            let _ = stderr.rewind().and_then(|()| stderr.read_to_string(&mut output));
        }
        let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(3)..];
        if last.is_empty() { String::new() } else { format!(": {}", last.join(" | ")) }
    }

    /// Waits until the process ends by itself. If it does not end soon, sends it SIGTERM, which it passes on
    /// to a program that it runs.
    ///
    /// # Errors
    /// Fails if the system reports an error.
    pub fn end(&mut self) -> Result<()> {
        let started = Instant::now();
        while self.ended()?.is_none() {
            if started.elapsed() > PATIENCE {
                kill_process(Pid::from_child(&self.child), Signal::TERM).context("ending a process")?;
                self.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Stops the process with a signal, and returns when it has stopped.
    ///
    /// # Errors
    /// Fails if the process has died.
    pub fn stop(&self) -> Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::STOP).context("stopping a process of the benchmark")?;
        // The status is not consumed, so that the owner can still read it if the process has died.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(id), options).context("waiting for a process of the benchmark")?;
        ensure!(status.is_some_and(|status| status.stopped()), "a process of the benchmark has died");
        Ok(())
    }

    /// Kills the process. Dropping this value waits for its end.
    ///
    /// # Errors
    /// Fails if the process has died before.
    pub fn kill(&self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::KILL).context("killing a process of the benchmark")
    }

    /// Continues the stopped process.
    ///
    /// # Errors
    /// Fails if the process has died and was waited for.
    pub fn go_on(&self) -> Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::CONT).context("continuing a process of the benchmark")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a socket in this table of `/proc/net` listens on the port.
fn listens(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_stopped_process_does_nothing_until_it_may_go_on() {
        let mut process =
            Process::start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let mut input = process.input().unwrap();
        for round in 0..3u8 {
            process.stop().unwrap();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
            assert!(stat.contains(") T "), "{stat}");
            input.write_all(&[round]).unwrap();
            process.go_on().unwrap();
            let mut back = [0xff];
            process.child.stdout.as_mut().unwrap().read_exact(&mut back).unwrap();
            assert_eq!(back, [round]);
        }
        process.child.kill().unwrap();
        // Stopping a dead process fails, and its status is still there for the owner.
        while process.stop().is_ok() {}
        assert!(!process.ended().unwrap().unwrap().success());
    }

    #[test]
    fn a_program_is_ready_when_it_has_printed_its_lines_and_else_its_status_is_told() {
        let mut echo = Command::new("sh");
        let (_, lines) = Process::start_ready(echo.args(["-c", "echo 1; echo 2; cat"]), 2).unwrap();
        assert_eq!(lines, ["1", "2"]);
        let mut fails = Command::new("sh");
        let error = Process::start_ready(fails.args(["-c", "echo 1; exit 3"]), 2).err().unwrap();
        assert_eq!(error.to_string(), "it ended too early: exit status: 3");
    }

    #[test]
    fn a_server_that_ends_before_it_listens_is_quoted() {
        let mut server = Command::new("sh");
        // The server writes more than a pipe holds, and its child keeps standard error open.
        let script = "seq 100000 >&2; sleep 60 & echo 'no such port' >&2; exit 3";
        server.args(["-c", script]);
        let mut server = Process::start_server(0, server).unwrap().unwrap();
        let error = server.wait_until_listening(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a server to compare with ended at once: exit status: 3: 99999 | 100000 | no such port"
        );
    }

    #[test]
    fn a_listening_socket_is_seen_in_the_kernels_table() {
        let table = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        // Another process may get the port after it is released, but not every time.
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
