//! The cost of IRN without loss: packets per second on one core, which drives both ends, compared with
//! go-back-N on the same NICs.

use std::time::Instant;

use anyhow::{Result, ensure};
use remora_verbs::{Device, EMPTY, Flags, QpOptions, QueuePair, Ready, Status, WorkRequest, work};

use super::{Bench, MTU};
use crate::Row;
use crate::SHORTER;
use crate::testbed::local::LocalNic;
use remora_options::cores::{pin, two_cores};

/// The number of packets of a round.
const PACKETS: usize = 400_000 / SHORTER as usize;
/// The number of requests posted together, with one doorbell and one completion.
const BATCH: usize = 16;
/// The number of batches in flight.
const WINDOW: usize = 6;

/// The sizes of the WRITEs: bytes of a request, and its number of packets.
const WRITES: [(usize, usize); 2] = [(64, 1), (8 * MTU as usize, 8)];

/// Two connected queue pairs of two NICs.
struct Ends {
    near: QueuePair<Ready>,
    _far: QueuePair<Ready>,
}

/// Measures the rates of go-back-N and IRN in turn.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let cases = WRITES.map(|(len, packets)| (format!("shm/lossless/{len}"), len, packets));
    let wanted: Vec<_> =
        cases.iter().filter(|(case, ..)| bench.args.wants_case(&format!("{case}/rate"))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    pin(two_cores(&bench.args.cores)?[0])?;
    let (mut nics, mut ends) = connected()?;
    for (case, len, packets) in wanted {
        bench.bar.set_message(case.clone());
        bench.bar.set_length(u64::from(bench.args.rounds));
        bench.bar.set_position(0);
        let mut rates: [Vec<f64>; 2] = Default::default();
        for round in 0..=bench.args.rounds {
            for (ends, rates) in ends.iter_mut().zip(&mut rates) {
                let rate = write(&mut nics, ends, *len, PACKETS / packets)? * *packets as f64;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
            bench.bar.inc(1);
        }
        let [back, irn] = rates;
        let row = Row::new("loss", format!("{case}/irn"), "rate", "packets/s", &irn);
        bench.report.add(row.against("go-back-n", &back).at_least(0.97));
    }
    Ok(())
}

/// Opens two NICs with two connections between them: one with go-back-N and one with IRN.
fn connected() -> Result<([LocalNic; 2], [Ends; 2])> {
    let open = || LocalNic::open(Device::shm(), 256, WRITES[1].0);
    let [near, far] = [open()?, open()?];
    let pair = |irn| -> Result<Ends> {
        let options = QpOptions {
            irn,
            path_mtu: MTU,
            max_send_wr: (2 * BATCH * WINDOW) as u32,
            ..QpOptions::default()
        };
        let [near, far] = LocalNic::connect([&near, &far], &options)?;
        Ok(Ends { near, _far: far })
    };
    let ends = [pair(false)?, pair(true)?];
    Ok(([near, far], ends))
}

/// Measures the requests per second.
fn write(nics: &mut [LocalNic; 2], ends: &mut Ends, len: usize, requests: usize) -> Result<f64> {
    let [near, far] = nics;
    let list = [near.local.sge(0, len)];
    let remote = far.target.remote(0);
    let batches = requests.div_ceil(BATCH);
    let mut posted = 0;
    let mut done = 0;
    let mut completions = [EMPTY; 16];
    let started = Instant::now();
    while done < batches {
        if posted < batches && posted - done < WINDOW {
            let mut batch = ends.near.batch()?;
            for number in 0..BATCH {
                let flags = Flags { signaled: number + 1 == BATCH, ..Flags::default() };
                batch.post_send(&WorkRequest { flags, ..work::write(number as u64, &list, remote) })?;
            }
            batch.ring();
            posted += 1;
        }
        far.cq.poll(&mut [])?;
        let got = near.cq.poll(&mut completions)?;
        for completion in &completions[..got] {
            ensure!(completion.status == Status::Success, "a WRITE ended: {}", completion.status.explain());
        }
        done += got;
    }
    Ok((batches * BATCH) as f64 / started.elapsed().as_secs_f64())
}
