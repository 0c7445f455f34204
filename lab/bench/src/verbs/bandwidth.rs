//! Bytes per second of 1 MiB requests between cold buffers, compared with other ways to move the same bytes.

use std::time::Instant;

use anyhow::Result;

use super::{Bench, Verb};
use crate::testbed::pair::End;
use crate::testbed::protocol::{Command, NicCommand, TARGET};
use crate::{PortName, Row, floor, stream};

const LEN: usize = 1 << 20;
/// The number of requests in flight.
const WINDOW: usize = 2;
/// The number of bytes of a round, which uses each buffer once.
const BYTES: usize = TARGET;

/// Measures the bandwidth of READ and WRITE.
pub(crate) fn run(bench: &mut Bench<'_>, end: &mut End) -> Result<()> {
    let source = vec![1u8; BYTES];
    let mut target = vec![2u8; BYTES];
    for verb in Verb::BOTH {
        let case = format!("{}/{}/{LEN}", end.port.name(), verb.name());
        let baseline = match end.port {
            PortName::Shm => "memcpy-cold",
            PortName::Udp => "raw-gso-stream-cold",
            PortName::Xdp => return Ok(()),
        };
        let rounds = bench.rounds(&format!("{case}/bandwidth"), |peer, raw| {
            let floor = match end.port {
                PortName::Shm => floor::memcpy(&source, &mut target, LEN),
                PortName::Udp => {
                    peer.run(Command::Stream { to: raw.socket.local().port() })?;
                    stream::send(&mut raw.socket, &raw.destination, &source, BYTES)?
                }
                PortName::Xdp => f64::NAN,
            };
            peer.run(end.command(NicCommand::Serve))?;
            let bandwidth = transfer(end, verb)?;
            peer.run(Command::Sleep)?;
            Ok([bandwidth, floor])
        })?;
        if let Some([bandwidth, floor]) = rounds {
            bench
                .report
                .add(Row::new("verbs", &case, "bandwidth", "B/s", &bandwidth).against(baseline, &floor));
        }
    }
    Ok(())
}

fn transfer(end: &mut End, verb: Verb) -> Result<f64> {
    let started = Instant::now();
    end.stream(BYTES / LEN, WINDOW, |end, number| {
        let list = [end.local.sge(number * LEN, LEN)];
        let remote = end.remote.at((number * LEN) as u64);
        Ok(end.qps[0].post_send(&verb.request(number as u64, &list, remote))?)
    })?;
    Ok(BYTES as f64 / started.elapsed().as_secs_f64())
}
