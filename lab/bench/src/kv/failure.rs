//! `remora bench failure`: a server is killed under load and restarted at once. The GETs use a chain and
//! READs of tables that a NIC daemon keeps, READs of a table that disappears with its server, and a real
//! memcached (RedN, §5.6).

mod args;
mod chain;
mod course;
mod farm;
mod memcached;
mod server;
mod store;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::chain::Chain;
use self::course::Course;
use self::farm::Farm;
use self::memcached::Memcached;
use crate::testbed::process::Process;
use crate::{Report, Row};
pub use args::Args;
use remora_options::cores::{pin, two_cores};
use remora_options::device::PortName;
use server::program;
use server::{PATIENCE, Server, free_address};
use store::{Reads, Store};

/// Results of the clients in all rounds.
#[derive(Default)]
struct Seen {
    gets: Vec<f64>,
    failed: Vec<f64>,
    gap: Vec<f64>,
    /// Course of the first round, for the plot.
    course: Option<Course>,
}

/// The benchmark of `remora bench failure`.
impl Args {
    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// A process does not start or ends early, an answer is wrong, or a file cannot be written.
    pub(crate) fn measure(&self, report: &mut Report) -> Result<()> {
        if let (Some(socket), Some(listen)) = (&self.serve, self.listen) {
            return chain::serve(self, socket, listen);
        }
        ensure!(self.port != PortName::Xdp, "port xdp needs a network between its NICs: choose shm or udp");
        // Daemon and servers run on this thread's core, and the client on another. On a shared core each
        // would wait for the time slice of the other.
        let [clients, servers] = two_cores(&[])?;
        pin(servers)?;
        let folder = tempfile::Builder::new().prefix("remora-failure-").tempdir()?;
        let socket = folder.path().join("nic.sock");
        let mut command = program()?;
        command
            .args(["nicd", "--json", "--child", "--port", self.port.name(), "--memory", "64g", "--socket"])
            .arg(&socket);
        let (daemon, _) = Process::start_ready(&mut command, 1).context("the NIC daemon did not start")?;
        let measured = all(self, &socket, clients, report);
        drop(daemon);
        measured
    }
}

/// Measures all systems; the daemon listens at `socket`.
fn all(args: &Args, socket: &Path, core: usize, report: &mut Report) -> Result<()> {
    let memcached = one(args, &mut Memcached::new(args)?, core)?;
    let chains = one(args, &mut Chain::new(args, socket)?, core)?;
    add(report, args, "chain/nicd", &chains, Some(&memcached));
    for (system, keeper) in [("farm/nicd", Some(socket)), ("farm", None)] {
        let seen = one(args, &mut Farm::new(args, keeper)?, core)?;
        add(report, args, system, &seen, Some(&memcached));
    }
    add(report, args, "memcached", &memcached, None);
    if let (Some(chains), Some(memcached)) = (&chains.course, &memcached.course) {
        course::draw(&args.report, args.seconds, [chains, memcached])?;
    }
    Ok(())
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

/// Kills one store in each round while a client on this core reads.
fn one(args: &Args, store: &mut impl Store, core: usize) -> Result<Seen> {
    let mut seen = Seen::default();
    let load = Duration::from_secs_f64(args.seconds);
    store.start()?;
    for _ in 0..args.rounds {
        let gets = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let mut client = store.client();
        let records = args.records;
        let began = Instant::now();
        let (killed, read) = std::thread::scope(|scope| {
            let reads =
                scope.spawn(|| pin(core).map(|()| read_on(&mut client, records, &gets, began, &over)));
            // Servers end with the thread that starts them, so this thread does it.
            let done = death(store, load, &gets);
            over.store(true, Ordering::Release);
            let read = reads.join().map_err(|_| anyhow::anyhow!("the client failed"));
            Ok::<_, anyhow::Error>((done?, read??))
        })?;
        seen.gets.push(gets.into_inner() as f64);
        seen.failed.push(read.failed as f64);
        seen.gap.push(read.gap.as_nanos() as f64);
        seen.course.get_or_insert(Course { counts: read.counts, killed: killed.duration_since(began) });
    }
    Ok(seen)
}

/// Applies load, kills the server, starts a new one, and applies load again after its first answer. Returns
/// the time at which the server was killed.
fn death(store: &mut impl Store, load: Duration, gets: &AtomicU64) -> Result<Instant> {
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
    let killed = Instant::now();
    store.kill();
    store.start()?;
    answered(gets.load(Ordering::Acquire))?;
    Ok(killed)
}

/// Results of a client in one round.
#[derive(Default)]
struct Read {
    failed: u64,
    /// The longest time between two GETs that did not fail.
    gap: Duration,
    /// GETs that did not fail, slot by slot.
    counts: Vec<u32>,
}

/// Sends GETs until the round is over.
fn read_on(reads: &mut Reads, records: u64, gets: &AtomicU64, began: Instant, over: &AtomicBool) -> Read {
    let mut record = 0;
    let mut read = Read::default();
    let mut last = None::<Instant>;
    while !over.load(Ordering::Acquire) {
        record = (record + 7919) % records;
        if reads(record) {
            let now = Instant::now();
            read.gap = read.gap.max(last.map_or(Duration::ZERO, |last| now.duration_since(last)));
            last = Some(now);
            course::count(&mut read.counts, now.duration_since(began));
            gets.fetch_add(1, Ordering::AcqRel);
        } else {
            read.failed += 1;
            sleep(Duration::from_millis(1));
        }
    }
    read
}
