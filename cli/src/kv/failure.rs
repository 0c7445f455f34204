//! `remora bench failure`: a server is killed under load and started again at once. GETs of a table that a NIC daemon keeps, of one that goes with its
//! server, and of a real memcached (RedN, §5.6).

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use store::kv::ClientConfig;
use store::ycsb::record::{self, Values};

use super::FarmDesign;
use super::client::Session;
use super::rival::Rival;
use crate::bench::{Report, Row};
use crate::device::{PortArgs, PortName};

/// Arguments of `remora bench failure`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench failure\n  remora bench failure --port udp --records 100000 --json"
)]
pub struct Args {
    /// Port of the NICs: shm or udp.
    #[arg(long, default_value = "shm")]
    port: PortName,
    /// Records of each table.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    records: u64,
    /// Bytes of their values.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    value_len: u32,
    /// Seconds of load before the server is killed; there are as many once it answers again.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Times that each server is killed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Longest that a table may take to come back.
const PATIENCE: Duration = Duration::from_secs(120);

/// What clients saw.
#[derive(Default)]
struct Seen {
    gets: Vec<f64>,
    failed: Vec<f64>,
    gap: Vec<f64>,
}

/// A process that goes when it is not needed any more, by SIGKILL.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A store that can be killed.
trait Store {
    /// Starts it, or starts it again, filled.
    fn start(&mut self) -> Result<()>;

    /// Kills it.
    fn kill(&mut self);

    /// A client of its own, which connects when it must.
    fn client(&self) -> Reads;
}

/// A client that reads one record; false: the GET failed.
type Reads = Box<dyn FnMut(u64) -> bool + Send>;

/// `remora bench failure`.
pub fn run(args: &Args) -> Result<Report> {
    ensure!(args.port != PortName::Xdp, "port xdp needs a network between its NICs: choose shm or udp");
    let socket = std::env::temp_dir().join(format!("remora-failure-{}.sock", std::process::id()));
    let mut daemon = Process(
        program()?
            .args(["nicd", "--json", "--child", "--port", args.port.name(), "--memory", "64g", "--socket"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .spawn()?,
    );
    first_line(&mut daemon.0)?;
    let report = all(args, &socket);
    drop(daemon);
    let _ = std::fs::remove_file(&socket);
    report
}

/// All systems, the daemon listening at `socket`.
fn all(args: &Args, socket: &Path) -> Result<Report> {
    let mut report = Report::new(args.json);
    let memcached = one(args, &mut Memcached::new(args)?)?;
    for (system, keeper) in [("farm/nicd", Some(socket)), ("farm", None)] {
        let seen = one(args, &mut Farm::new(args, keeper)?)?;
        add(&mut report, args, system, &seen, Some(&memcached));
    }
    add(&mut report, args, "memcached", &memcached, None);
    Ok(report)
}

fn add(report: &mut Report, args: &Args, system: &str, seen: &Seen, beside: Option<&Seen>) {
    let port = if system == "memcached" { "tcp" } else { args.port.name() };
    let case = format!("{port}/{system}/{}", args.value_len);
    let row = |metric, unit, rounds: &[f64], other: Option<&[f64]>| {
        let row = Row::new("failure", case.clone(), metric, unit, rounds);
        match other {
            Some(other) => row.against("memcached", other),
            None => row,
        }
    };
    report.add(row("longest_gap", "ns", &seen.gap, beside.map(|beside| &beside.gap[..])));
    report.add(row("failed_gets", "GETs", &seen.failed, None));
    report.add(row("gets", "GETs", &seen.gets, None));
}

/// Kills one store, round after round.
fn one(args: &Args, store: &mut impl Store) -> Result<Seen> {
    let mut seen = Seen::default();
    let load = Duration::from_secs_f64(args.seconds);
    store.start()?;
    for _ in 0..args.rounds {
        let (gets, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (mut client, records) = (store.client(), args.records);
        let (failed, gap) = std::thread::scope(|scope| {
            let reads = scope.spawn(|| read_on(&mut client, records, &gets, &over));
            // Servers end with the thread that starts them: so that is this one.
            let done = death(store, load, &gets);
            over.store(true, Ordering::Release);
            let read = reads.join().map_err(|_| anyhow::anyhow!("the client failed"));
            done.and(read)
        })?;
        seen.gets.push(gets.into_inner() as f64);
        seen.failed.push(failed as f64);
        seen.gap.push(gap.as_nanos() as f64);
    }
    Ok(seen)
}

/// Load, death, a new start, and load again once it is answered.
fn death(store: &mut impl Store, load: Duration, gets: &AtomicU64) -> Result<()> {
    let answered = |beyond: u64| -> Result<()> {
        let began = Instant::now();
        while gets.load(Ordering::Acquire) <= beyond {
            ensure!(began.elapsed() < PATIENCE, "no GET is answered");
            sleep(Duration::from_millis(1));
        }
        sleep(load);
        Ok(())
    };
    answered(0)?;
    store.kill();
    store.start()?;
    answered(gets.load(Ordering::Acquire))
}

/// GETs until it is over: how many failed, and the longest time between two that did not.
fn read_on(reads: &mut Reads, records: u64, gets: &AtomicU64, over: &AtomicBool) -> (u64, Duration) {
    let (mut record, mut failed, mut gap, mut last) = (0, 0, Duration::ZERO, None::<Instant>);
    while !over.load(Ordering::Acquire) {
        record = (record + 7919) % records;
        if reads(record) {
            gap = gap.max(last.map_or(Duration::ZERO, |last| last.elapsed()));
            last = Some(Instant::now());
            gets.fetch_add(1, Ordering::AcqRel);
        } else {
            failed += 1;
            sleep(Duration::from_millis(1));
        }
    }
    (failed, gap)
}

fn program() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.stdin(Stdio::null());
    Ok(command)
}

fn first_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
    ensure!(!line.is_empty(), "it did not start");
    Ok(line)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// `remora serve kv`, with a NIC of its own or a daemon's.
struct Farm {
    words: Vec<String>,
    address: SocketAddr,
    port: PortName,
    len: u32,
    running: Option<Process>,
}

impl Farm {
    fn new(args: &Args, keeper: Option<&Path>) -> Result<Farm> {
        let address = free_address()?;
        let mut words = vec!["serve".to_owned(), "kv".to_owned(), "--child".to_owned()];
        let own = [
            ("--records", args.records.to_string()),
            ("--value-len", args.value_len.to_string()),
            ("--listen", address.to_string()),
        ];
        words.extend(own.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        let (name, value) = match keeper {
            Some(socket) => ("--nicd", socket.display().to_string()),
            None => ("--port", args.port.name().to_owned()),
        };
        words.extend([name.to_owned(), value]);
        if keeper.is_some() {
            words.extend(["--keep".to_owned(), "failure".to_owned()]);
        }
        Ok(Farm { words, address, port: args.port, len: args.value_len, running: None })
    }
}

impl Store for Farm {
    fn start(&mut self) -> Result<()> {
        let mut child = program()?.args(&self.words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let line = first_line(&mut child);
        self.running = Some(Process(child));
        line.context("the server").map(drop)
    }

    fn kill(&mut self) {
        self.running = None;
    }

    fn client(&self) -> Reads {
        let (port, address, len) = (PortArgs::plain(self.port), self.address.to_string(), self.len);
        let mut session: Option<Session<FarmDesign>> = None;
        let mut expected = vec![0; len as usize];
        Box::new(move |record| {
            if session.is_none() {
                session = Session::connect(&port, &address, ClientConfig::default()).ok();
            }
            Values::fixed(len).fill(record, 0, &mut expected);
            let got = session.as_mut().map(|session| session.get(&record::key(record)));
            match got {
                Some(Ok(Some(value))) => value == expected,
                Some(Ok(None)) | None => false,
                Some(Err(_)) => {
                    session = None;
                    false
                }
            }
        })
    }
}

/// A real memcached, which somebody fills again.
struct Memcached {
    address: SocketAddr,
    records: u64,
    len: u32,
    running: Option<Process>,
}

impl Memcached {
    fn new(args: &Args) -> Result<Memcached> {
        let (records, len) = (args.records, args.value_len);
        Ok(Memcached { address: free_address()?, records, len, running: None })
    }
}

impl Store for Memcached {
    fn start(&mut self) -> Result<()> {
        let megabytes = self.records * (u64::from(self.len) + 200) / 1_000_000 + 64;
        let child = Rival::Memcached.command(self.address.port(), megabytes).spawn();
        self.running =
            Some(Process(child.context("memcached is not installed: `make setup-bench` installs it")?));
        let began = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > PATIENCE => return Err(error).context("memcached"),
                Err(_) => sleep(Duration::from_millis(1)),
            }
        };
        let mut value = vec![0; self.len as usize];
        let mut command = Vec::new();
        for record in 0..self.records {
            Values::fixed(self.len).fill(record, 0, &mut value);
            let key = record::key(record);
            command.extend_from_slice(b"set ");
            command.extend_from_slice(&key);
            command.extend_from_slice(format!(" 0 0 {} noreply\r\n", value.len()).as_bytes());
            command.extend_from_slice(&value);
            command.extend_from_slice(b"\r\n");
            if command.len() > 1 << 16 {
                stream.write_all(&command)?;
                command.clear();
            }
        }
        // Its answer says that all before it is done.
        command.extend_from_slice(b"version\r\n");
        stream.write_all(&command)?;
        stream.read_exact(&mut [0])?;
        Ok(())
    }

    fn kill(&mut self) {
        self.running = None;
    }

    fn client(&self) -> Reads {
        let (address, len) = (self.address, self.len);
        let mut stream: Option<TcpStream> = None;
        let mut expected = vec![0; len as usize];
        Box::new(move |record| {
            if stream.is_none() {
                stream = TcpStream::connect(address).ok();
            }
            Values::fixed(len).fill(record, 0, &mut expected);
            let got = stream.as_mut().map(|stream| fetch(stream, &record::key(record)));
            match got {
                Some(Ok(value)) => value == expected,
                Some(Err(_)) => {
                    stream = None;
                    false
                }
                None => false,
            }
        })
    }
}

/// One GET; nothing, if the key is not there.
fn fetch(stream: &mut TcpStream, key: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut command = Vec::new();
    Rival::Memcached.get(key, &mut command);
    Rival::Memcached.close(&mut command);
    stream.set_nodelay(true)?;
    stream.write_all(&command)?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.ends_with(b"END\r\n") {
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            got => answer.extend_from_slice(&piece[..got]),
        }
    }
    let line = answer.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let value = answer.get(line..answer.len().saturating_sub(7)).unwrap_or_default();
    Ok(value.to_vec())
}
