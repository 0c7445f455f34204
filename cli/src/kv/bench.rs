//! `remora kv bench`: the designs beside each other, beside their floor, and beside memcached and redis.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;
use store::ycsb::Mix;
use store::ycsb::record::{self, Values};

use super::measure::{Plan, Runner, Server};
use super::parts::{Part, Parts};
use super::rival::{Rival, Running};
use super::{Design, DesignName};
use crate::bench::cores::{pin, two_cores};
use crate::bench::{Report, Row, bare_read, median};
use crate::device::PortName;
use crate::with_design;

/// Arguments of `remora kv bench`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora kv bench\n  remora kv bench --design farm --port udp --records 1000000 --json\n  remora kv bench --workload A --rounds 9\n\nServer and client have a core each. Every value is checked. `window` operations are in flight for rates, one for latencies;\nthe rivals' latency is taken with both processes on one core, since a hand-over between cores would be the figure.\n\nYCSB: A half updates, B 5 % updates, C reads only, D reads of the latest and 5 % inserts, E scans and 5 % inserts, F half\nread-modify-writes. These tables have no order, so a scan is 1 to 100 GETs; a read-modify-write is a GET, then a PUT."
)]
pub struct Args {
    /// Only this design.
    #[arg(long)]
    design: Option<DesignName>,
    /// Only this port.
    #[arg(long)]
    port: Option<PortName>,
    /// A YCSB workload, A to F [default: GETs alone, then PUTs alone].
    #[arg(long, value_parser = workload)]
    workload: Option<Mix>,
    /// Records.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65536))]
    value_len: u32,
    /// Operations in flight for rates.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64))]
    window: u32,
    /// Interleaved rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Leave memcached and redis out.
    #[arg(long)]
    no_rivals: bool,
    /// Cores of client and server [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1)]
    cores: Vec<usize>,
}

/// Operations of a round, alone and with the window full.
const ALONE: u64 = 10_000;
const TOGETHER: u64 = 200_000;

/// Requests in flight to a rival. Deep enough that its thread never goes to sleep between two of them: with 64 it would spend its
/// time being woken across cores, which is the machine's cost and not the rival's.
const RIVAL_WINDOW: usize = 1024;

fn workload(text: &str) -> Result<Mix, String> {
    let mut letters = text.chars();
    let named = letters.next().and_then(|letter| Mix::named(letter.to_ascii_uppercase()));
    named.filter(|_| letters.next().is_none()).ok_or_else(|| "YCSB's workloads are A to F".to_owned())
}

impl Args {
    /// What is measured, and how its figures are called.
    fn mixes(&self) -> Vec<(Mix, String)> {
        match self.workload {
            Some(mix) => vec![(mix, format!("ycsb-{}", mix.name.to_ascii_lowercase()))],
            None => vec![(GETS, "get".to_owned()), (PUTS, "put".to_owned())],
        }
    }
}

/// Operations of a round: fewer if each is a scan of 50 records in the mean.
fn rounds_of(count: u64, mix: Mix) -> u64 {
    if mix.scan > 0 { count / 20 } else { count }
}

/// The rounds of a rival's rates, for each mix.
type Rates = Vec<Vec<f64>>;

/// GETs of zipfian keys; PUTs of zipfian keys.
const GETS: Mix = Mix::C;
const PUTS: Mix = Mix { name: 'p', read: 0, update: 100, ..Mix::A };

/// `remora kv bench`.
pub fn run(args: &Args) -> Result<()> {
    let cores = two_cores(&args.cores)?;
    let [own, _] = cores;
    pin(own)?;
    let plan = Plan { records: args.records, value_len: args.value_len, window: args.window, cores, seed: 1 };
    let mut report = Report::new(args.json);
    let rivals = if args.no_rivals { Vec::new() } else { rivals(args, &plan, own, &mut report)? };
    for port in PortName::ALL.into_iter().filter(|port| args.port.is_none_or(|only| only == *port)) {
        for design in
            DesignName::ALL.into_iter().filter(|design| args.design.is_none_or(|only| only == *design))
        {
            with_design!(design, design_rounds(args, &plan, design, port, &rivals, &mut report))?;
        }
    }
    report.finish();
    Ok(())
}

/// Rounds of one design over one port.
fn design_rounds<D: Design>(
    args: &Args,
    plan: &Plan,
    design: DesignName,
    port: PortName,
    rivals: &[(Rival, Rates)],
    report: &mut Report,
) -> Result<()> {
    let server = Server::start(design, port, plan)?;
    for (at, (mix, verb)) in args.mixes().into_iter().enumerate() {
        let (few, many) = (rounds_of(ALONE, mix), rounds_of(TOGETHER, mix));
        let mut runner = Runner::<D>::connect(&server, port, plan, mix)?;
        let [mut p50, mut p99, mut rate, mut trips, mut cpu, mut floor] = [const { Vec::new() }; 6];
        for _ in 0..args.rounds {
            let alone = runner.alone(few)?;
            let before = server.cpu_ns()?;
            let together = runner.together(many, plan.window as usize)?;
            cpu.push((server.cpu_ns()? - before) as f64 / many as f64);
            p50.push(alone.p50);
            p99.push(alone.p99);
            trips.push(alone.round_trips);
            rate.push(together);
            floor.push(bare_read(port, plan.cores)? * alone.round_trips);
        }
        let case = format!("{}/{}-{verb}/{}", port.name(), design.name(), plan.value_len);
        let row = |metric, unit, rounds: &[f64]| Row::new("kv", &case, metric, unit, rounds);
        report.add(row("round_trips", "", &trips));
        report.add(row("latency_p50", "ns", &p50).against("round-trips x bare READ", &floor));
        report.add(row("latency_p99", "ns", &p99));
        report.add(row("cpu", "ns of server core per op", &cpu));
        let windowed = format!("{case}/window-{}", plan.window);
        report.add(Row::new("kv", &windowed, "rate", "1/s", &rate));
        for (rival, rates) in rivals {
            report.add(Row::new("kv", &windowed, "rate", "1/s", &rate).against(rival.name(), &rates[at]));
        }
    }
    Ok(())
}

/// Rounds of the rivals: their rates, for the designs to be held against.
fn rivals(args: &Args, plan: &Plan, own: usize, report: &mut Report) -> Result<Vec<(Rival, Rates)>> {
    let mixes = args.mixes();
    let mut all = Vec::new();
    for rival in Rival::ALL {
        let mut running = Running::start(rival, plan.cores[1])?;
        load(&mut running, plan)?;
        let (mut p50, mut rates) = (vec![Vec::new(); mixes.len()], vec![Vec::new(); mixes.len()]);
        // One stream for each mix and all rounds, so that what was inserted is known.
        let mut streams: Vec<Parts> =
            mixes.iter().map(|(mix, _)| Parts::new(*mix, plan.records, plan.seed)).collect();
        for _ in 0..args.rounds {
            for (at, (mix, _)) in mixes.iter().enumerate() {
                running.pin(own)?;
                p50[at].push(alone(&mut running, plan, &mut streams[at], rounds_of(ALONE, *mix))?);
                running.pin(plan.cores[1])?;
                rates[at].push(together(&mut running, plan, &mut streams[at], rounds_of(TOGETHER, *mix))?);
            }
        }
        for (at, (_, verb)) in mixes.iter().enumerate() {
            let case = format!("tcp/{}-{verb}/{}", rival.name(), plan.value_len);
            report.add(Row::new("kv", format!("{case}/same-core"), "latency_p50", "ns", &p50[at]));
            let windowed = format!("{case}/window-{RIVAL_WINDOW}");
            report.add(Row::new("kv", windowed, "rate", "1/s", &rates[at]));
        }
        tracing::info!(rival = rival.name(), rate = median(&rates[0]), "measured");
        all.push((rival, rates));
    }
    Ok(all)
}

fn load(running: &mut Running, plan: &Plan) -> Result<()> {
    let values = Values::fixed(plan.value_len);
    let (mut value, mut out) = (vec![0; plan.value_len as usize], Vec::new());
    let (mut sent, mut answered) = (0, 0);
    while answered < plan.records {
        out.clear();
        while sent < plan.records && sent - answered < 1000 {
            let len = values.fill(sent, 0, &mut value);
            running.rival.set(&record::key(sent), &value[..len], &mut out);
            sent += 1;
        }
        answered += running.send(&out)? as u64;
        answered += running.receive()? as u64;
    }
    Ok(())
}

/// A rival's connection with parts in flight. Answers come in the order of the questions.
struct Flight<'a> {
    running: &'a mut Running,
    parts: &'a mut Parts,
    asked: VecDeque<Part>,
    values: Values,
    value: Vec<u8>,
    out: Vec<u8>,
}

impl Flight<'_> {
    fn new<'a>(running: &'a mut Running, plan: &Plan, parts: &'a mut Parts) -> Flight<'a> {
        let len = plan.value_len;
        let asked = VecDeque::with_capacity(RIVAL_WINDOW);
        Flight {
            running,
            parts,
            asked,
            values: Values::fixed(len),
            value: vec![0; len as usize],
            out: Vec::new(),
        }
    }

    /// Puts the next part into the bytes to send.
    fn ask(&mut self) {
        let part = self.parts.next_part();
        let key = record::key(part.record);
        if part.reads() {
            self.running.rival.get(&key, &mut self.out);
        } else {
            let len = self.values.fill(part.record, 1, &mut self.value);
            self.running.rival.set(&key, &self.value[..len], &mut self.out);
        }
        self.asked.push_back(part);
    }

    /// Sends what was asked; operations that ended meanwhile.
    fn send(&mut self) -> Result<u64> {
        self.running.rival.close(&mut self.out);
        let answers = self.running.send(&self.out)?;
        self.out.clear();
        self.ended(answers)
    }

    /// Operations that ended.
    fn receive(&mut self) -> Result<u64> {
        let answers = self.running.receive()?;
        self.ended(answers)
    }

    fn ended(&mut self, answers: usize) -> Result<u64> {
        let mut whole = 0;
        for _ in 0..answers {
            let Some(part) = self.asked.pop_front() else { bail!("more answers than questions") };
            self.parts.ended(part);
            whole += u64::from(part.last);
        }
        Ok(whole)
    }

    /// Nothing is in flight.
    fn is_quiet(&self) -> bool {
        self.asked.is_empty() && !self.parts.has_waiting()
    }
}

/// Median latency of one operation at a time, both processes on one core: the client gives the core away while it waits.
fn alone(running: &mut Running, plan: &Plan, parts: &mut Parts, count: u64) -> Result<f64> {
    let mut flight = Flight::new(running, plan, parts);
    let mut histogram = crate::bench::histogram()?;
    for _ in 0..count {
        let started = Instant::now();
        flight.ask();
        loop {
            while flight.parts.has_waiting() && flight.asked.len() < plan.window as usize {
                flight.ask();
            }
            if !flight.out.is_empty() {
                flight.send()?;
            }
            if flight.is_quiet() {
                break;
            }
            if flight.receive()? == 0 {
                std::thread::yield_now();
            }
        }
        histogram.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok(histogram.value_at_quantile(0.5) as f64)
}

/// Operations per second with the window full.
fn together(running: &mut Running, plan: &Plan, parts: &mut Parts, count: u64) -> Result<f64> {
    let window = RIVAL_WINDOW;
    let mut flight = Flight::new(running, plan, parts);
    let (started, mut done) = (Instant::now(), 0);
    while done < count {
        // As our own clients: refilled when half of the window is free.
        if flight.asked.len() * 2 <= window {
            while flight.asked.len() < window {
                flight.ask();
            }
            done += flight.send()?;
        }
        done += flight.receive()?;
    }
    let rate = done as f64 / started.elapsed().as_secs_f64();
    while !flight.is_quiet() {
        while flight.parts.has_waiting() && flight.asked.len() < window {
            flight.ask();
        }
        if !flight.out.is_empty() {
            flight.send()?;
        }
        flight.receive()?;
    }
    Ok(rate)
}
