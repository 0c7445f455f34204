//! The cost of many connections, most of them idle.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Bench, Verb};
use crate::testbed::pair::End;
use crate::testbed::protocol::{Command, NicCommand};
use crate::{Row, SHORTER, cpu_ns, resident_bytes};

/// The number of queue pairs.
const QPS: usize = 10_000;
/// The duration of the idle phase.
const IDLE: Duration = Duration::from_secs(10);
/// The number of requests of a round.
const REQUESTS: usize = 200_000 / SHORTER as usize;
/// The number of requests in flight.
const WINDOW: usize = 64;

/// Measures the CPU time of both processes while a connected pair is idle.
pub(crate) fn idle(bench: &mut Bench<'_>, end: &End) -> Result<()> {
    let case = format!("{}/idle-pair/{}-s", end.port.name(), IDLE.as_secs());
    if !bench.args.wants_case(&case) {
        return Ok(());
    }
    bench.bar.set_message(case.clone());
    bench.peer.run(Command::Sleep)?;
    let ours = cpu_ns();
    let theirs = bench.peer.ask(Command::CpuTime)?;
    bench.peer.run(Command::Sleep)?;
    std::thread::sleep(IDLE);
    let ours = cpu_ns() - ours;
    let theirs = bench.peer.ask(Command::CpuTime)? - theirs;
    let share = |ns: u64| ns as f64 / IDLE.as_nanos() as f64 * 100.0;
    bench.report.add(Row::new("verbs", format!("{case}/this-side"), "cpu", "% of a core", &[share(ours)]));
    bench.report.add(Row::new("verbs", format!("{case}/peer"), "cpu", "% of a core", &[share(theirs)]));
    Ok(())
}

/// Measures one queue pair among many, and all of them in turn, compared to a single one.
pub(crate) fn run(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    let case = format!("{}/write/64/{QPS}-qps", end.port.name());
    if !bench.args.wants_case(&case) {
        return Ok(());
    }
    let rounds = bench.args.rounds;
    let mut alone = Vec::new();
    for _ in 0..rounds {
        alone.push(round(bench, end, 1)?);
    }
    bench.bar.set_message(format!("connecting {QPS} queue pairs"));
    let ours = resident_bytes()?;
    let theirs = bench.peer.ask(Command::Resident)?;
    end.connect(&bench.peer, QPS - end.qps.len(), 16, 1)?;
    let ours = resident_bytes()? - ours;
    let theirs = bench.peer.ask(Command::Resident)? - theirs;
    let per_qp = |bytes: u64| bytes as f64 / QPS as f64;
    // A process that has closed queue pairs before creates new ones in the same memory.
    if !std::mem::replace(&mut bench.had_many, true) {
        let row =
            |side, bytes| Row::new("verbs", format!("{case}/{side}"), "memory", "B per QP", &[per_qp(bytes)]);
        bench.report.add(row("requester", ours));
        bench.report.add(row("responder", theirs));
    }
    let mut one = Vec::new();
    let mut all = Vec::new();
    for _ in 0..rounds {
        one.push(round(bench, end, 1)?);
        all.push(round(bench, end, QPS)?);
    }
    // The single queue pair is measured before and after, because the speed of the machine may change.
    end.qps.truncate(1);
    bench.peer.run(end.command(NicCommand::Forget))?;
    for _ in 0..rounds {
        alone.push(round(bench, end, 1)?);
    }
    bench.report.add(
        Row::new("verbs", format!("{case}/one-active"), "rate", "1/s", &one).against("one-alone", &alone),
    );
    bench.report.add(
        Row::new("verbs", format!("{case}/all-active"), "rate", "1/s", &all).against("one-alone", &alone),
    );
    Ok(())
}

/// Measures the requests per second, which use the first `qps` queue pairs in turn and are each posted
/// alone.
fn round(bench: &Bench<'_>, end: &mut End, qps: usize) -> Result<f64> {
    bench.peer.run(end.command(NicCommand::Serve))?;
    let list = [end.local.sge(0, 64)];
    let mut posted = 0;
    let mut done = 0;
    let started = Instant::now();
    while done < REQUESTS {
        if posted < REQUESTS && posted - done < WINDOW {
            let request = Verb::Write.request(posted as u64, &list, end.remote.at(0));
            end.qps[posted % qps].post_send(&request)?;
            posted += 1;
        } else {
            end.complete(1)?;
            done += 1;
        }
    }
    let rate = REQUESTS as f64 / started.elapsed().as_secs_f64();
    bench.peer.run(Command::Sleep)?;
    Ok(rate)
}
