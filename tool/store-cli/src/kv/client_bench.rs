//! `remora kv bench`: a YCSB workload from one client against a server that runs already.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use super::target::{Target, with_session};
use crate::measure::parts::Parts;
use crate::measure::runner::{Plan, Runner};
use crate::measure::workload::{Chosen, choose, option};
use crate::measure::{Report, Row};
use remora_options::number::{natural, whole};
use remora_service::kv::KvSession;

/// What to run.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// A YCSB workload: a letter from A to F, or a file as YCSB ships them.
    #[arg(long, value_name = "LETTER|FILE", default_value = "B", value_parser = option)]
    workload: String,
    /// Records of the table [default: what the file says, else 1000].
    #[arg(long, value_parser = whole::<u64>(1..=100_000_000))]
    records: Option<u64>,
    /// Bytes of a value [default: what the file says, else 512].
    #[arg(long, value_parser = whole::<u32>(1..=1 << 20))]
    value_len: Option<u32>,
    /// Store all records before the workload begins.
    #[arg(long)]
    load: bool,
    /// Operations in flight.
    #[arg(long, default_value_t = 16, value_parser = whole::<u32>(1..=64))]
    window: u32,
    /// Seconds to run [default: until the file's operationcount is done, else 10].
    #[arg(long, value_parser = whole::<u64>(1..=86_400))]
    seconds: Option<u64>,
    /// End after so many operations.
    #[arg(long, value_parser = whole::<u64>(1..=u64::MAX))]
    operations: Option<u64>,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1, value_parser = natural::<u64>)]
    seed: u64,
    /// One JSON object a line, without the seconds' own lines.
    #[arg(long)]
    json: bool,
}

/// When a run ends: whichever comes first.
struct End {
    at: Option<Instant>,
    operations: u64,
}

/// Operations drawn at a time at most.
const MOST_DRAWN: u64 = 1 << 16;
/// Rates and latencies are told for each.
const SECOND: Duration = Duration::from_secs(1);

/// `remora kv bench`.
///
/// # Errors
/// The workload is none, the server does not answer, or a value is wrong.
pub fn run(target: &Target, args: &BenchArgs) -> Result<()> {
    let workload = choose(&args.workload)?;
    let records = args.records.or(workload.records).unwrap_or(1000);
    let value_len = args.value_len.or(workload.value_len).unwrap_or(512);
    ensure!(value_len <= 1 << 20, "the workload's values have {value_len} bytes: values end at 1 MiB");
    let asked = args.operations.or(workload.operations.filter(|_| args.seconds.is_none()));
    let (operations, window) = (asked.unwrap_or(u64::MAX), args.window);
    let plan = Plan { records, value_len, operations, window, seed: args.seed, inserts: 0 };
    with_session!(target, plan.client(), drive(target, args, &workload, &plan))
}

/// Runs it over this session.
fn drive<S: KvSession>(
    session: S,
    target: &Target,
    args: &BenchArgs,
    workload: &Chosen,
    plan: &Plan,
) -> Result<()> {
    let Plan { records, value_len, operations, .. } = *plan;
    let mut runner = Runner::over(session, plan);
    if args.load {
        load(&mut runner, records, args.json)?;
    }
    let seconds = args.seconds.or((operations == u64::MAX).then_some(10));
    let end = End { at: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)), operations };
    runner.time_each()?;
    let mut parts = Parts::new(workload.mix, records, args.seed);
    let measured = measure(&mut runner, &mut parts, &end, args.json)?;
    let case = format!(
        "{}/{}/{value_len}/ycsb-{}/window-{}",
        target.port.port.name(),
        target.system(),
        workload.name,
        args.window
    );
    let mut report = Report::new(args.json);
    report.add(Row::new("kv-client", case.clone(), "rate", "1/s", &measured.rates));
    report.add(Row::new("kv-client", case.clone(), "latency_p50", "ns", &measured.p50));
    report.add(Row::new("kv-client", case, "latency_p99", "ns", &measured.p99));
    report.finish();
    Ok(())
}

/// Stores all records, with a bar.
fn load<S: KvSession>(runner: &mut Runner<S>, records: u64, quiet: bool) -> Result<()> {
    let bar = if quiet { indicatif::ProgressBar::hidden() } else { indicatif::ProgressBar::new(records) };
    for first in (0..records).step_by(MOST_DRAWN as usize) {
        let end = records.min(first + MOST_DRAWN);
        runner.load(first..end)?;
        bar.set_position(end);
    }
    bar.finish_and_clear();
    Ok(())
}

/// What each second brought.
#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

fn measure<S: KvSession>(
    runner: &mut Runner<S>,
    parts: &mut Parts,
    end: &End,
    quiet: bool,
) -> Result<Measured> {
    let mut measured = Measured::default();
    let mut left = end.operations;
    // So many that the end is not missed by much: a tenth of a second's, once that is known.
    let mut drawn = 64;
    while left > 0 && end.at.is_none_or(|at| Instant::now() < at) {
        let (second, mut done) = (Instant::now(), 0);
        let over = |now: Instant| now - second >= SECOND || end.at.is_some_and(|at| now >= at);
        while left > 0 && !over(Instant::now()) {
            let count = drawn.min(left);
            let rate = runner.closed_loop(parts, count, runner.window())?;
            (done, left) = (done + count, left - count);
            drawn = ((rate / 10.0) as u64).clamp(1, MOST_DRAWN);
        }
        let rate = done as f64 / second.elapsed().as_secs_f64();
        let Some(latencies) = runner.take_latencies() else { continue };
        let [p50, p99] = [0.5, 0.99].map(|quantile| latencies.value_at_quantile(quantile) as f64);
        if !quiet {
            eprintln!(
                "second {}: {rate:.0} operations/s, p50 {:.1} us, p99 {:.1} us",
                measured.rates.len() + 1,
                p50 / 1e3,
                p99 / 1e3
            );
        }
        measured.rates.push(rate);
        measured.p50.push(p50);
        measured.p99.push(p99);
    }
    Ok(measured)
}
