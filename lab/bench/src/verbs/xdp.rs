//! Port xdp between two network namespaces, compared with raw AF_XDP frames of the same lengths, with port
//! udp, and with UCX and libfabric over the kernel's TCP.

use anyhow::Result;

use super::{Bench, Verb, latency, rate};
use crate::floor_xdp::Raw;
use crate::stack::{Carrier, Stack};
use crate::testbed::Testbed;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{Command, NicCommand};
use crate::testbed::veth::{RAW, Side};
use crate::{PortName, Row, SHORTER};

/// The length of a request in bytes.
const LEN: usize = 64;
/// The number of round trips of a round.
const TRIPS: u64 = 10_000 / SHORTER;
/// The number of requests, and of raw frames, of a round of rates.
const REQUESTS: usize = 200_000 / SHORTER as usize;

/// Largest time in nanoseconds by which a READ may exceed the raw frames.
const OVER_RAW: f64 = 500.0;
/// Least ratio of the rate of READs to the rate of the raw echo.
const OF_ECHO: f64 = 0.8;
/// Target ratios of the latency of UCX and libfabric on Remora, over UDP and over AF_XDP, to their latency
/// over TCP.
const OF_TCP_BY_UDP: f64 = 0.5;
const OF_TCP_BY_XDP: f64 = 0.25;
/// The first port of the other programs in the namespaces, which are otherwise unused.
const FIRST_PORT: u16 = 20_000;

/// Measures everything on port xdp. If no namespaces can be created, the port is left out, unless it was
/// requested explicitly.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let opened = Testbed::open(PortName::Xdp, bench.cores, 0, bench.args.port.is_some())?;
    let Some(testbed) = opened else { return Ok(()) };
    bench.peer = Peer::start(&testbed)?;
    let mut raw = Raw::open(RAW, Side::Far.raw())?;
    let mut xdp = End::open(&bench.peer, PortName::Xdp)?;
    for verb in Verb::BOTH {
        round_trips(bench, &mut raw, &mut xdp, verb)?;
    }
    working(bench, &mut raw)?;
    rates(bench, &mut raw, &mut xdp)?;
    beside_tcp(bench, &testbed, &mut raw, &mut xdp)?;
    latency::sleeping(bench, &mut xdp)
}

/// Measures the typical round trip of the raw frames of `verb`.
fn floor(peer: &Peer, raw: &mut Raw, verb: Verb) -> Result<f64> {
    let lengths = latency::lengths(verb);
    peer.run(Command::RawXdp { answer: lengths.back, works: false })?;
    let floor = raw.ping_pong(lengths, TRIPS, || ())?;
    peer.run(Command::Sleep)?;
    Ok(floor)
}

/// Measures the typical round trip and the 99th percentile of `verb`.
fn trips(peer: &Peer, end: &mut End, verb: Verb) -> Result<(f64, f64)> {
    peer.run(end.command(NicCommand::Serve))?;
    let took = latency::trips(end, verb, TRIPS)?;
    peer.run(Command::Sleep)?;
    Ok(took)
}

fn round_trips(bench: &mut Bench<'_>, raw: &mut Raw, end: &mut End, verb: Verb) -> Result<()> {
    let case = format!("xdp/{}/{LEN}", verb.name());
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, _| {
        let floor = floor(peer, raw, verb)?;
        let (typical, p99) = trips(peer, end, verb)?;
        Ok([typical, floor, p99, typical - floor])
    })?;
    if let Some([p50, floor, p99, over]) = rounds {
        let report = &mut bench.report;
        report.add(Row::new("verbs", &case, "latency_p50", "ns", &p50).against("raw-xdp-pingpong", &floor));
        let over = Row::new("verbs", &case, "latency_over_raw_xdp", "ns", &over);
        report.add(if verb == Verb::Read { over.at_most(OVER_RAW) } else { over });
        report.add(Row::new("verbs", &case, "latency_p99", "ns", &p99));
    }
    Ok(())
}

/// Measures the slowdown of kernel calls after other code has run: the raw ping-pong with and without such
/// code. Neither the rings nor the frames are affected by that code.
fn working(bench: &mut Bench<'_>, raw: &mut Raw) -> Result<()> {
    let case = format!("xdp/raw-with-other-code/{LEN}");
    let lengths = latency::lengths(Verb::Read);
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, _| {
        let floor = floor(peer, raw, Verb::Read)?;
        peer.run(Command::RawXdp { answer: lengths.back, works: true })?;
        let (took, own) = raw.ping_pong_working(lengths, TRIPS)?;
        peer.run(Command::Sleep)?;
        // The peer's core does the same work.
        Ok([took, floor, 2.0 * own, took - floor - 2.0 * own])
    })?;
    if let Some([took, floor, own, lost]) = rounds {
        let report = &mut bench.report;
        report.add(Row::new("verbs", &case, "latency_p50", "ns", &took).against("raw-xdp-pingpong", &floor));
        report.add(Row::new("verbs", &case, "other_code", "ns", &own));
        report.add(Row::new("verbs", &case, "kernel_slower_by", "ns", &lost));
    }
    Ok(())
}

/// Measures the rate of READs, whose packets correspond to those of the echo, and of WRITEs, for which one
/// packet back acknowledges many.
fn rates(bench: &mut Bench<'_>, raw: &mut Raw, end: &mut End) -> Result<()> {
    let case = |verb: Verb| format!("xdp/{}/{LEN}/window-{}", verb.name(), rate::WINDOW);
    let lengths = latency::lengths(Verb::Read);
    let rounds = bench.rounds(&format!("{}/rate", case(Verb::Read)), |peer, _| {
        peer.run(Command::RawXdp { answer: lengths.back, works: false })?;
        let echo = raw.echo(lengths, REQUESTS)?;
        peer.run(end.command(NicCommand::Serve))?;
        let mut rate_of = |verb| rate::batches(end, verb, rate::BATCH, REQUESTS);
        let rates = [rate_of(Verb::Read)?, rate_of(Verb::Write)?];
        peer.run(Command::Sleep)?;
        Ok([rates[0], rates[1], echo])
    })?;
    if let Some([read, write, echo]) = rounds {
        let row = Row::new("verbs", case(Verb::Read), "rate", "1/s", &read);
        bench.report.add(row.against("raw-xdp-echo", &echo).at_least(OF_ECHO));
        bench.report.add(Row::new("verbs", case(Verb::Write), "rate", "1/s", &write));
    }
    Ok(())
}

/// Compares READs over AF_XDP and over UDP sockets with the ping-pongs of UCX and libfabric over TCP, in turn
/// between the same namespaces.
fn beside_tcp(bench: &mut Bench<'_>, testbed: &Testbed, raw: &mut Raw, xdp: &mut End) -> Result<()> {
    let case = |port: &str| format!("{port}/read/{LEN}/veth");
    if !bench.args.wants_case(&format!("{}/latency", case("udp"))) {
        return Ok(());
    }
    let stacks = Stack::installed();
    let mut udp = End::open(&bench.peer, PortName::Udp)?;
    let mut ports = FIRST_PORT..;
    let mut others: Vec<Vec<f64>> = vec![Vec::new(); stacks.len()];
    let rounds = bench.rounds(&format!("{}/latency", case("udp")), |peer, _| {
        let floor = floor(peer, raw, Verb::Read)?;
        let (by_xdp, _) = trips(peer, xdp, Verb::Read)?;
        let (by_udp, _) = trips(peer, &mut udp, Verb::Read)?;
        for ((stack, took), port) in stacks.iter().zip(&mut others).zip(&mut ports) {
            // A failing rival invalidates only its own result.
            match stack.round_trip(testbed, Carrier::Tcp, port, LEN) {
                Ok(round_trip) => took.push(round_trip),
                Err(error) => tracing::warn!("{} is left out of a round: {error:#}", stack.name()),
            }
        }
        Ok([by_xdp, by_udp, floor])
    })?;
    let Some([by_xdp, by_udp, floor]) = rounds else { return Ok(()) };
    let row = |port: &str, took: &[f64]| Row::new("verbs", case(port), "latency_p50", "ns", took);
    bench.report.add(row("xdp", &by_xdp).against("raw-xdp-pingpong", &floor));
    bench.report.add(row("udp", &by_udp).against("raw-xdp-pingpong", &floor));
    for (stack, took) in stacks.iter().zip(&others).filter(|(_, took)| !took.is_empty()) {
        bench.report.add(row("xdp", &by_xdp).against(stack.name(), took).within(OF_TCP_BY_XDP));
        bench.report.add(row("udp", &by_udp).against(stack.name(), took).within(OF_TCP_BY_UDP));
    }
    Ok(())
}
