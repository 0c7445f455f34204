//! `remora serve cache` as its clients meet it: real ones, a load generator, and beside it the real
//! memcached.

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

use crate::running::command;

/// A server that is killed at the end of its test.
pub struct Served {
    child: Child,
    /// Where it listens.
    pub address: String,
    /// And for Remora clients.
    pub chains: Option<String>,
}

impl Served {
    /// `remora serve cache` on a free port.
    #[track_caller]
    pub fn remora(more: &[&str]) -> Served {
        Served::start(&[&["--listen", "127.0.0.1:0"], more].concat())
    }

    /// `remora serve cache` with these options alone.
    #[track_caller]
    pub fn start(more: &[&str]) -> Served {
        let mut command = command(&["serve", "cache"]);
        let mut child = command.args(more).stderr(Stdio::piped()).spawn().expect("the binary");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let said = lines.next().expect("a line");
        let address = said.strip_prefix("serving memcached's text protocol at ").expect(&said);
        let address = address.split(';').next().expect("an address").to_owned();
        let chains = more.contains(&"--chains").then(|| {
            let said = lines.next().expect("another line");
            said.strip_prefix("Remora clients connect at ").expect(&said).to_owned()
        });
        // What it says later must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, address, chains }
    }

    /// The real memcached, which `make setup` installs.
    #[track_caller]
    pub fn memcached() -> Served {
        Served::memcached_with(&[])
    }

    /// With more options.
    #[track_caller]
    pub fn memcached_with(more: &[&str]) -> Served {
        let port = remora_netns::free_port().expect("a port");
        let mut command = Command::new("memcached");
        command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-t", "1", "-p", &port.to_string()]);
        command.args(more);
        let child = command.stderr(Stdio::null()).spawn().expect("memcached: `make setup` installs it");
        let (started, address) = (Instant::now(), format!("127.0.0.1:{port}"));
        while TcpStream::connect(&address).is_err() {
            assert!(started.elapsed() < Duration::from_secs(30), "memcached does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Served { child, address, chains: None }
    }

    /// The port alone.
    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("a port")
    }

    /// A connection to it.
    #[track_caller]
    pub fn talk(&self) -> Talk {
        let stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("an option");
        Talk { stream: BufReader::new(stream) }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The same, to be sent signals.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Waits until it has ended.
    pub fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("its end")
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("its death");
        self.child.wait().expect("its end");
    }

    /// Its end, when it comes by itself or by this signal.
    pub fn ended(&mut self, signal: Option<&str>) -> std::process::ExitStatus {
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

    /// Is it still there?
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, spoken to by hand.
pub struct Talk {
    stream: BufReader<TcpStream>,
}

impl Talk {
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("it listens");
    }

    /// The next line, its end included; nothing if the server hung up.
    #[track_caller]
    pub fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("an answer");
        line
    }

    /// So many bytes.
    #[track_caller]
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// Says a line and takes one.
    #[track_caller]
    pub fn tell(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        String::from_utf8_lossy(&self.line()).trim_end().to_owned()
    }

    /// One figure of `stats`.
    #[track_caller]
    pub fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n");
        let mut found = None;
        loop {
            let line = String::from_utf8(self.line()).expect("text");
            match line.trim_end().strip_prefix("STAT ").and_then(|stat| stat.split_once(' ')) {
                Some((stat, value)) if stat == name => found = Some(value.parse().expect("a number")),
                Some(_) => {}
                None => return found.expect(name),
            }
        }
    }
}
