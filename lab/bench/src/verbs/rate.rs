//! Requests of 64 bytes per second, posted in batches and one by one, with one core for the server.

use std::time::Instant;

use anyhow::Result;
use remora_verbs::{Flags, WorkRequest};

use super::{Bench, Verb};
use crate::testbed::pair::{End, Peer, Raw};
use crate::testbed::protocol::{Command, NicCommand};
use crate::{PortName, Row, SHORTER, packets};

const LEN: usize = 64;
/// The number of requests in flight.
pub(crate) const WINDOW: usize = 128;
/// The number of requests posted together, with one doorbell and one completion.
pub(crate) const BATCH: usize = 32;
/// Batch length of typical programs; corresponds to perftest's `-l 16`.
pub(crate) const SHORT_BATCH: usize = 16;
/// The number of requests of a round.
const REQUESTS: usize = 1_000_000 / SHORTER as usize;

/// Measures the rates of READ and WRITE.
pub(super) fn run(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    for verb in Verb::BOTH {
        for batch in [BATCH, SHORT_BATCH, 1] {
            let case = format!("{}/{}/{LEN}/window-{WINDOW}/batch-{batch}", end.port.name(), verb.name());
            measured(bench, end, verb, &case, batch)?;
        }
    }
    Ok(())
}

/// Measures the rate of a verb in batches of `batch`.
fn measured(bench: &mut Bench<'_>, end: &mut End, verb: Verb, case: &str, batch: usize) -> Result<()> {
    let udp = end.port == PortName::Udp;
    // Requests that are posted one by one take several times as long, because each is a datagram of its own.
    let requests = if udp { REQUESTS / if batch == 1 { 16 } else { 4 } } else { REQUESTS };
    let rounds = bench.rounds(&format!("{case}/rate"), |peer, raw| {
        let packets = if udp { raw_packets(peer, raw)? } else { 0.0 };
        peer.run(end.command(NicCommand::Serve))?;
        let rate = batches(end, verb, batch, requests)?;
        peer.run(Command::Sleep)?;
        Ok([rate, packets])
    })?;
    if let Some([rate, packets]) = rounds {
        let row = Row::new("verbs", case, "rate", "1/s", &rate);
        bench.report.add(if udp { row.against("raw-gso-gro-packets", &packets) } else { row });
    }
    Ok(())
}

/// Measures the packets per second that the raw port carries one way, with packets as long as those of a
/// 64-byte message.
fn raw_packets(peer: &Peer, raw: &mut Raw) -> Result<f64> {
    const PACKET: usize = 12 + 16 + LEN + 4;
    peer.run(Command::Packets { len: PACKET, to: raw.socket.local().port() })?;
    let rate = packets::send(&mut raw.socket, &raw.destination, PACKET, REQUESTS / 2)?;
    peer.run(Command::Sleep)?;
    Ok(rate)
}

/// Measures the requests per second in batches of `batch`.
pub(crate) fn batches(end: &mut End, verb: Verb, batch: usize, requests: usize) -> Result<f64> {
    let list = [end.local.sge(0, LEN)];
    let mut posted = 0;
    let mut done = 0;
    let started = Instant::now();
    while done < requests {
        if posted < requests && posted - done + batch <= WINDOW {
            let mut posting = end.qps[0].batch()?;
            for n in 0..batch {
                let remote = end.remote.at((n * LEN) as u64);
                let request = verb.request(n as u64, &list, remote);
                let flags = Flags { signaled: n + 1 == batch, ..Flags::default() };
                posting.post_send(&WorkRequest { flags, ..request })?;
            }
            posting.ring();
            posted += batch;
        } else {
            end.complete(1)?;
            done += batch;
        }
    }
    Ok(requests as f64 / started.elapsed().as_secs_f64())
}
