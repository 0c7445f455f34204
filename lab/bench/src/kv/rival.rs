//! The rivals: memcached and redis servers, driven over TCP by a client that never blocks.
//!
//! A blocking switch between two vCPUs costs more than either server. The client therefore polls a
//! non-blocking socket and pipelines requests, and its window is stated with the results.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::testbed::process::Process;

/// A key-value store to compare with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rival {
    /// memcached, text protocol, one thread.
    Memcached,
    /// redis, RESP, no persistence.
    Redis,
}

impl Rival {
    /// The list of all rivals.
    pub const ALL: [Rival; 2] = [Rival::Memcached, Rival::Redis];

    /// Returns the name of the program and of its results.
    pub fn name(self) -> &'static str {
        match self {
            Rival::Memcached => "memcached",
            Rival::Redis => "redis",
        }
    }

    /// Returns the command line of the rival's server.
    pub fn command(self, port: u16, megabytes: u64) -> Command {
        let port = port.to_string();
        let megabytes = megabytes.to_string();
        let words: Vec<&str> = match self {
            Rival::Memcached => vec![
                "memcached",
                "-u",
                "nobody",
                "-l",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                "0",
                "-t",
                "1",
                "-m",
                &megabytes,
                "-R",
                "1000",
            ],
            Rival::Redis => vec![
                "redis-server",
                "--bind",
                "127.0.0.1",
                "--port",
                &port,
                "--save",
                "",
                "--appendonly",
                "no",
            ],
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Appends a GET. memcached answers each command with a separate system call, so its clients request many
    /// keys in one command, and so does this one; `close` ends the command.
    pub fn get(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Rival::Memcached => {
                let open = !out.is_empty() && !out.ends_with(b"\r\n");
                out.extend_from_slice(if open { b" " } else { b"get " });
                out.extend_from_slice(key);
            }
            Rival::Redis => resp(&[b"GET", key], out),
        }
    }

    /// Ends the command in the bytes to send.
    pub fn close(self, out: &mut Vec<u8>) {
        if !out.is_empty() && !out.ends_with(b"\r\n") {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends a SET request to `out`.
    pub fn set(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.close(out);
        match self {
            Rival::Memcached => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            Rival::Redis => resp(&[b"SET", key, value], out),
        }
    }

    /// Returns the length of the first complete piece of an answer, and whether the piece completes a
    /// request. memcached's END only closes a list of values. All keys exist, so that every GET returns a
    /// value.
    pub fn answer(self, bytes: &[u8]) -> Option<(usize, usize)> {
        let line = bytes.windows(2).position(|two| two == b"\r\n")?;
        let head = std::str::from_utf8(&bytes[..line]).ok()?;
        let (body, answers) = match self {
            Rival::Memcached if head.starts_with("VALUE") => {
                (head.rsplit(' ').next()?.parse::<usize>().ok()? + 2, 1)
            }
            Rival::Memcached if head == "END" => (0, 0),
            // The length -1 stands for a missing key, and no value follows.
            Rival::Redis if head.starts_with('$') => (head[1..].parse::<usize>().map_or(0, |len| len + 2), 1),
            _ => (0, 1),
        };
        let whole = line + 2 + body;
        (bytes.len() >= whole).then_some((whole, answers))
    }
}

fn resp(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A running rival and the connection to it.
pub struct Running {
    /// The rival that runs.
    pub rival: Rival,
    process: Process,
    stream: TcpStream,
    buffer: Vec<u8>,
    kept: usize,
}

impl Running {
    /// Starts a rival on `core` with `megabytes` MB of memory, and connects to it.
    pub fn start(rival: Rival, core: usize, megabytes: u64) -> Result<Running> {
        let free = remora_netns::free_port()?;
        let mut command = rival.command(free, megabytes);
        let process = Process::start(&mut command)
            .with_context(|| format!("{} is not installed: `make setup-bench` installs it", rival.name()))?;
        let address = SocketAddr::from(([127, 0, 0, 1], free));
        let started = Instant::now();
        let mut running = None;
        while running.is_none() && started.elapsed() < Duration::from_secs(5) {
            running = TcpStream::connect(address).ok();
        }
        let stream = running.with_context(|| format!("{} does not listen", rival.name()))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let running = Running { rival, process, stream, buffer: vec![0; 1 << 20], kept: 0 };
        running.pin(core)?;
        Ok(running)
    }

    /// Moves all threads of the rival to `core`.
    pub fn pin(&self, core: usize) -> Result<()> {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        for task in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let id: i32 = task?.file_name().to_string_lossy().parse()?;
            rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(id), &set)?;
        }
        Ok(())
    }

    /// Sends all bytes and receives answers meanwhile. Returns the number of answered requests.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<usize> {
        let mut answers = 0;
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => answers += self.receive()?,
                Err(error) => return Err(error).context(self.rival.name()),
            }
        }
        Ok(answers)
    }

    /// Receives the available answers and returns their number.
    pub fn receive(&mut self) -> Result<usize> {
        match self.stream.read(&mut self.buffer[self.kept..]) {
            Ok(0) => bail!("{} hung up", self.rival.name()),
            Ok(got) => self.kept += got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error).context(self.rival.name()),
        }
        let mut position = 0;
        let mut answers = 0;
        while let Some((len, count)) = self.rival.answer(&self.buffer[position..self.kept]) {
            position += len;
            answers += count;
        }
        self.buffer.copy_within(position..self.kept, 0);
        self.kept -= position;
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_whole() {
        type Case = (Rival, &'static [u8], Option<(usize, usize)>);
        let cases: [Case; 8] = [
            (Rival::Memcached, b"VALUE k 0 3\r\nabc\r\nEND\r\n", Some((18, 1))),
            (Rival::Memcached, b"VALUE k 0 3\r\nabc", None),
            (Rival::Memcached, b"END\r\nVALUE", Some((5, 0))),
            (Rival::Memcached, b"STORED\r\n", Some((8, 1))),
            (Rival::Redis, b"$3\r\nabc\r\n+OK", Some((9, 1))),
            (Rival::Redis, b"$3\r\nab", None),
            (Rival::Redis, b"$-1\r\n", Some((5, 1))),
            (Rival::Redis, b"+OK\r\n", Some((5, 1))),
        ];
        for (rival, bytes, expected) in cases {
            assert_eq!(rival.answer(bytes), expected, "{rival:?} {:?}", String::from_utf8_lossy(bytes));
        }
    }
}
