//! Reads and writes, single and in parallel, compared with RC's and with the time of the cipher.

use std::time::Instant;

use anyhow::Result;
use remora_verbs::work;
use remora_wire::rma::Kind;

use super::client::Client;
use super::crypto::Costs;
use super::{Bench, path};
use crate::testbed::pair::Peer;
use crate::testbed::protocol::{Command, NicCommand};
use crate::{PortName, Row, SHORTER, histogram, typical};

/// The lengths in bytes of the short operations and of the longest one.
const SHORT: usize = 64;
const LONG: usize = 4096;
/// The numbers of operations in flight.
const MANY: usize = 128;
const FEW: usize = 32;
/// The number of READs that RC posts together, with one doorbell and one completion.
const BATCH: usize = 32;
/// The number of round trips of a round, and of those for the 99th percentile.
const TRIPS: usize = 10_000 / SHORTER as usize;

/// The paths of all cases.
pub(crate) const CASES: [&str; 4] = ["read/64", "write/64", "read/64/window-128", "read/4096/window-32"];

/// Factor of the cipher's time in the bound of the latency: RC's latency plus this factor times the cipher's
/// time.
const CRYPTO: f64 = 1.3;
/// Largest ratio of a write's latency to a read's: two round trips against one.
const WRITE: f64 = 2.2;
/// The least ratios of the rates to those that RC and the cipher allow.
const RATE: f64 = 0.6;
const GOODPUT: f64 = 0.8;

/// Measures latency and rates over the client's port.
pub(crate) fn run(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    read_latency(bench, peer, client)?;
    write_latency(bench, peer, client)?;
    rate(bench, peer, client)?;
    goodput(bench, peer, client)
}

/// Returns the number of round trips of a round, at least enough for a few readings.
fn trips(client: &Client) -> u64 {
    client.part.of(TRIPS).max(64) as u64
}

/// Measures the typical time of an operation.
pub(crate) fn trip(client: &mut Client, kind: Kind) -> Result<f64> {
    let trips = trips(client);
    for _ in 0..trips / 10 {
        client.one(kind, SHORT as u64)?;
    }
    typical(trips, || client.one(kind, SHORT as u64))
}

/// Measures the typical time of RC's READ.
fn rc_trip(client: &mut Client) -> Result<f64> {
    let trips = trips(client);
    let end = &mut client.end;
    let list = [end.local.sge(0, SHORT)];
    let remote = end.remote.at(4096);
    for id in 0..trips / 10 {
        end.one(&work::read(id, &list, remote))?;
    }
    typical(trips, || end.one(&work::read(0, &list, remote)))
}

fn p99(client: &mut Client, kind: Kind) -> Result<f64> {
    let mut histogram = histogram()?;
    for _ in 0..trips(client) {
        let started = Instant::now();
        client.one(kind, SHORT as u64)?;
        histogram.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok(histogram.value_at_quantile(0.99) as f64)
}

fn serving(peer: &Peer, port: PortName) -> Result<()> {
    peer.run(Command::Nic { port, command: NicCommand::Serve })
}

fn read_latency(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    let port = client.end.port;
    let case = path(port, CASES[0]);
    let rounds = bench.rounds(&case, || {
        serving(peer, port)?;
        let rc = rc_trip(client)?;
        let own = trip(client, Kind::Read)?;
        let p99 = p99(client, Kind::Read)?;
        peer.run(Command::Sleep)?;
        let costs = Costs::measure(SHORT)?.both();
        Ok([own, rc, costs, rc + CRYPTO * costs, p99])
    })?;
    let Some([own, rc, costs, bound, p99]) = rounds else { return Ok(()) };
    let row = || Row::new("rma", &case, "latency_p50", "ns", &own);
    bench.add(row().against("rc-read + 1.3 x crypto", &bound).within(1.0));
    bench.add(row().against("rc-read", &rc));
    bench.add(Row::new("rma", &case, "crypto_of_both_sides", "ns", &costs));
    bench.add(Row::new("rma", &case, "latency_p99", "ns", &p99));
    Ok(())
}

fn write_latency(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    let port = client.end.port;
    let case = path(port, CASES[1]);
    let rounds = bench.rounds(&case, || {
        serving(peer, port)?;
        let read = trip(client, Kind::Read)?;
        let write = trip(client, Kind::Write)?;
        peer.run(Command::Sleep)?;
        Ok([write, read])
    })?;
    let Some([write, read]) = rounds else { return Ok(()) };
    bench.add(Row::new("rma", &case, "latency_p50", "ns", &write).against("rma-read", &read).within(WRITE));
    Ok(())
}

/// Returns the number of requests of a round; fewer if each needs a system call.
fn requests(client: &Client, most: usize) -> usize {
    client.part.of(if client.end.port == PortName::Shm { most } else { most / 4 })
}

fn rate(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    let port = client.end.port;
    let case = path(port, CASES[2]);
    let count = requests(client, 200_000);
    let rounds = bench.rounds(&case, || {
        serving(peer, port)?;
        let rc = client.rc_reads(SHORT, MANY, BATCH, count)?;
        let own = client.reads(SHORT, MANY, BATCH, count)?;
        peer.run(Command::Sleep)?;
        let costs = Costs::measure(SHORT)?.busier();
        Ok([own, rc, 1e9 / (1e9 / rc + costs)])
    })?;
    let Some([own, rc, bound]) = rounds else { return Ok(()) };
    let row = || Row::new("rma", &case, "rate", "1/s", &own);
    bench.add(row().against("1/(1/rc + crypto of the busier side)", &bound).at_least(RATE));
    bench.add(row().against("rc-read", &rc));
    Ok(())
}

fn goodput(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    let port = client.end.port;
    let case = path(port, CASES[3]);
    let count = requests(client, 100_000);
    let rounds = bench.rounds(&case, || {
        serving(peer, port)?;
        let rc = LONG as f64 * client.rc_reads(LONG, FEW, FEW / 4, count)?;
        let own = LONG as f64 * client.reads(LONG, FEW, FEW / 4, count)?;
        peer.run(Command::Sleep)?;
        let cipher = LONG as f64 * 1e9 / Costs::measure(LONG)?.busier();
        Ok([own, rc, cipher, rc.min(cipher)])
    })?;
    let Some([own, rc, cipher, lesser]) = rounds else { return Ok(()) };
    let row = || Row::new("rma", &case, "bandwidth", "B/s", &own);
    bench.add(row().against("the lesser of RC and the cipher", &lesser).at_least(GOODPUT));
    bench.add(row().against("rc-read", &rc));
    bench.add(row().against("the cipher of one core", &cipher));
    Ok(())
}
