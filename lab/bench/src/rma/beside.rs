//! Short reads during a long transfer: with 1RMA, whose transfers take turns chunk by chunk, and with RC,
//! where both use one queue pair (1RMA paper, Figure 12).

use std::time::{Duration, Instant};

use anyhow::Result;
use remora_verbs::{EMPTY, work};
use remora_wire::rma::{Class, MAX_OPERATION};

use super::client::{Client, check};
use super::place::REGION;
use super::{Bench, Part, path};
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{Command, NicCommand};
use crate::{Row, SHORTER, histogram, median};

/// The path of the case.
pub(crate) const CASE: &str = "read/64/beside-4-MiB";

/// The length of a short read in bytes, and the number of short reads of a round.
const LEN: usize = 64;
const PROBES: usize = 2000 / SHORTER as usize;
/// The number of long transfers of a round, whose median time is the result.
const TRANSFERS: usize = 9;

/// The latencies of short reads in nanoseconds.
struct Delays {
    p50: f64,
    p99: f64,
}

/// The work request ID of RC's long READ.
const LONG: u64 = 1;
const PROBE: u64 = 2;

/// Measures short reads alone and during a long transfer, with 1RMA and with RC.
pub(crate) fn run(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    let (port, case) = (client.end.port, path(client.end.port, CASE));
    let rounds = bench.rounds(&case, || {
        peer.run(Command::Nic { port, command: NicCommand::Serve })?;
        let alone = by_rma(client, false)?;
        let beside = by_rma(client, true)?;
        let chunk = transfer(client)? * f64::from(MAX_OPERATION) / REGION as f64;
        let rc_alone = by_rc(client, false)?;
        let rc_beside = by_rc(client, true)?;
        peer.run(Command::Sleep)?;
        Ok([
            beside.p99,
            alone.p99,
            alone.p99 + 2.0 * chunk,
            rc_beside.p99,
            rc_alone.p99,
            chunk,
            beside.p50,
            alone.p50,
            rc_beside.p50,
            rc_alone.p50,
        ])
    })?;
    let Some([beside, alone, bound, rc_beside, rc_alone, chunk, p50, p50_alone, rc_p50, rc_p50_alone]) =
        rounds
    else {
        return Ok(());
    };
    let row = |metric, rounds: &[f64]| Row::new("rma", &case, metric, "ns", rounds);
    bench.add(row("latency_p99", &beside).against("alone + two chunks", &bound).within(1.0));
    bench.add(row("latency_p99", &beside).against("alone", &alone));
    bench.add(row("latency_p50", &p50).against("alone", &p50_alone));
    bench.add(row("time_of_a_chunk", &chunk));
    let row =
        |metric, rounds: &[f64]| Row::new("rma", format!("{case}/rc-one-queue-pair"), metric, "ns", rounds);
    bench.add(row("latency_p99", &rc_beside).against("alone", &rc_alone));
    bench.add(row("latency_p50", &rc_p50).against("alone", &rc_p50_alone));
    Ok(())
}

/// Pauses before a short read, so that the reads occur at different moments of the transfer.
fn pause(number: u32) -> Duration {
    Duration::from_micros(u64::from(number * 37 % 101))
}

fn delays(part: Part, mut probe: impl FnMut(Duration) -> Result<Duration>) -> Result<Delays> {
    let mut histogram = histogram()?;
    for number in 0..part.of(PROBES) as u32 {
        histogram.saturating_record(probe(pause(number))?.as_nanos() as u64);
    }
    Ok(Delays { p50: histogram.value_at_quantile(0.5) as f64, p99: histogram.value_at_quantile(0.99) as f64 })
}

fn by_rma(client: &mut Client, beside: bool) -> Result<Delays> {
    let mut long = None;
    let delays = delays(client.part, |pause| {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            go_on(client, &mut long, beside)?;
        }
        let started = Instant::now();
        let probe = client.submit(Class::Latency, 0, LEN as u64)?;
        loop {
            match client.portal.poll()? {
                Some((ended, status)) => {
                    check(status)?;
                    if ended == probe {
                        return Ok(started.elapsed());
                    }
                    long = None;
                }
                None => restart(client, &mut long, beside)?,
            }
        }
    })?;
    while long.is_some() {
        go_on(client, &mut long, false)?;
    }
    Ok(delays)
}

/// Keeps the long transfer going between short reads. Starts another one if `again` is set.
fn go_on(client: &mut Client, long: &mut Option<u64>, again: bool) -> Result<()> {
    restart(client, long, again)?;
    if let Some((_, status)) = client.portal.poll()? {
        check(status)?;
        *long = None;
    }
    Ok(())
}

/// Starts another long transfer if none is in progress and `again` is set.
fn restart(client: &mut Client, long: &mut Option<u64>, again: bool) -> Result<()> {
    if long.is_none() && again {
        *long = Some(client.submit(Class::Bulk, 0, REGION as u64)?);
    }
    Ok(())
}

/// Measures the time of the long transfer alone in nanoseconds.
fn transfer(client: &mut Client) -> Result<f64> {
    let mut all = Vec::with_capacity(TRANSFERS);
    for _ in 0..TRANSFERS {
        let started = Instant::now();
        let mut long = Some(client.submit(Class::Bulk, 0, REGION as u64)?);
        while long.is_some() {
            go_on(client, &mut long, false)?;
        }
        all.push(started.elapsed().as_nanos() as f64);
    }
    Ok(median(&all))
}

fn by_rc(client: &mut Client, beside: bool) -> Result<Delays> {
    let end = &mut client.end;
    let mut under_way = false;
    let delays = delays(client.part, |pause| {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            keep_reading(end, &mut under_way, beside)?;
        }
        let started = Instant::now();
        let list = [end.local.sge(0, LEN)];
        end.qps[0].post_send(&work::read(PROBE, &list, end.remote.at(0)))?;
        while !took(end, &mut under_way)? {}
        Ok(started.elapsed())
    })?;
    while under_way {
        took(end, &mut under_way)?;
    }
    Ok(delays)
}

/// Posts the next long READ of RC when the previous one has ended.
fn keep_reading(end: &mut End, under_way: &mut bool, beside: bool) -> Result<()> {
    if beside && !*under_way {
        let list = [end.local.sge(0, REGION)];
        end.qps[0].post_send(&work::read(LONG, &list, end.remote.at(0)))?;
        *under_way = true;
    }
    took(end, under_way).map(drop)
}

/// Returns true if a short READ has ended. Records if the long one has.
fn took(end: &mut End, under_way: &mut bool) -> Result<bool> {
    let mut done = [EMPTY];
    if end.cq.poll(&mut done)? == 0 {
        return Ok(false);
    }
    let status = done[0].status;
    anyhow::ensure!(status == remora_verbs::Status::Success, "RC's READ ended: {}", status.explain());
    if done[0].id == LONG {
        *under_way = false;
    }
    Ok(done[0].id == PROBE)
}
