//! The rival etcd: three members on the loopback interface, with one key per block, driven over non-blocking
//! connections.
//!
//! Each connection has one request in flight, through the JSON gateway of a member. Reads are linearizable,
//! which is etcd's default.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use remora_store::Random;

use crate::testbed::process::Process;
use crate::{Report, Row, histogram};

/// The number of members of the cluster.
const MEMBERS: usize = 3;
/// The minimum number of requests of a round for each connection.
const EACH: u64 = 20;
const LEAST: u64 = 200;
/// The number of keys in use. Each is written before the measurement.
const KEYS: u64 = 256;
/// The maximum time that etcd may take to start, and to answer one request.
const PATIENCE: Duration = Duration::from_secs(20);

/// The folders for etcd's files, by their name in the rows: on a disk, where each fsync waits, or in memory.
const PLACES: [(&str, &str); 2] = [("fsync", "/var/tmp"), ("files-in-memory", "/dev/shm")];

/// A running cluster and its files.
struct Cluster {
    members: Vec<Process>,
    clients: Vec<SocketAddr>,
    folder: PathBuf,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from(([127, 0, 0, 1], remora_netns::free_port()?)))
}

impl Cluster {
    fn start(place: &Path, core: usize) -> Result<Cluster> {
        let folder = place.join(format!("remora-bench-etcd-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let peers = (0..MEMBERS).map(|_| free_address()).collect::<Result<Vec<SocketAddr>>>()?;
        let clients = (0..MEMBERS).map(|_| free_address()).collect::<Result<Vec<SocketAddr>>>()?;
        let all: Vec<String> =
            peers.iter().enumerate().map(|(index, peer)| format!("member{index}=http://{peer}")).collect();
        let mut cluster = Cluster { members: Vec::new(), clients, folder };
        for (index, peer) in peers.iter().enumerate() {
            let peer = format!("http://{peer}");
            let client = format!("http://{}", cluster.clients[index]);
            let mut command = Command::new("taskset");
            command
                .args(["-c", &core.to_string(), "etcd", "--name", &format!("member{index}")])
                .arg("--data-dir")
                .arg(cluster.folder.join(index.to_string()))
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let member = Process::start(&mut command);
            cluster.members.push(member.context("etcd is not installed: `make setup-bench` installs it")?);
        }
        Ok(cluster)
    }
}

/// Returns the value of `content-length:` in the head of an answer, and the length of the head.
fn answer_len(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let len = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    Some((head + 4, len))
}

/// A connection with at most one request in flight.
struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
    asked: Option<Instant>,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Connection> {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address);
        while stream.is_err() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            stream = TcpStream::connect(address);
        }
        let stream = stream.with_context(|| format!("etcd does not listen at {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, bytes: Vec::new(), asked: None })
    }

    fn ask(&mut self, call: &str, question: &str) -> Result<()> {
        let head = format!(
            "POST /v3/kv/{call} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n",
            question.len()
        );
        self.asked = Some(Instant::now());
        // A single write suffices, because the request is shorter than the empty socket buffer.
        let sent = self.stream.write(&[head.as_bytes(), question.as_bytes()].concat())?;
        ensure!(sent == head.len() + question.len(), "etcd does not accept a request");
        Ok(())
    }

    /// Returns the next answer and its latency; `None` while there is no complete answer.
    fn take(&mut self) -> Result<Option<(String, Duration)>> {
        let Some(asked) = self.asked else { return Ok(None) };
        let mut more = [0; 4096];
        match self.stream.read(&mut more) {
            Ok(0) => bail!("etcd closed the connection"),
            Ok(got) => self.bytes.extend_from_slice(&more[..got]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("etcd"),
        }
        let Some((head, len)) = answer_len(&self.bytes) else { return Ok(None) };
        if self.bytes.len() < head + len {
            return Ok(None);
        }
        let answer = String::from_utf8_lossy(&self.bytes[..head + len]).into_owned();
        self.bytes.drain(..head + len);
        self.asked = None;
        Ok(Some((answer, asked.elapsed())))
    }
}

/// The connections that put and get blocks.
struct Register {
    connections: Vec<Connection>,
    value: String,
    random: Random,
}

impl Register {
    fn question(&mut self, key: u64, write: bool) -> (&'static str, String) {
        let key = STANDARD.encode(key.to_le_bytes());
        match write {
            true => ("put", format!("{{\"key\":\"{key}\",\"value\":\"{}\"}}", self.value)),
            false => ("range", format!("{{\"key\":\"{key}\"}}")),
        }
    }

    /// Sends `count` requests over the first `clients` connections and appends the latency of each to `took`.
    fn run(
        &mut self,
        clients: usize,
        count: u64,
        mut next: impl FnMut(&mut Random, u64) -> (u64, bool),
        mut took: impl FnMut(Duration),
    ) -> Result<()> {
        let mut begun = 0;
        let mut over = 0;
        let mut heard = Instant::now();
        while over < count {
            for index in 0..clients {
                if self.connections[index].asked.is_none() && begun < count {
                    let (key, write) = next(&mut self.random, begun);
                    let (call, question) = self.question(key, write);
                    self.connections[index].ask(call, &question)?;
                    begun += 1;
                }
                let Some((answer, latency)) = self.connections[index].take()? else { continue };
                ensure!(answer.starts_with("HTTP/1.1 200"), "etcd refuses: {answer}");
                (over, heard) = (over + 1, Instant::now());
                took(latency);
            }
            ensure!(heard.elapsed() < PATIENCE, "etcd does not answer");
        }
        Ok(())
    }
}

/// Measures etcd, with its files on the disk and in memory.
///
/// # Errors
/// Fails if etcd is not installed or does not answer.
pub(crate) fn run(
    core: usize,
    len: u32,
    blocks: u64,
    clients: [u32; 2],
    rounds: u32,
    report: &mut Report,
) -> Result<()> {
    for (name, place) in PLACES {
        let cluster = Cluster::start(Path::new(place), core)?;
        let most = clients.into_iter().max().unwrap_or(1) as usize;
        let connections = (0..most).map(|index| Connection::open(cluster.clients[index % MEMBERS]));
        let connections = connections.collect::<Result<Vec<Connection>>>()?;
        let value = STANDARD.encode(vec![7; len as usize]);
        let mut register = Register { connections, value, random: Random::new(1) };
        let keys = blocks.min(KEYS);
        elected(&mut register)?;
        register.run(most, keys, |_, index| (index, true), |_| ())?;
        for clients in clients {
            let mut p50 = Vec::new();
            let mut rates = Vec::new();
            let count = (u64::from(clients) * EACH).max(LEAST);
            for _ in 0..rounds {
                let mut latencies = histogram()?;
                let started = Instant::now();
                register.run(
                    clients as usize,
                    count,
                    |random, _| (random.below(keys), random.below(2) == 0),
                    |took| latencies.saturating_record(took.as_nanos() as u64),
                )?;
                rates.push(count as f64 / started.elapsed().as_secs_f64());
                p50.push(latencies.value_at_quantile(0.5) as f64);
            }
            let case = format!("tcp/etcd/{len}/uniform/{name}/clients-{clients}");
            report.add(Row::new("block", &case, "latency_p50", "ns", &p50));
            report.add(Row::new("block", &case, "rate", "1/s", &rates));
        }
    }
    Ok(())
}

/// Waits until the cluster has a leader, because requests fail before that.
fn elected(register: &mut Register) -> Result<()> {
    let started = Instant::now();
    while let Err(error) = register.run(1, 1, |_, _| (0, true), |_| ()) {
        if started.elapsed() > PATIENCE {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answers_length_is_in_its_head() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(answer_len(answer), Some((answer.len() - 2, 2)));
        assert_eq!(answer_len(&answer[..30]), None);
        assert_eq!(answer_len(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
