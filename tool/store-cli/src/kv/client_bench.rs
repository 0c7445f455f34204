//! `remora kv bench`: runs a YCSB workload from one client against a running server.

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

/// Options of the workload and of the measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// YCSB workload: a letter from A to F, or a workload file in YCSB's format.
    #[arg(long, value_name = "LETTER|FILE", default_value = "B", value_parser = option)]
    workload: String,
    /// Records in the table [default: the file's recordcount, or 1000].
    #[arg(long, value_parser = whole::<u64>(1..=100_000_000))]
    records: Option<u64>,
    /// Length of a value in bytes [default: as in the file, or 512].
    #[arg(long, value_parser = whole::<u32>(1..=1 << 20))]
    value_len: Option<u32>,
    /// Store all records before the workload begins [default: the table already holds them].
    #[arg(long)]
    load: bool,
    /// Operations in flight at the same time.
    #[arg(long, default_value_t = 16, value_parser = whole::<u32>(1..=64))]
    window: u32,
    /// Seconds to run [default: until the file's operationcount is reached, or 10].
    #[arg(long, value_parser = whole::<u64>(1..=86_400))]
    seconds: Option<u64>,
    /// Number of operations after which the run ends [default: the file's operationcount, unless --seconds
    /// is given].
    #[arg(long, value_parser = whole::<u64>(1..=u64::MAX))]
    operations: Option<u64>,
    /// Seed of the random choices of the workload.
    #[arg(long, default_value_t = 1, value_parser = natural::<u64>)]
    seed: u64,
    /// Print one JSON object per line, and no line for each second.
    #[arg(long)]
    json: bool,
}

/// The end of a run: a point in time or a number of operations, whichever is reached first.
struct End {
    deadline: Option<Instant>,
    operations: u64,
}

/// Maximum number of operations generated at a time.
const MOST_DRAWN: u64 = 1 << 16;
/// Interval for which a rate and latencies are reported.
const SECOND: Duration = Duration::from_secs(1);

/// Runs `remora kv bench`.
///
/// # Errors
/// Fails if the workload is invalid, the server does not answer, or a value read is wrong.
pub(crate) fn run(target: &Target, args: &BenchArgs) -> Result<()> {
    let workload = choose(&args.workload)?;
    let records = args.records.or(workload.records).unwrap_or(1000);
    let value_len = args.value_len.or(workload.value_len).unwrap_or(512);
    ensure!(value_len <= 1 << 20, "the workload's values have {value_len} bytes, more than 1 MiB");
    let asked = args.operations.or(workload.operations.filter(|_| args.seconds.is_none()));
    let operations = asked.unwrap_or(u64::MAX);
    let window = args.window;
    let plan = Plan { records, value_len, operations, window, seed: args.seed, inserts: 0 };
    with_session!(target, plan.client(), drive(target, args, &workload, &plan))
}

/// Runs the workload over one session and prints the results.
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
    let end =
        End { deadline: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)), operations };
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

/// Stores all records, with a progress bar unless `quiet`.
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

/// Results of each second: operations per second, and quantiles of the latency in nanoseconds.
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
    // A batch is a tenth of a second's work once the rate is known, so that the run ends close to its
    // limit.
    let mut drawn = 64;
    while left > 0 && end.deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let second = Instant::now();
        let mut done = 0;
        let over =
            |now: Instant| now - second >= SECOND || end.deadline.is_some_and(|deadline| now >= deadline);
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
