//! `remora bench strom`: Figures 5 and 7 to 13 of the paper in model time, from the primitives of its FPGAs;
//! and 7 to 11 and 13 in this software. There each task is done by a kernel on the peer's NIC and in the
//! ways to which the paper compares it, in interleaved rounds.
//!
//! | file | contents |
//! |---|---|
//! | `model.rs` | predictions, and the numbers of the text |
//! | `figures.rs` | the figures in both times |
//! | `case.rs` | the tasks, the ways to do each, and the bounds for StRoM's |
//! | `client.rs` | tasks of single requests |
//! | `streams.rs` | tasks of streams |
//! | `place.rs` | opcodes, and the layout of the peer's memory |
//! | `server.rs` | the peer's kernels |
//! | `calls.rs` | the tasks as calls over TCP |
//! | `wasm.rs` | a kernel as users write one |

pub(crate) mod calls;
mod case;
mod client;
pub(crate) mod figures;
mod model;
mod place;
pub(crate) mod server;
mod streams;
mod wasm;

use std::time::Instant;

use anyhow::Result;

use super::curves::Saved;
use super::{Args, PortName, Report, Row, histogram, typical, typical_of};
use crate::SHORTER;
use crate::testbed::Testbed;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{Command, Extensions, NicCommand};
use case::{Bound, Task, Way};
use client::Client;
use remora_options::cores::two_cores;
use remora_options::progress;
use wasm::Built;

/// Number of trips in a turn, in its warm-up, and for its 99th percentile.
const TRIPS: u64 = 4096 / SHORTER;
const WARM_UP: u64 = 256 / SHORTER;
const PERCENTILE: u64 = 2048 / SHORTER;
/// Number of trips in a reading where some reads fail, so that each reading contains its share of failures.
const RUN: u64 = 512;
/// Rate of the paper's CPU with eight threads, in bytes per second (§7.2).
const EIGHT_THREADS: f64 = 25e9 / 8.0;

/// Results of one way, one value per round.
struct Series {
    way: Way,
    rounds: Vec<f64>,
    p99: Vec<f64>,
}

/// Runs `remora bench strom`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    let modelled = args.wants_model().then(model::both);
    args.add_wanted(report, modelled.iter().flat_map(model::rows));
    let cores = two_cores(&args.cores)?;
    for port in Testbed::ports(args.port) {
        let tasks = wanted(args, port);
        if !tasks.is_empty()
            && let Some(testbed) = Testbed::open(port, cores, 0, args.port.is_some())?
        {
            measure(args, report, &testbed, tasks)?;
        }
    }
    args.check_found(report)?;
    if let Some(modelled) = &modelled {
        let rows: Vec<Saved> = report.rows().iter().map(Saved::from).collect();
        figures::draw(&args.report, modelled, &rows)?;
    }
    Ok(())
}

/// Returns the path of a task, as `--only` matches it.
fn path(port: PortName, task: Task) -> String {
    format!("{}/{}/{}", port.name(), task.path(), task.metric().0)
}

/// Returns the tasks that `--only` selects over a port.
fn wanted(args: &Args, port: PortName) -> Vec<Task> {
    Task::all().into_iter().filter(|task| args.wants_case(&path(port, *task))).collect()
}

fn measure(args: &Args, report: &mut Report, testbed: &Testbed, tasks: Vec<Task>) -> Result<()> {
    let port = testbed.port();
    let bar = progress::bar(u64::from(args.rounds) * tasks.len() as u64, "turns")?;
    let built = built(&tasks);
    let module = built.as_ref().map(Built::module);
    let peer = Peer::start_with(testbed, module.as_deref())?;
    let extensions = Extensions { strom: true, ..Extensions::default() };
    let mut end = End::with_extensions(&peer, port, extensions, None)?;
    // The second queue pair is for READs that a kernel judges.
    end.connect(&peer, 1, 256, 128)?;
    let mut client = Client::new(end, &peer)?;
    streams::fill(&client.end)?;
    for task in tasks {
        let empty = |way: &Way| Series { way: *way, rounds: Vec::new(), p99: Vec::new() };
        let fits = client.fits(task);
        let ways = task.ways().iter().filter(|way| match way {
            Way::Wasm => built.is_some(),
            Way::StromRead => fits,
            _ => true,
        });
        let mut all: Vec<Series> = ways.map(empty).collect();
        bar.set_message(path(port, task));
        peer.run(client.end.command(NicCommand::Serve))?;
        client.lay_out(task)?;
        if let Task::Check(_, failing) = task {
            peer.run(client.end.command(NicCommand::Attach { counts: false, checks: Some(failing) }))?;
        }
        for _ in 0..args.rounds {
            for series in &mut all {
                turn(&mut client, &peer, task, series)?;
            }
            bar.inc(1);
        }
        rows(port, task, &all).into_iter().for_each(|row| report.add(row));
    }
    bar.finish_and_clear();
    Ok(())
}

/// Builds the WebAssembly kernel if a task needs it. Returns `None` if it is not needed or cannot be built.
fn built(tasks: &[Task]) -> Option<Built> {
    let wanted = tasks.iter().any(|task| task.ways().contains(&Way::Wasm));
    let built = wanted.then(Built::new)?;
    built.inspect_err(|error| tracing::warn!("kernels as WebAssembly are left out: {error:#}")).ok()
}

/// Measures one round of one way.
fn turn(client: &mut Client, peer: &Peer, task: Task, series: &mut Series) -> Result<()> {
    let way = series.way;
    let command = if way == Way::Tcp { NicCommand::Tcp } else { NicCommand::Serve };
    peer.run(client.end.command(command))?;
    let figure = match task {
        Task::Shuffle => {
            let took = client.shuffle(way)?;
            if way != Way::Write {
                client.look_at_partitions()?;
            }
            took
        }
        Task::Count => client.count(way, peer)?,
        Task::Check(_, failing) if failing > 0 => {
            (0..WARM_UP).try_for_each(|_| client.trip(task, way))?;
            typical_of(RUN, 2 * TRIPS, || client.trip(task, way))?
        }
        _ => {
            (0..WARM_UP).try_for_each(|_| client.trip(task, way))?;
            let typical = typical(TRIPS, || client.trip(task, way))?;
            series.p99.push(percentile(client, task, way)?);
            typical
        }
    };
    series.rounds.push(figure);
    peer.run(Command::Sleep)
}

fn percentile(client: &mut Client, task: Task, way: Way) -> Result<f64> {
    let mut histogram = histogram()?;
    for _ in 0..PERCENTILE {
        let started = Instant::now();
        client.trip(task, way)?;
        histogram.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok(histogram.value_at_quantile(0.99) as f64)
}

/// Returns the rows of StRoM's figures compared to each other way, with their bounds, and the 99th
/// percentiles of all ways.
fn rows(port: PortName, task: Task, all: &[Series]) -> Vec<Row> {
    let (metric, unit) = task.metric();
    let case = |way: Way| format!("{}/{}/{}", port.name(), task.path(), way.name());
    let row = |series: &Series| Row::new("strom", case(series.way), metric, unit, &series.rounds);
    let mut rows = Vec::new();
    let (stroms, others): (Vec<&Series>, Vec<&Series>) = all.iter().partition(|series| series.way.is_strom());
    for (strom, other) in stroms.iter().flat_map(|strom| others.iter().map(move |other| (strom, other))) {
        if other.way == Way::Wasm {
            rows.push(row(other).against("the native kernel", &strom.rounds));
            continue;
        }
        let row = row(strom).against(other.way.name(), &other.rounds);
        let judged = strom.way == task.judged();
        rows.push(match task.bound(port, other.way).filter(|_| judged) {
            Some(Bound::Within(limit)) => row.within(limit),
            Some(Bound::AtLeast(least)) => row.at_least(least),
            None => row,
        });
    }
    for strom in stroms.into_iter().filter(|_| task == Task::Count) {
        rows.push(row(strom).against("eight threads of the paper", &[EIGHT_THREADS]).at_least(1.0));
    }
    for series in all.iter().filter(|series| !series.p99.is_empty()) {
        rows.push(Row::new("strom", case(series.way), "latency_p99", "ns", &series.p99));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_each_task_is_judged_on_the_ports_that_it_is_asked_of() {
        let series = |way, value| Series { way, rounds: vec![value], p99: Vec::new() };
        let judged = |port, task: Task, values: &[f64]| -> Vec<Option<bool>> {
            let all: Vec<Series> =
                task.ways().iter().zip(values).map(|(way, value)| series(*way, *value)).collect();
            rows(port, task, &all).iter().map(|row| row.holds).collect()
        };
        let shm = PortName::Shm;
        let udp = PortName::Udp;
        assert_eq!(judged(udp, Task::Walk(8), &[1.0, 9.0, 9.0]), [None, None]);
        let check = |values: [f64; 4]| judged(udp, Task::Check(64, 0), &values);
        assert_eq!(check([108.0, 999.0, 100.0, 103.0]), [Some(true), Some(true), None, None]);
        assert_eq!(check([109.0, 1.0, 100.0, 103.0]), [Some(false), Some(false), None, None]);
        let far = judged(shm, Task::Check(64, 0), &[109.0, 999.0, 100.0, 104.0]);
        assert_eq!(far, [None, Some(true), None, None]);
        assert_eq!(judged(udp, Task::Check(64, 10), &[105.0, 999.0, 100.0]), [Some(true), None]);
        assert_eq!(judged(udp, Task::Check(64, 100), &[101.0, 1.0, 100.0]), [Some(false), None]);
        // If an object is longer than a packet, only the RPC can be measured, and it has no bound.
        let rpc = [(Way::Strom, 104.0), (Way::Read, 100.0), (Way::ReadAndCheck, 100.0)];
        let alone: Vec<Series> = rpc.iter().map(|(way, value)| series(*way, *value)).collect();
        let holds: Vec<_> = rows(udp, Task::Check(4096, 0), &alone).iter().map(|row| row.holds).collect();
        assert_eq!(holds, [None, None]);
        assert_eq!(judged(shm, Task::Shuffle, &[3.6, 1.0, 3.7]), [Some(true), Some(true)]);
        assert_eq!(judged(shm, Task::Shuffle, &[3.7, 1.0, 3.7]), [Some(false), Some(true)]);
        assert_eq!(judged(udp, Task::Shuffle, &[1.9, 1.0, 1.8]), [Some(false), Some(false)]);
        assert_eq!(judged(shm, Task::Count, &[4e9, 8e9]), [Some(true), Some(true)]);
        assert_eq!(judged(udp, Task::Count, &[3e9, 4.1e9]), [Some(false), Some(false)]);
    }

    #[test]
    fn a_kernel_as_webassembly_has_a_row_beside_the_native_one() {
        let ways = Task::Get(64).ways().iter().zip([2.0, 8.0, 9.0, 3.0]);
        let all: Vec<Series> =
            ways.map(|(way, value)| Series { way: *way, rounds: vec![value], p99: Vec::new() }).collect();
        let beside: Vec<(String, Option<String>, Option<f64>)> = rows(PortName::Shm, Task::Get(64), &all)
            .into_iter()
            .map(|row| (row.case, row.baseline, row.ratio))
            .collect();
        let row = |case: &str, beside: &str, ratio| (case.into(), Some(beside.into()), Some(ratio));
        let native = "shm/get/64/strom";
        let wanted = [
            row(native, "reads", 0.25),
            row(native, "tcp-rpc", 2.0 / 9.0),
            row("shm/get/64/strom-wasm", "the native kernel", 1.5),
        ];
        assert_eq!(beside, wanted);
    }
}
