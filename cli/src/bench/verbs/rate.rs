//! Requests per second of 64 bytes, posted in batches, against one server core.

use std::time::Instant;

use anyhow::Result;
use verbs::{Flags, WorkRequest};

use super::{Bench, Verb};
use crate::bench::Row;
use crate::bench::pair::End;
use crate::bench::peer::Role;

const LEN: usize = 64;
/// Requests on the way.
const WINDOW: usize = 128;
/// Requests posted together: one doorbell, one completion.
const BATCH: usize = 32;
/// Requests of a round.
const REQUESTS: usize = 1_000_000;

/// Rates of READ and WRITE.
pub fn run(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    for verb in Verb::BOTH {
        let case = format!("{}/{}/{LEN}/window-{WINDOW}", end.port.name(), verb.name());
        let requests = if end.port == crate::bench::PortName::Shm { REQUESTS } else { REQUESTS / 4 };
        let rounds = bench.rounds(&format!("{case}/rate"), |peer, _| {
            peer.play(end.serving(), 0, 0)?;
            let rate = batches(end, verb, requests)?;
            peer.play(Role::Sleep, 0, 0)?;
            Ok([rate])
        })?;
        if let Some([rate]) = rounds {
            bench.report.add(Row::new("verbs", &case, "rate", "1/s", &rate));
        }
    }
    Ok(())
}

/// Requests per second.
fn batches(end: &mut End, verb: Verb, requests: usize) -> Result<f64> {
    let list = [end.local.sge(0, LEN)];
    let (mut posted, mut done) = (0, 0);
    let started = Instant::now();
    while done < requests {
        if posted < requests && posted - done + BATCH <= WINDOW {
            let mut batch = end.qps[0].batch()?;
            for n in 0..BATCH {
                let remote = end.remote.at((n * LEN) as u64);
                let request = verb.request(n as u64, &list, remote);
                let flags = Flags { signaled: n + 1 == BATCH, ..Flags::default() };
                batch.post_send(&WorkRequest { flags, ..request })?;
            }
            batch.ring();
            posted += BATCH;
        } else {
            end.complete(1)?;
            done += BATCH;
        }
    }
    Ok(requests as f64 / started.elapsed().as_secs_f64())
}
