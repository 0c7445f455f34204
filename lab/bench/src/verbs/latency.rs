//! Round trips of 64 bytes, one at a time, compared with the raw ping-pong of the same frames and with the
//! exchange of two cache lines.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Bench, Verb};
use crate::echo::Echo;
use crate::floor::{self, Lengths};
use crate::sockperf::Sockperf;
use crate::testbed::pair::{End, Peer, Raw};
use crate::testbed::protocol::{Command, NicCommand};
use crate::{PortName, Row, SHORTER, typical};

/// The length of a request in bytes.
const LEN: usize = 64;
/// The number of round trips of a round.
const TRIPS: u64 = 20_000 / SHORTER;

/// Compares the raw ping-pong with sockperf's, with frames as long as those of a WRITE and its ACK.
pub(crate) fn floors(bench: &mut Bench<'_>) -> Result<()> {
    let case = format!("udp/raw/{LEN}");
    if !bench.args.wants(PortName::Udp) || !bench.args.wants_case(&format!("{case}/latency")) {
        return Ok(());
    }
    let Some(sockperf) = Sockperf::start(bench.cores[1])? else {
        tracing::warn!(
            "sockperf is not installed (`make setup-bench`): the raw UDP floor stands without its word"
        );
        return Ok(());
    };
    let len = lengths(Verb::Write).there;
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, raw| {
        // Both poll on the same core, so each is stopped while the other is measured.
        sockperf.go_on(false)?;
        peer.run(Command::Udp { answer: len, to: raw.socket.local().port() })?;
        let floor = floor::udp(&raw.socket, &raw.destination, Lengths { there: len, back: len }, TRIPS)?;
        peer.run(Command::Sleep)?;
        sockperf.go_on(true)?;
        Ok([floor, sockperf.round_trip(len)?])
    })?;
    if let Some([floor, theirs]) = rounds {
        bench
            .report
            .add(Row::new("verbs", &case, "latency_p50", "ns", &floor).against("sockperf-spinning", &theirs));
    }
    Ok(())
}

/// Returns the lengths from BTH to ICRC of a READ request and its response, or of a WRITE and its ACK.
pub(crate) fn lengths(verb: Verb) -> Lengths {
    match verb {
        Verb::Read => Lengths { there: 12 + 16 + 4, back: 12 + 4 + LEN + 4 },
        Verb::Write => Lengths { there: 12 + 16 + LEN + 4, back: 12 + 4 + 4 },
    }
}

/// Measures the latency of READ and WRITE.
pub(crate) fn run(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    for verb in Verb::BOTH {
        match end.port {
            PortName::Udp => over_udp(bench, end, verb)?,
            PortName::Shm => over_shm(bench, end, verb)?,
            // Port xdp is measured elsewhere, in its namespaces.
            PortName::Xdp => {}
        }
    }
    Ok(())
}

/// Measures the latency of a SEND and another SEND back.
pub(crate) fn sends(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    let case = format!("{}/send/{LEN}", end.port.name());
    let message = 12 + LEN + 4;
    let (name, ip) = match end.port {
        PortName::Udp => ("raw-udp-pingpong", 0),
        // Frames over shared memory begin with the IPv4 header.
        PortName::Shm => ("raw-ring-pingpong", 28),
        PortName::Xdp => return Ok(()),
    };
    let lengths = Lengths { there: message + ip, back: message + ip };
    let mut echo = Echo::new(&end.local, end.remote);
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, raw| {
        let floor = raw_trip(peer, raw, end.port, lengths)?;
        echo.start(&mut end.qps[0])?;
        peer.run(end.command(NicCommand::Echo { answer: LEN }))?;
        let mut trip = || echo.round_trip(&mut end.qps[0], &mut end.cq, LEN);
        (0..1000).try_for_each(|_| trip())?;
        let typical = typical(TRIPS, trip)?;
        end.settle()?;
        peer.run(Command::Sleep)?;
        Ok([typical, floor])
    })?;
    if let Some([p50, floor]) = rounds {
        bench.report.add(Row::new("verbs", &case, "latency_p50", "ns", &p50).against(name, &floor));
    }
    Ok(())
}

/// Measures the typical round trip of raw frames of these lengths.
fn raw_trip(peer: &Peer, raw: &mut Raw, port: PortName, lengths: Lengths) -> Result<f64> {
    let floor = match port {
        PortName::Shm => {
            peer.run(Command::Ring { answer: lengths.back })?;
            let (sender, receiver) = raw.link.rings();
            floor::ring(sender, receiver, lengths, TRIPS)
        }
        PortName::Udp | PortName::Xdp => {
            peer.run(Command::Udp { answer: lengths.back, to: raw.socket.local().port() })?;
            floor::udp(&raw.socket, &raw.destination, lengths, TRIPS)
        }
    }?;
    peer.run(Command::Sleep)?;
    Ok(floor)
}

fn over_udp(bench: &mut Bench<'_>, end: &mut End, verb: Verb) -> Result<()> {
    let case = format!("udp/{}/{LEN}", verb.name());
    let lengths = lengths(verb);
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, raw| {
        peer.run(Command::Udp { answer: lengths.back, to: raw.socket.local().port() })?;
        let floor = floor::udp(&raw.socket, &raw.destination, lengths, TRIPS)?;
        peer.run(end.command(NicCommand::Serve))?;
        let (typical, p99) = trips(end, verb, TRIPS)?;
        peer.run(Command::Sleep)?;
        Ok([typical, floor, p99])
    })?;
    if let Some([p50, floor, p99]) = rounds {
        bench
            .report
            .add(Row::new("verbs", &case, "latency_p50", "ns", &p50).against("raw-udp-pingpong", &floor));
        bench.report.add(Row::new("verbs", &case, "latency_p99", "ns", &p99));
    }
    Ok(())
}

fn over_shm(bench: &mut Bench<'_>, end: &mut End, verb: Verb) -> Result<()> {
    let case = format!("shm/{}/{LEN}", verb.name());
    // Frames over shared memory begin with the IPv4 header.
    let Lengths { there, back } = lengths(verb);
    let lengths = Lengths { there: there + 28, back: back + 28 };
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, raw| {
        peer.run(Command::Line)?;
        let line = floor::line(peer.page(), 10 * TRIPS)?;
        peer.run(Command::Ring { answer: lengths.back })?;
        let (sender, receiver) = raw.link.rings();
        let ring = floor::ring(sender, receiver, lengths, TRIPS)?;
        peer.run(end.command(NicCommand::Serve))?;
        let (typical, p99) = trips(end, verb, TRIPS)?;
        peer.run(Command::Sleep)?;
        Ok([typical, line, ring, p99, typical - ring])
    })?;
    if let Some([p50, line, ring, p99, over]) = rounds {
        bench.report.add(Row::new("verbs", &case, "latency_p50", "ns", &p50).against("two-lines", &line));
        bench
            .report
            .add(Row::new("verbs", &case, "latency_p50", "ns", &p50).against("raw-ring-pingpong", &ring));
        bench.report.add(Row::new("verbs", &case, "latency_over_raw_ring", "ns", &over));
        bench.report.add(Row::new("verbs", &case, "latency_p99", "ns", &p99));
    }
    Ok(())
}

/// Measures `count` round trips. Returns the typical time of one and the 99th percentile, which comes from a
/// second pass because reading the clock takes time, too.
pub(crate) fn trips(end: &mut End, verb: Verb, count: u64) -> Result<(f64, f64)> {
    let list = [end.local.sge(0, LEN)];
    let remote = end.remote.at(4096);
    for id in 0..1000 {
        end.one(&verb.request(id, &list, remote))?;
    }
    let mut id = 0;
    let typical = typical(count, || {
        id += 1;
        end.one(&verb.request(id, &list, remote))
    })?;
    let mut histogram = crate::histogram()?;
    for id in 0..count {
        let started = Instant::now();
        end.one(&verb.request(id, &list, remote))?;
        histogram.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok((typical, histogram.value_at_quantile(0.99) as f64))
}

/// Measures READs of a peer whose program sleeps, so that the NIC's own thread must wake up.
pub(crate) fn sleeping(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    let case = format!("{}/read/{LEN}/sleeping-target", end.port.name());
    let rounds = bench.rounds(&format!("{case}/latency"), |peer, _| {
        peer.run(Command::Sleep)?;
        let list = [end.local.sge(0, LEN)];
        let mut total = Duration::ZERO;
        const TIMES: u32 = 20;
        for id in 0..TIMES {
            std::thread::sleep(Duration::from_millis(5));
            let started = Instant::now();
            end.one(&Verb::Read.request(id.into(), &list, end.remote.at(0)))?;
            total += started.elapsed();
        }
        Ok([total.as_nanos() as f64 / f64::from(TIMES)])
    })?;
    if let Some([mean]) = rounds {
        bench.report.add(Row::new("verbs", &case, "latency_p50", "ns", &mean));
    }
    Ok(())
}
