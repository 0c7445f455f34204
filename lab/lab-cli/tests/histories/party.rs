//! The processes of a run: servers, and clients that record their operations.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use remora_check::History;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::time::{ClockId, clock_gettime};

/// Time limit of every wait. It only passes if something hangs or the machine is stopped.
const LONG: Duration = Duration::from_secs(180);

/// Returns the time of the monotonic clock, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits until `so` returns true.
#[track_caller]
pub(crate) fn until(condition: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < LONG, "{condition}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process on a host. It is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    pub host: usize,
}

impl Process {
    /// Starts a process.
    pub(crate) fn start(mut command: Command, host: usize) -> Process {
        Process { child: command.spawn().expect("the binary"), host }
    }

    /// Stops the process and returns when it has stopped.
    pub(crate) fn stop(&self) {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::STOP).expect("a process to stop");
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(id), options).expect("a child");
        assert!(status.is_some_and(|status| status.stopped()), "it has ended by itself");
    }

    /// Continues the stopped process.
    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("a process that stands still");
    }

    /// Kills the process with SIGKILL and returns when it has ended.
    pub(crate) fn kill(&mut self) {
        assert!(self.child.try_wait().expect("a child").is_none(), "it has ended by itself");
        self.child.kill().expect("a process to kill");
        self.child.wait().expect("a child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that is ready.
pub(crate) struct Server {
    pub process: Process,
    lines: Option<Box<dyn Iterator<Item = String> + Send>>,
}

impl Server {
    /// Starts a server without waiting for it.
    pub(crate) fn spawn(mut command: Command, host: usize) -> Server {
        let mut process = Process::start(take(&mut command), host);
        let stderr = process.child.stderr.take().expect("piped");
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        Server { process, lines: Some(Box::new(lines)) }
    }

    /// Waits until the server is ready.
    #[track_caller]
    pub(crate) fn wait(&mut self) {
        self.serves().unwrap_or_else(|messages| panic!("the server ended: {messages:?}"));
    }

    /// Waits until the server is ready or has ended.
    ///
    /// # Errors
    /// Returns the output of the server if it ended.
    pub(crate) fn serves(&mut self) -> Result<(), Vec<String>> {
        let mut lines = self.lines.take().expect("nobody has waited yet");
        let mut messages = Vec::new();
        while !messages.last().is_some_and(|line: &String| line.contains("serving ")) {
            let Some(line) = lines.next() else { return Err(messages) };
            messages.push(line);
        }
        // A reader must drain later output, or the server would block.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(())
    }
}

fn take(command: &mut Command) -> Command {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    std::mem::replace(command, Command::new("true"))
}

/// A client that records its operations.
pub(crate) struct Client {
    pub process: Process,
    /// Number of this client among all clients that the run has started.
    pub number: u32,
    pub history: PathBuf,
    file: BufReader<std::fs::File>,
    rest: String,
    stdin: Option<ChildStdin>,
    /// Numbers of recorded operations: `begun` were started, `done` succeeded, `failed` had no effect, and
    /// `unknown` have an outcome that the client never learns.
    begun: usize,
    pub done: usize,
    failed: usize,
    pub unknown: usize,
}

impl Client {
    /// Starts a client and waits until its history file exists.
    pub(crate) fn start(mut command: Command, host: usize, number: u32, folder: &Path) -> Client {
        let history = folder.join(format!("client-{number}.jsonl"));
        std::fs::write(&history, "").expect("a file");
        command.arg("--child").args(["--number", &number.to_string()]).arg("--history").arg(&history);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = Process::start(command, host);
        let stdin = process.child.stdin.take();
        let file = BufReader::new(std::fs::File::open(&history).expect("the file"));
        Client {
            process,
            number,
            history,
            file,
            rest: String::new(),
            stdin,
            begun: 0,
            done: 0,
            failed: 0,
            unknown: 0,
        }
    }

    /// Reads the lines that the client has recorded since the last call.
    pub(crate) fn look(&mut self) {
        self.file.read_to_string(&mut self.rest).expect("the history");
        // The end of an incomplete line is read by the next call.
        let end = self.rest.rfind('\n').map_or(0, |last| last + 1);
        let lines: String = self.rest.drain(..end).collect();
        let count = |kind: &str| lines.matches(&format!("\"type\":\"{kind}\"")).count();
        self.begun += count("invoke");
        self.done += count("ok");
        self.failed += count("fail");
        self.unknown += count("info");
    }

    /// Stops the client in the middle of an operation.
    #[track_caller]
    pub(crate) fn stop_in_the_middle(&mut self) {
        until("it is in the middle of something", || {
            self.process.stop();
            self.look();
            let open = self.begun > self.done + self.failed + self.unknown;
            if !open {
                self.process.go_on();
            }
            open
        });
    }

    /// Tells the client to begin no more operations, and waits for its end.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        self.stdin = None;
        let child = &mut self.process.child;
        until("the client ends", || child.try_wait().expect("a child").is_some());
        let status = child.wait().expect("a child");
        assert!(status.success(), "client {}: {status}", self.number);
    }
}

/// Reads the history that a client recorded, alive or dead.
pub(crate) fn read(history: &Path) -> History {
    let file = std::fs::File::open(history).expect("the history");
    History::read(BufReader::new(file)).expect("lines of a history")
}
