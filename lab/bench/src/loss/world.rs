//! Loss in simulated time: scenarios with the NIC's own code at every host, with another seed in each round.

use anyhow::{Result, anyhow, ensure};
use remora_fabric::engine::{Picos, transmission};
use remora_fabric::network::Cause;
use remora_fabric::simulation::Charging;
use remora_fabric::topology::{Link, NodeKind, Topology};
use remora_fault::Random;
use remora_scenario::Flow;
use remora_scenario::run::{Run, Status};
use remora_scenario::scenario::{Buffering, Network, Scenario, Switch, Transport, TransportName};
use remora_scenario::units::{Size, Time};
use remora_scenario::workload::Workload;
use remora_verbs::irn::{Recovery, Settings};

use super::{BDP, Bench, MTU};
use crate::{Row, median, plot};

/// The rate of the paper's links in bits per second.
const RATE: u64 = 40_000_000_000;
/// The number of packets that each side writes.
const PACKETS: u64 = 50_000;
/// The number of hosts that write to one host at the same time.
const SENDERS: [usize; 4] = [4, 8, 16, 32];
/// The number of packets that each of them writes: 1 MiB.
const BURST: u64 = 1024;
/// The length of a RETH, which IRN has in each packet.
const RETH: u64 = 16;

/// Returns the bytes for which a link is occupied by a full packet of IRN.
fn full() -> u64 {
    u64::from(Charging::Ethernet.full(MTU)) + RETH
}

/// Returns the picoseconds in which [`BDP`] full packets are sent.
fn round_trip() -> u64 {
    BDP * transmission(full(), RATE)
}

/// Returns the transport of a scenario: IRN with these settings, or go-back-N for `None`.
fn transport(irn: Option<Settings>) -> Transport {
    let Some(irn) = irn else { return Transport { name: TransportName::Roce, ..Transport::default() } };
    Transport {
        name: match irn.recovery {
            _ if !irn.bdp_fc => TransportName::IrnWithoutCap,
            Recovery::Selective => TransportName::Irn,
            Recovery::HeadOnly => TransportName::IrnWithoutSack,
            Recovery::GoBackN => TransportName::IrnGoBackN,
        },
        cap: Some(irn.cap),
        sacked_leave_cap: irn.sacked_leave,
        rto_low: Some(Time(irn.rto_low_ns * Picos::NANOSECOND)),
        rto_high: Some(Time(irn.rto_high_ns * Picos::NANOSECOND)),
        few_packets: Some(irn.few),
        ..Transport::default()
    }
}

/// Returns a scenario of two hosts with a path of [`BDP`] packets between them. They write to each other, so
/// that both report losses at the same time. Each frame is lost with probability `loss`.
fn exchange_scenario(irn: Option<Settings>, loss: f64, packets: u64, seed: u64) -> Scenario {
    let link = Link { a: 0, b: 1, rate: RATE, delay: round_trip() / 2, loss };
    let topology = Topology { nodes: vec![NodeKind::Host; 2], links: vec![link], places: Vec::new() };
    let bytes = packets * u64::from(MTU);
    let flows = vec![Flow::write(0, 0, 1, bytes, 0), Flow::write(1, 1, 0, bytes, 0)];
    Scenario {
        seed,
        mtu: MTU,
        transport: transport(irn),
        workloads: vec![Workload::listed(flows)],
        ..Scenario::on(Network::from(&topology))
    }
}

/// Returns a scenario in which `senders` hosts write `packets` packets each to host 0. The buffer of its
/// switch port holds twice the bandwidth-delay product, as in the paper. `seed` staggers the senders within
/// a round trip.
fn incast_scenario(irn: Settings, senders: usize, packets: u64, seed: u64) -> Scenario {
    let hosts = senders as u32 + 1;
    let link = |host| Link { a: host, b: hosts, rate: RATE, delay: round_trip() / 4, loss: 0.0 };
    let mut nodes = vec![NodeKind::Host; hosts as usize];
    nodes.push(NodeKind::Switch);
    let topology = Topology { nodes, links: (0..hosts).map(link).collect(), places: Vec::new() };
    let mut random = Random::new(seed);
    let mut start = 0;
    let flow = |source: u32| {
        start += random.below(round_trip() / senders as u64 + 1);
        Flow::write(u64::from(source), source, 0, packets * u64::from(MTU), start)
    };
    let flows = (1..hosts).map(flow).collect();
    Scenario {
        seed,
        mtu: MTU,
        transport: transport(Some(irn)),
        switch: Switch { kind: Buffering::Fifo, buffer: Size(2 * BDP * full()), ..Switch::default() },
        workloads: vec![Workload::listed(flows)],
        ..Scenario::on(Network::from(&topology))
    }
}

/// The result of a scenario.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Outcome {
    /// The time until the last flow ended, in picoseconds.
    took: u64,
    /// The bytes of all flows together.
    bytes: u64,
    /// The number of packets that links or the switch lost.
    lost: u64,
}

impl Outcome {
    /// Returns the payload bits per second.
    fn goodput(&self) -> f64 {
        self.bytes as f64 * 8e12 / self.took as f64
    }
}

fn run(scenario: &Scenario) -> Result<Outcome> {
    let mut run = Run::new(scenario).map_err(|says| anyhow!(says))?;
    let mut outcome = Outcome { took: 0, bytes: 0, lost: 0 };
    while let Some(row) = run.advance(Picos::NEVER) {
        ensure!(row.status == Status::Success, "flow {} ended: {:?}", row.flow.id, row.status);
        outcome.took = outcome.took.max(row.start.0 + row.fct);
        outcome.bytes += row.flow.size;
    }
    ensure!(run.unfinished().next().is_none(), "a flow does not end");
    let lost = |cause: Cause| run.totals().lost[cause as usize].packets;
    outcome.lost = lost(Cause::Loss) + lost(Cause::Full);
    Ok(outcome)
}

/// Measures two hosts that write to each other over a path of 100 packets that loses frames at random.
pub(crate) fn exchange(bench: &mut Bench<'_>) -> Result<()> {
    let packets = bench.args.packets.unwrap_or(PACKETS).min(u64::from(u32::MAX));
    let title = "Goodput by loss: simulated, 40 Gb/s, a path of 100 packets, cap 110";
    bench.exchanges("world", title, |contestant, loss, seed| {
        Ok(run(&exchange_scenario(contestant.irn, loss, packets, seed))?.goodput())
    })
}

/// The numbers of lost frames and the times of the last completion, by round.
type Incast = [Vec<f64>; 2];

/// Measures many hosts that write to one through a buffer that overflows, with and without BDP-FC.
pub(crate) fn incast(bench: &mut Bench<'_>) -> Result<()> {
    if !bench.args.wants_case("world/incast") {
        return Ok(());
    }
    let burst = bench.args.packets.unwrap_or(BURST).min(BURST);
    let machines = [true, false].map(|bdp_fc| Settings { bdp_fc, ..Settings::default() });
    bench.bar.set_length(u64::from(bench.args.rounds) * (SENDERS.len() * machines.len()) as u64);
    bench.bar.set_position(0);
    let mut plotted: [Vec<f64>; 2] = Default::default();
    for senders in SENDERS {
        let mut results: [Incast; 2] = Default::default();
        for round in 0..u64::from(bench.args.rounds) {
            for (machine, [lost, took]) in machines.iter().zip(&mut results) {
                bench.bar.set_message(format!("world/incast/{senders}"));
                let outcome = run(&incast_scenario(*machine, senders, burst, round))?;
                lost.push(outcome.lost as f64);
                took.push(outcome.took as f64 / 1e3);
                bench.bar.inc(1);
            }
        }
        for (times, [_, took]) in plotted.iter_mut().zip(&results) {
            times.push(median(took) / 1e6);
        }
        incast_rows(senders, &results).into_iter().for_each(|row| bench.report.add(row));
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

fn incast_rows(senders: usize, [with, without]: &[Incast; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, (metric, unit)) in [("lost", "frames"), ("completion", "ns")].into_iter().enumerate() {
        let with = &with[number];
        let without = &without[number];
        rows.push(Row::new("loss", format!("world/incast/{senders}/irn"), metric, unit, with));
        let case = format!("world/incast/{senders}/irn-without-bdp-fc");
        // With BDP-FC the result must be better, by however little.
        rows.push(Row::new("loss", case, metric, unit, without).against("irn", with).at_least(1.0));
    }
    rows
}

#[cfg(test)]
mod tests;
