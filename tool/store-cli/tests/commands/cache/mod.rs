//! `remora serve cache` with real clients, a load generator, and the real memcached beside it.

mod chains;
mod clients;
mod differential;
mod meta;
mod server;
mod sockets;
mod suite;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use remora_netns::Process;

use crate::running::command;

/// A cache server that is killed at the end of its test.
pub(crate) struct Served {
    child: Process,
    /// TCP address of the server.
    pub address: String,
    /// Address for Remora clients, if the server has one.
    pub chains: Option<String>,
}

impl Served {
    /// Starts `remora serve cache` on a free port.
    #[track_caller]
    pub(crate) fn remora(more: &[&str]) -> Served {
        Served::start(&[&["--listen", "127.0.0.1:0"], more].concat())
    }

    /// Starts `remora serve cache` with only these options.
    #[track_caller]
    pub(crate) fn start(more: &[&str]) -> Served {
        let mut command = command(&["serve", "cache"]);
        let mut child = Process::start(command.args(more).stderr(Stdio::piped()));
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let line = lines.next().expect("a line");
        let address = line.strip_prefix("serving memcached's text protocol at ").expect(&line);
        let address = address.split(';').next().expect("an address").to_owned();
        let chains = more.contains(&"--chains").then(|| {
            let line = lines.next().expect("another line");
            line.strip_prefix("Remora clients connect at ").expect(&line).to_owned()
        });
        // A reader must drain later output, or the server would block.
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, address, chains }
    }

    /// Starts the real memcached, which `make setup` installs.
    #[track_caller]
    pub(crate) fn memcached() -> Served {
        Served::memcached_with(&[])
    }

    /// Starts the real memcached with further options.
    #[track_caller]
    pub(crate) fn memcached_with(more: &[&str]) -> Served {
        let port = remora_netns::free_port().expect("a port");
        let mut command = Command::new("memcached");
        command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-t", "1", "-p", &port.to_string()]);
        command.args(more);
        let child = Process::start(command.stderr(Stdio::null()));
        let started = Instant::now();
        let address = format!("127.0.0.1:{port}");
        while TcpStream::connect(&address).is_err() {
            assert!(started.elapsed() < Duration::from_secs(30), "memcached does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Served { child, address, chains: None }
    }

    /// Returns the port number of the TCP address.
    pub(crate) fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("a port")
    }

    /// Opens a connection to the server.
    #[track_caller]
    pub(crate) fn talk(&self) -> Talk {
        let stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("an option");
        Talk { stream: BufReader::new(stream) }
    }

    /// Returns the process ID of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process of the server.
    pub(crate) fn child(&self) -> &Child {
        &self.child
    }

    /// Waits until the server has ended.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("its end")
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill();
    }

    /// Sends a signal, if one is given, and waits until the server has ended. Returns its exit status.
    pub(crate) fn ended(&mut self, signal: Option<&str>) -> std::process::ExitStatus {
        if let Some(signal) = signal {
            let mut kill = Command::new("kill");
            assert!(kill.args([signal, &self.pid().to_string()]).status().expect("kill").success());
        }
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns whether the server still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }
}

/// A connection that sends commands as text.
pub(crate) struct Talk {
    stream: BufReader<TcpStream>,
}

impl Talk {
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("it listens");
    }

    /// Returns the next line with its line end. Empty if the server has closed the connection.
    #[track_caller]
    pub(crate) fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("an answer");
        line
    }

    /// Reads exactly `count` bytes.
    #[track_caller]
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// Sends a line and returns the first line of the answer.
    #[track_caller]
    pub(crate) fn tell(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        String::from_utf8_lossy(&self.line()).trim_end().to_owned()
    }

    /// Returns one number from `stats`.
    #[track_caller]
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n");
        let mut result = None;
        loop {
            let line = String::from_utf8(self.line()).expect("text");
            match line.trim_end().strip_prefix("STAT ").and_then(|stat| stat.split_once(' ')) {
                Some((stat, value)) if stat == name => result = Some(value.parse().expect("a number")),
                Some(_) => {}
                None => return result.expect(name),
            }
        }
    }
}
