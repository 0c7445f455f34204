//! Helpers that run `remora` and the programs that it starts, and servers that end with their test. The
//! tests of all four programs include this file.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Names of the programs that the tests use, and of the packages that build them.
const PROGRAMS: [(&str, &str); 4] = [
    ("remora", "remora-cli"),
    ("remora-store", "remora-store-cli"),
    ("remora-sim", "remora-sim-cli"),
    ("remora-lab", "remora-lab-cli"),
];

/// Returns the folder of the programs. Cargo builds those of the package under test; this function builds the
/// others if they are missing.
fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().expect("this test's own file");
        let folder = test.ancestors().nth(2).expect("the profile's folder").to_owned();
        for (program, package) in PROGRAMS {
            if !folder.join(program).exists() {
                let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                cargo.args(["build", "--quiet", "--package", package]);
                if folder.ends_with("release") {
                    cargo.arg("--release");
                }
                assert!(cargo.status().expect("cargo").success(), "{package} cannot be built");
            }
        }
        folder
    });
    &FOLDER
}

/// Returns the path of a program.
pub(crate) fn program(name: &str) -> PathBuf {
    folder().join(name)
}

/// Returns the path of `remora`.
pub(crate) fn binary() -> &'static str {
    static BINARY: LazyLock<String> =
        LazyLock::new(|| program("remora").to_str().expect("a path of letters").to_owned());
    &BINARY
}

/// The result of a command.
pub(crate) struct Ended {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Checks that the command succeeded, and returns its output.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.status, 0, "stderr: {}", self.err);
        self.out
    }

    /// Checks that the command failed with a single line that begins with `error: ` and contains `words`.
    #[track_caller]
    pub(crate) fn one_line(self, words: &str) {
        assert_eq!(self.status, 1, "stdout: {} stderr: {}", self.out, self.err);
        let lines: Vec<&str> = self.err.lines().filter(|line| !line.is_empty()).collect();
        assert!(
            lines.len() == 1 && lines[0].starts_with("error: ") && lines[0].contains(words),
            "wanted {words:?}, got {lines:?}"
        );
    }

    /// Checks that the arguments were refused, that the first line contains `words`, and that no panic is
    /// reported.
    #[track_caller]
    pub(crate) fn bad_arguments(self, words: &str) {
        assert_eq!(self.status, 2, "stdout: {} stderr: {}", self.out, self.err);
        let first = self.err.lines().next().unwrap_or_default();
        assert!(first.starts_with("error: ") && first.contains(words), "wanted {words:?}, got {first:?}");
        assert!(!self.err.contains("panicked") && !self.err.contains("backtrace"), "{}", self.err);
    }
}

/// Returns the command with these arguments. Backtraces are enabled in its environment, as a developer may
/// have them. Signals end the command even if the tests ignore them, as under `nohup`.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal=HUP,INT,TERM", binary()]).args(words);
    command.env("RUST_BACKTRACE", "full").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs `remora` with these arguments to its end.
#[track_caller]
pub(crate) fn remora(words: &[&str]) -> Ended {
    finish(&mut command(words))
}

/// Returns the part of a large number that a test run uses: a fifth, or all of it if `REMORA_WHOLE` is set,
/// as `make nightly` does.
pub(crate) fn part_of(whole: u32) -> u32 {
    if std::env::var_os("REMORA_WHOLE").is_some() { whole } else { whole / 5 }
}

/// Runs a command to its end, which must come within two minutes.
#[track_caller]
pub(crate) fn finish(command: &mut Command) -> Ended {
    finish_within(command, Duration::from_secs(120))
}

/// Runs a command to its end, which must come within `limit`.
#[track_caller]
pub(crate) fn finish_within(command: &mut Command, limit: Duration) -> Ended {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary");
    let reader = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).expect("a pipe");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(Box::new(child.stdout.take().expect("piped")));
    let err = reader(Box::new(child.stderr.take().expect("piped")));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if started.elapsed() > limit {
            child.kill().expect("a child");
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let out = out.join().expect("read");
    let err = err.join().expect("read");
    Ended { status: status.code().unwrap_or(-1), out, err }
}

/// Returns the arguments of a small server on a free port.
pub(crate) fn serve<'a>(design: &'a str, port: &'a str) -> [&'a str; 10] {
    let listen = ["serve", "kv", "--listen", "127.0.0.1:0", "--capacity", "1000"];
    let [a, b, c, d, e, f] = listen;
    [a, b, c, d, e, f, "--design", design, "--port", port]
}

/// A server that is killed at the end of its test.
pub(crate) struct Server {
    child: Child,
    /// Address on which the server listens.
    pub address: String,
    /// Lines that the server printed before it was ready.
    pub messages: Vec<String>,
    /// Address of the metrics endpoint, with `--metrics`.
    pub metrics: String,
    design: String,
    port: String,
}

impl Server {
    /// Starts `remora serve kv` on a free port and waits until it serves.
    #[track_caller]
    pub(crate) fn start(design: &str, port: &str, more: &[&str]) -> Server {
        let mut command = command(&serve(design, port));
        command.args(more);
        Server::of(command, design, port)
    }

    /// Starts a server with this command and waits until it serves.
    #[track_caller]
    pub(crate) fn of(command: Command, design: &str, port: &str) -> Server {
        let mut server = Server::spawn(command, design, port);
        server.wait();
        server
    }

    /// Starts servers that become ready only when all of them run.
    #[track_caller]
    pub(crate) fn together(commands: Vec<Command>, design: &str, port: &str) -> Vec<Server> {
        let spawn = |command| Server::spawn(command, design, port);
        let mut servers: Vec<Server> = commands.into_iter().map(spawn).collect();
        servers.iter_mut().for_each(Server::wait);
        servers
    }

    /// Starts a server without waiting for it.
    #[track_caller]
    pub(crate) fn spawn(mut command: Command, design: &str, port: &str) -> Server {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary");
        let design = design.to_owned();
        let port = port.to_owned();
        Server { child, address: String::new(), messages: Vec::new(), metrics: String::new(), design, port }
    }

    /// Waits until the server is ready.
    #[track_caller]
    pub(crate) fn wait(&mut self) {
        let pipe = self.child.stderr.take().expect("piped");
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        self.address = loop {
            let Some(line) = lines.next() else { panic!("the server ended: {:?}", self.messages) };
            if let Some((_, rest)) = line.split_once(" at ").filter(|_| line.contains("serving ")) {
                break rest.split(';').next().expect("an address").to_owned();
            }
            if let Some((_, address)) = line.split_once("`remora top` at ") {
                self.metrics = address.to_owned();
            }
            self.messages.push(line);
        };
        // A reader must drain later output, or the server would block.
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// Returns the process of the server.
    pub(crate) fn child(&self) -> &Child {
        &self.child
    }

    /// Waits until the server has ended.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("its end")
    }

    /// Returns the arguments of `remora kv VERB` for this server.
    pub(crate) fn words<'a>(&'a self, verb: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec!["kv", verb, "--connect", &self.address, "--design", &self.design];
        words.extend(["--port", &self.port]);
        words.extend(rest);
        words
    }

    /// Runs `remora kv VERB` against this server.
    #[track_caller]
    pub(crate) fn kv(&self, verb: &str, rest: &[&str]) -> Ended {
        remora(&self.words(verb, rest))
    }
}

/// Returns free addresses of this host, for servers that must know each other's addresses in advance. They
/// lie outside the ephemeral range, from which another process could get the same port before the server
/// listens.
pub(crate) fn free_addresses(count: usize) -> Vec<String> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    while listeners.len() < count {
        let drawn = RandomState::new().hash_one(listeners.len());
        listeners.extend(TcpListener::bind(("127.0.0.1", 10_000 + (drawn % 20_000) as u16)));
    }
    listeners.iter().map(|listener| listener.local_addr().expect("an address").to_string()).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that is removed at the end of its test.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    /// Creates a file with these bytes.
    pub(crate) fn new(bytes: &[u8]) -> Scratch {
        Scratch::ending("", bytes)
    }

    /// Creates a file with these bytes and this name ending.
    pub(crate) fn ending(end: &str, bytes: &[u8]) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("remora-test-{}-{}{end}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("a scratch file");
        Scratch(path)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("remora-prism-{}-{name}", std::process::id())))
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect("a plot")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Parses the JSON lines that a command printed.
#[track_caller]
pub(crate) fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// Returns the current counters of the server at this metrics address.
pub(crate) fn counters(address: &str) -> BTreeMap<String, f64> {
    let out = remora(&["top", address, "--once"]).good();
    let pairs = out.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

/// Returns the number of packet blocks in a pcapng file.
#[track_caller]
pub(crate) fn packets(path: &str) -> usize {
    let bytes = std::fs::read(path).expect("a capture");
    let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("4 bytes"));
    assert_eq!(word(0), 0x0a0d_0d0a, "a section header comes first");
    let mut offset = 0;
    let mut count = 0;
    while offset < bytes.len() {
        count += usize::from(word(offset) == 6);
        offset += word(offset + 4) as usize;
    }
    assert_eq!(offset, bytes.len(), "the last block is whole");
    count
}

/// A running daemon, which is killed at the end of its test.
pub(crate) struct Lender {
    pub child: Child,
    output: BufReader<ChildStdout>,
    /// Path of the daemon's socket.
    pub path: PathBuf,
}

impl Lender {
    pub(crate) fn start(test: &str, more: &[&str]) -> Lender {
        Lender::of(command(&["nicd", "--json", "--socket"]), test, more)
    }

    /// Starts a daemon by this command, with a socket path and further arguments appended.
    pub(crate) fn of(mut command: Command, test: &str, more: &[&str]) -> Lender {
        let path = std::env::temp_dir().join(format!("remora-nicd-{}-{test}", std::process::id()));
        command.arg(&path).args(more).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the daemon");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut lender = Lender { child, output, path };
        let ready = lender.next();
        assert_eq!(ready["socket"], lender.at(), "{ready}");
        lender
    }

    pub(crate) fn at(&self) -> &str {
        self.path.to_str().expect("a name")
    }

    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("a signal");
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}
