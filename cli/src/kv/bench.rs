//! `remora kv bench`: the designs beside each other, beside their floor, and beside memcached and redis.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;
use store::ycsb::record::{self, Values};
use store::ycsb::{Mix, Operation, Stripe, Workload};

use super::measure::{Plan, Runner, Server};
use super::rival::{Rival, Running};
use super::{Design, DesignName};
use crate::bench::{Report, Row, bare_read, median, pin};
use crate::device::PortName;
use crate::with_design;

/// Arguments of `remora kv bench`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora kv bench\n  remora kv bench --design farm --port udp --records 1000000 --json\n\nServer and client have a core each. Every value is checked. `window` operations are in flight for rates, one for latencies;\nthe rivals' latency is taken with both processes on one core, since a hand-over between cores would be the figure."
)]
pub struct Args {
    /// Only this design.
    #[arg(long)]
    design: Option<DesignName>,
    /// Only this port.
    #[arg(long)]
    port: Option<PortName>,
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
    /// Cores of client and server.
    #[arg(long, value_delimiter = ',', num_args = 1, default_value = "0,1")]
    cores: Vec<usize>,
}

/// Operations of a round, alone and with the window full.
const ALONE: u64 = 10_000;
const TOGETHER: u64 = 200_000;

/// Requests in flight to a rival. Deep enough that its thread never goes to sleep between two of them: with 64 it would spend its
/// time being woken across cores, which is the machine's cost and not the rival's.
const RIVAL_WINDOW: u64 = 1024;

/// GETs of zipfian keys; PUTs of zipfian keys.
const GETS: Mix = Mix::C;
const PUTS: Mix = Mix { name: 'p', read: 0, update: 100, ..Mix::A };

/// `remora kv bench`.
pub fn run(args: &Args) -> Result<()> {
    let &[own, server_core] = args.cores.as_slice() else {
        bail!("--cores takes two cores, for instance 0,1")
    };
    pin(own)?;
    let plan =
        Plan { records: args.records, value_len: args.value_len, window: args.window, server_core, seed: 1 };
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
    rivals: &[(Rival, Vec<f64>)],
    report: &mut Report,
) -> Result<()> {
    let server = Server::start(design, port, plan)?;
    for (mix, verb) in [(GETS, "get"), (PUTS, "put")] {
        let mut runner = Runner::<D>::connect(&server, port, plan, mix)?;
        let [mut p50, mut p99, mut rate, mut trips, mut cpu, mut floor] = [const { Vec::new() }; 6];
        for _ in 0..args.rounds {
            let alone = runner.alone(ALONE)?;
            let before = server.cpu_ns()?;
            let together = runner.together(TOGETHER, plan.window as usize)?;
            cpu.push((server.cpu_ns()? - before) as f64 / TOGETHER as f64);
            p50.push(alone.p50);
            p99.push(alone.p99);
            trips.push(alone.round_trips);
            rate.push(together);
            floor.push(bare_read(port, &args.cores)? * alone.round_trips);
        }
        let case = format!("{}/{}-{verb}/{}", port.name(), design.name(), plan.value_len);
        let row = |metric, unit, rounds: &[f64]| Row::new("kv", &case, metric, unit, rounds);
        report.add(row("round_trips", "", &trips));
        report.add(row("latency_p50", "ns", &p50).against("round-trips x bare READ", &floor));
        report.add(row("latency_p99", "ns", &p99));
        report.add(row("cpu", "ns of server core per op", &cpu));
        let windowed = format!("{case}/window-{}", plan.window);
        report.add(Row::new("kv", &windowed, "rate", "1/s", &rate));
        for (rival, rounds) in rivals.iter().filter(|_| verb == "get") {
            report.add(Row::new("kv", &windowed, "rate", "1/s", &rate).against(rival.name(), rounds));
        }
    }
    Ok(())
}

/// Rounds of the rivals: their GET rates, for the designs to be held against.
fn rivals(args: &Args, plan: &Plan, own: usize, report: &mut Report) -> Result<Vec<(Rival, Vec<f64>)>> {
    let mut rates = Vec::new();
    for rival in Rival::ALL {
        let mut running = Running::start(rival, plan.server_core)?;
        load(&mut running, plan)?;
        let [mut p50, mut rate, mut puts] = [const { Vec::new() }; 3];
        for round in 0..args.rounds {
            running.pin(own)?;
            p50.push(alone(&mut running, plan, u64::from(round))?);
            running.pin(plan.server_core)?;
            rate.push(together(&mut running, plan, GETS, u64::from(round))?);
            puts.push(together(&mut running, plan, PUTS, u64::from(round))?);
        }
        let case = |verb: &str| format!("tcp/{}-{verb}/{}", rival.name(), plan.value_len);
        let windowed = |verb: &str| format!("{}/window-{RIVAL_WINDOW}", case(verb));
        report.add(Row::new("kv", format!("{}/same-core", case("get")), "latency_p50", "ns", &p50));
        report.add(Row::new("kv", windowed("get"), "rate", "1/s", &rate));
        report.add(Row::new("kv", windowed("put"), "rate", "1/s", &puts));
        tracing::info!(rival = rival.name(), gets = median(&rate), "measured");
        rates.push((rival, rate));
    }
    Ok(rates)
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

fn command(running: &Running, workload: &mut Workload, values: &Values, value: &mut [u8], out: &mut Vec<u8>) {
    match workload.next_operation() {
        Operation::Update(record) | Operation::Insert(record) | Operation::ReadModifyWrite(record) => {
            let len = values.fill(record, 1, value);
            running.rival.set(&record::key(record), &value[..len], out);
        }
        Operation::Read(record) | Operation::Scan { first: record, .. } => {
            running.rival.get(&record::key(record), out)
        }
    }
}

/// Median latency of one GET at a time, both processes on one core: the client gives the core away while it waits.
fn alone(running: &mut Running, plan: &Plan, seed: u64) -> Result<f64> {
    let mut workload = Workload::new(GETS, plan.records, Stripe::ALONE, seed);
    let (values, mut value) = (Values::fixed(plan.value_len), vec![0; plan.value_len as usize]);
    let (mut histogram, mut out) = (crate::bench::histogram()?, Vec::new());
    for _ in 0..ALONE {
        out.clear();
        command(running, &mut workload, &values, &mut value, &mut out);
        running.rival.close(&mut out);
        let started = Instant::now();
        let mut answers = running.send(&out)?;
        while answers == 0 {
            std::thread::yield_now();
            answers += running.receive()?;
        }
        histogram.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok(histogram.value_at_quantile(0.5) as f64)
}

/// Operations per second with the window full.
fn together(running: &mut Running, plan: &Plan, mix: Mix, seed: u64) -> Result<f64> {
    let mut workload = Workload::new(mix, plan.records, Stripe::ALONE, seed);
    let (values, mut value, mut out) =
        (Values::fixed(plan.value_len), vec![0; plan.value_len as usize], Vec::new());
    let window = RIVAL_WINDOW;
    let (started, mut sent, mut answered) = (Instant::now(), 0u64, 0u64);
    while answered < TOGETHER {
        // As our own clients: refilled when half of the window is free.
        if sent < TOGETHER && (sent - answered) * 2 <= window {
            out.clear();
            while sent < TOGETHER && sent - answered < window {
                command(running, &mut workload, &values, &mut value, &mut out);
                sent += 1;
            }
            running.rival.close(&mut out);
            answered += running.send(&out)? as u64;
        }
        answered += running.receive()? as u64;
    }
    Ok(TOGETHER as f64 / started.elapsed().as_secs_f64())
}
