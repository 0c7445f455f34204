//! Loss in the simulated world: the NIC's own code, virtual time, each round another seed.

use anyhow::Result;
use remora_fabric::loss::{self, Machine};
use remora_verbs::irn::Settings;

use super::Bench;
use crate::{Row, median, plot};

/// Packets that each side writes.
const PACKETS: u64 = 50_000;
/// Nodes that write to one, at once.
const SENDERS: [usize; 4] = [4, 8, 16, 32];
/// Packets that each of them writes: 1 MiB.
const BURST: u64 = 1024;
/// Packets that may be in flight, and are remembered, without BDP-FC: more than a burst has.
const UNCAPPED: u32 = 2048;

/// Two nodes write to each other over a path of 100 packets that loses frames at random.
pub fn exchange(bench: &mut Bench<'_>) -> Result<()> {
    let packets = bench.args.packets.unwrap_or(PACKETS).min(u64::from(u32::MAX)) as u32;
    let title = "Goodput by loss: simulated, 40 Gb/s, a path of 100 packets, cap 110";
    bench.exchanges("world", title, |contestant, loss, seed| {
        Ok(loss::exchange(&contestant.machine, loss, packets, seed).goodput())
    })
}

/// Frames lost and the time of the last completion, round by round.
type Incast = [Vec<f64>; 2];

/// Many nodes write to one through a buffer that overflows, with and without BDP-FC.
pub fn incast(bench: &mut Bench<'_>) -> Result<()> {
    if !bench.args.wants_case("world/incast") {
        return Ok(());
    }
    let burst = bench.args.packets.unwrap_or(BURST).min(BURST) as u32;
    let machine = |bdp_fc| Machine::Irn(Settings { bdp_fc, bitmap: UNCAPPED, ..Settings::default() });
    let machines = [machine(true), machine(false)];
    bench.bar.set_length(u64::from(bench.args.rounds) * (SENDERS.len() * machines.len()) as u64);
    bench.bar.set_position(0);
    let mut plotted: [Vec<f64>; 2] = Default::default();
    for senders in SENDERS {
        let mut found: [Incast; 2] = Default::default();
        for round in 0..u64::from(bench.args.rounds) {
            for (machine, [lost, took]) in machines.iter().zip(&mut found) {
                bench.bar.set_message(format!("world/incast/{senders}"));
                let outcome = loss::incast(machine, senders, burst, round);
                lost.push(outcome.lost as f64);
                took.push(outcome.took_ns as f64);
                bench.bar.inc(1);
            }
        }
        for (times, [_, took]) in plotted.iter_mut().zip(&found) {
            times.push(median(took) / 1e6);
        }
        let ([lost, took], [lost_without, took_without]) = (&found[0], &found[1]);
        for (metric, unit, with, without) in
            [("lost", "frames", lost, lost_without), ("completion", "ns", took, took_without)]
        {
            bench.report.add(Row::new("loss", format!("world/incast/{senders}/irn"), metric, unit, with));
            let case = format!("world/incast/{senders}/irn-without-bdp-fc");
            // More, and later: by however little.
            let row = Row::new("loss", case, metric, unit, without).against("irn", with).at_least(1.0);
            bench.report.add(row);
        }
    }
    let lines = ["irn", "irn-without-bdp-fc"].into_iter().zip(plotted);
    plot::Plot {
        title: "Many senders of 1 MiB each, one buffer of two bandwidth-delay products",
        x: "senders",
        y: "last completion, ms",
        labels: SENDERS.iter().map(ToString::to_string).collect(),
        lines: lines.map(|(name, values)| plot::Line { name: name.to_owned(), values }).collect(),
        ..plot::Plot::default()
    }
    .write(&bench.args.report.join("loss-incast.svg"))
}
