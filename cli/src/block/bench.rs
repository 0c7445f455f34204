//! `remora bench block`: PRISM-RS against ABDLOCK, turn by turn, three replica processes each.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use store::block::{Design, Operation};
use store::ycsb::{Random, Zipfian};

use super::WINDOW;
use super::client::Session;
use super::servers::{Servers, free_addresses};
use crate::bench::{Args, Bare, PortName, Report, Row, cores, histogram, turns};
use crate::device::PortArgs;

/// Blocks, and the bytes of each.
const BLOCKS: u64 = 1024;
const LEN: usize = 512;
/// Operations of a round, one at a time and with the window full.
const ALONE: u64 = 2000;
const TOGETHER: u64 = 10_000;
const REPLICAS: usize = 3;
/// What the paper leads one to expect of PRISM-RS, beside ABDLOCK.
const LATENCY: f64 = 0.7;
const RATE: f64 = 1.2;

/// A replica process.
struct Replica(Child);

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Which blocks are asked for.
enum Keys {
    Uniform,
    Zipf(Zipfian),
}

impl Keys {
    fn all() -> [(&'static str, Keys); 2] {
        [("uniform", Keys::Uniform), ("zipf", Keys::Zipf(Zipfian::new(BLOCKS, 0.99)))]
    }

    fn next(&self, random: &mut Random) -> u64 {
        match self {
            Keys::Uniform => random.below(BLOCKS),
            Keys::Zipf(zipfian) => zipfian.next(random),
        }
    }
}

/// What a round took.
#[derive(Default)]
struct Round {
    p50: f64,
    p99: f64,
    rate: f64,
    round_trips: f64,
}

/// A design: its replicas and a client.
struct Seat {
    design: Design,
    replicas: Vec<Replica>,
    session: Session,
    value: Vec<u8>,
}

impl Seat {
    /// Starts them, and stops the replicas until their turn comes.
    fn take(design: Design, port: PortName, core: usize) -> Result<Seat> {
        let addresses = free_addresses(REPLICAS)?;
        let servers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut replicas = Vec::new();
        for number in 0..REPLICAS {
            let child = Command::new(std::env::current_exe()?)
                .args(["serve", "block", "--child", "--new", "--servers", &servers.join(",")])
                .args(["--design", design.name(), "--port", port.name()])
                .args(["--replica", &number.to_string(), "--core", &core.to_string()])
                .args(["--blocks", &BLOCKS.to_string(), "--block-len", &LEN.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a replica")?;
            replicas.push(Replica(child));
        }
        for Replica(child) in &mut replicas {
            let mut address = String::new();
            BufReader::new(child.stdout.take().context("its output")?).read_line(&mut address)?;
            anyhow::ensure!(!address.is_empty(), "a replica did not start");
        }
        let mut session = Session::open(&PortArgs::plain(port), Servers::of(addresses), WINDOW, true)?;
        session.close()?;
        let mut seat = Seat { design, replicas, session, value: vec![7; LEN] };
        for block in 0..BLOCKS {
            seat.session.write(block, &seat.value)?;
        }
        seat.stop()?;
        Ok(seat)
    }

    fn stop(&mut self) -> Result<()> {
        self.session.close()?;
        self.replicas.iter().try_for_each(|replica| turns::stop(&replica.0))
    }

    /// So many operations, up to `window` at a time; what each took goes to `took`, with its round trips.
    fn run(
        &mut self,
        (count, window): (u64, u64),
        mut draw: impl FnMut() -> (Operation, u64),
        mut took: impl FnMut(u64, u32),
    ) -> Result<()> {
        let mut begun = vec![Instant::now(); 2 * usize::from(WINDOW)];
        let (mut started, mut over, mut waiting) = (0, 0, None);
        while over < count {
            while started < count && started - over < window {
                let (operation, block) = *waiting.get_or_insert_with(&mut draw);
                let now = Instant::now();
                let Some(slot) = self.session.start(operation, block, &self.value)? else { break };
                begun[slot.index()] = now;
                (started, waiting) = (started + 1, None);
            }
            self.session.turn(|finished| {
                over += 1;
                took(begun[finished.slot.index()].elapsed().as_nanos() as u64, finished.round_trips);
            })?;
        }
        Ok(())
    }

    fn round(&mut self, keys: &Keys, seed: u64) -> Result<Round> {
        self.replicas.iter().try_for_each(|replica| turns::go_on(&replica.0))?;
        let mut random = Random::new(seed);
        let mut draw = || {
            let operation = if random.below(2) == 0 { Operation::Read } else { Operation::Write };
            (operation, keys.next(&mut random))
        };
        self.run((ALONE / 10, 1), &mut draw, |_, _| ())?;
        let (mut latencies, mut trips) = (histogram()?, 0);
        self.run((ALONE, 1), &mut draw, |nanoseconds, round_trips| {
            latencies.saturating_record(nanoseconds.max(1));
            trips += u64::from(round_trips);
        })?;
        let started = Instant::now();
        self.run((TOGETHER, WINDOW.into()), &mut draw, |_, _| ())?;
        let rate = TOGETHER as f64 / started.elapsed().as_secs_f64();
        self.stop()?;
        Ok(Round {
            p50: latencies.value_at_quantile(0.5) as f64,
            p99: latencies.value_at_quantile(0.99) as f64,
            rate,
            round_trips: trips as f64 / ALONE as f64,
        })
    }
}

/// `remora bench block`.
pub fn run(args: &Args) -> Result<()> {
    if !args.cores.is_empty() && args.cores.len() != 2 {
        bail!("--cores takes two: the client's, the replicas'");
    }
    let two = cores::two_cores(&args.cores)?;
    let mut report = Report::new(args.json);
    for port in PortName::local(args.port)? {
        measure(args, port, two, &mut report)?;
    }
    report.finish();
    Ok(())
}

fn measure(args: &Args, port: PortName, two: [usize; 2], report: &mut Report) -> Result<()> {
    let mut bare = Bare::open(port, two)?;
    let mut seats = Vec::new();
    for design in Design::ALL {
        seats.push(Seat::take(design, port, two[1])?);
    }
    for (name, keys) in Keys::all() {
        let mut reads = Vec::new();
        let mut rounds: Vec<Vec<Round>> = seats.iter().map(|_| Vec::new()).collect();
        for number in 0..args.rounds {
            reads.push(bare.read(LEN, &[0])?);
            for (seat, rounds) in seats.iter_mut().zip(&mut rounds) {
                rounds.push(seat.round(&keys, number.into())?);
            }
        }
        let lists: Vec<(Design, Vec<Round>)> = seats.iter().map(|seat| seat.design).zip(rounds).collect();
        let case = |design: Design| format!("{}/{}/{LEN}/{name}", port.name(), design.name());
        let rows = rows(&lists, &reads, case);
        let wanted = rows.into_iter().filter(|row| args.wants_case(&format!("{}/{}", row.case, row.metric)));
        wanted.for_each(|row| report.add(row));
    }
    Ok(())
}

/// A figure: what it is called, its unit, and where a round has it.
type Kind = (&'static str, &'static str, fn(&Round) -> f64);

/// The figures of a workload: ABDLOCK beside the bare READ, PRISM-RS beside ABDLOCK.
fn rows(lists: &[(Design, Vec<Round>)], reads: &[f64], case: impl Fn(Design) -> String) -> Vec<Row> {
    let of = |wanted: Design, figure: fn(&Round) -> f64| -> Vec<f64> {
        let rounds = lists.iter().filter(|(design, _)| *design == wanted);
        rounds.flat_map(|(_, rounds)| rounds.iter().map(figure)).collect()
    };
    let kinds: [Kind; 4] = [
        ("latency_p50", "ns", |round| round.p50),
        ("latency_p99", "ns", |round| round.p99),
        ("rate", "operations/s", |round| round.rate),
        ("round_trips", "per operation", |round| round.round_trips),
    ];
    let mut rows = Vec::new();
    for (metric, unit, figure) in kinds {
        let (prism, locks) = (of(Design::PrismRs, figure), of(Design::AbdLock, figure));
        let row = Row::new("block", case(Design::AbdLock), metric, unit, &locks);
        rows.push(if metric == "latency_p50" { row.against("bare READ", reads) } else { row });
        let row = Row::new("block", case(Design::PrismRs), metric, unit, &prism).against("abdlock", &locks);
        rows.push(match metric {
            "latency_p50" => row.within(LATENCY),
            "rate" => row.at_least(RATE),
            _ => row,
        });
    }
    rows
}
