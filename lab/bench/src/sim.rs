//! `remora bench sim`: packet-hops per second of the simulator, compared with READs of a NIC pair.

mod nic_pair;

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use remora_fabric::engine::Picos;
use remora_scenario::run::Run;
use remora_scenario::scenario::{Network, Payload, Scenario, Transport, TransportName};
use remora_scenario::units::{Rate, Size, Time};
use remora_scenario::workload::{Traffic, Workload};

use crate::{Args, Report, Row, SHORTER, median};
use nic_pair::NicPair;
use remora_options::progress;

/// A network to simulate, with the bound on its speed.
struct Case {
    name: &'static str,
    k: u32,
    traffic: Traffic,
    payload: Payload,
    /// The least number of hops per second on one core, and the largest number of bytes of memory.
    hops: f64,
    memory: f64,
}

/// Largest cost of one packet-hop, in READs of a NIC pair.
const READS: f64 = 1.6;
/// The number of batches of READs in a round.
const BATCHES: u64 = 100_000 / SHORTER;
const MB: f64 = 1e6;

fn cases() -> [Case; 4] {
    let permutation = |bytes| Traffic::Permutation { size: Size(bytes) };
    let incast = Traffic::Incast { senders: 32, size: Size(2_000_000), to: Some(0), repeat: None };
    let case =
        |name, k, traffic, hops, memory| Case { name, k, traffic, payload: Payload::Blank, hops, memory };
    [
        case("128 hosts/permutation", 8, permutation(2_000_000), 5e6, 200.0 * MB),
        case("128 hosts/incast 32:1", 8, incast, 5e6, 200.0 * MB),
        Case {
            payload: Payload::Whole,
            ..case("128 hosts/permutation, whole", 8, permutation(2_000_000), 3e6, 200.0 * MB)
        },
        case("1024 hosts/permutation", 16, permutation(1_000_000), 2.5e6, 2_000.0 * MB),
    ]
}

impl Case {
    fn scenario(&self) -> Scenario {
        let network = Network::FatTree {
            k: self.k,
            oversubscription: 1,
            rate: Rate(100_000_000_000),
            delay: Time(Picos::MICROSECOND),
        };
        Scenario {
            payload: self.payload,
            transport: Transport { name: TransportName::RocePfc, ..Transport::default() },
            workloads: vec![Workload::of(self.traffic.clone())],
            ..Scenario::on(network)
        }
    }

    /// Returns the hops per second, and the peak of memory meanwhile.
    fn run(&self) -> Result<(f64, f64)> {
        forget_peak()?;
        let started = Instant::now();
        let mut run = Run::new(&self.scenario()).map_err(anyhow::Error::msg)?;
        while run.advance(Picos::NEVER).is_some() {}
        let taken = started.elapsed().as_secs_f64();
        let open = run.unfinished().count();
        ensure!(open == 0 && run.findings().0.is_empty(), "{}: {open} flows did not end", self.name);
        Ok((run.progress().hops as f64 / taken, peak()?))
    }
}

/// Resets the peak of this process's memory.
fn forget_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("counting memory anew")
}

/// Returns the peak of this process's resident memory in bytes.
fn peak() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("reading this process' memory")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("the peak memory of this process")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("the peak memory of this process")?;
    Ok(kib * 1024.0)
}

/// The rounds of a case.
#[derive(Default)]
struct Rounds {
    hops: Vec<f64>,
    memory: Vec<f64>,
}

/// Runs `remora bench sim`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    let cases: Vec<Case> = cases().into_iter().filter(|case| args.wants_case(case.name)).collect();
    let mut rounds: Vec<Rounds> = cases.iter().map(|_| Rounds::default()).collect();
    let mut reads = Vec::new();
    let mut pair = NicPair::new()?;
    let bar = progress::bar(u64::from(args.rounds) * cases.len() as u64, "runs")?;
    for _ in 0..args.rounds {
        for (case, rounds) in cases.iter().zip(&mut rounds) {
            bar.set_message(case.name);
            reads.push(pair.read_ns(BATCHES)?);
            let (hops, memory) = case.run()?;
            rounds.hops.push(hops);
            rounds.memory.push(memory);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for (case, rounds) in cases.iter().zip(&rounds) {
        rows(case, rounds, &reads).into_iter().for_each(|row| report.add(row));
    }
    args.check_found(report)
}

fn rows(case: &Case, rounds: &Rounds, reads: &[f64]) -> [Row; 3] {
    let row = |metric, unit, rounds: &[f64]| Row::new("sim", case.name, metric, unit, rounds);
    let ns: Vec<f64> = rounds.hops.iter().map(|hops| 1e9 / hops).collect();
    let hop = row("a hop", "ns", &ns).against("READ of 64 B, both NICs", reads);
    // The rates depend on the machine, so only the ratio has a bound in the other cases.
    let is_judged = case.k == 8 && case.payload == Payload::Blank;
    // Only the first round counts, because the allocator keeps memory of earlier rounds.
    let first = rounds.memory.first().copied().unwrap_or(median(&rounds.memory));
    [
        row("packet-hops", "1/s", &rounds.hops).against("asked", &[case.hops]).at_least(1.0),
        if is_judged { hop.within(READS) } else { hop },
        row("memory", "B", &[first]).at_most(case.memory),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_scenario_that_can_run() {
        for case in cases() {
            let scenario = case.scenario();
            scenario.check().unwrap();
            assert!(!scenario.flows(&scenario.topology().unwrap()).unwrap().is_empty(), "{}", case.name);
        }
    }

    #[test]
    fn rates_and_memory_are_judged() {
        let rounds = Rounds { hops: vec![4e6], memory: vec![1e9] };
        let rows = rows(&cases()[0], &rounds, &[100.0]);
        assert_eq!(rows.map(|row| row.holds), [Some(false), Some(false), Some(false)]);
        assert!(peak().unwrap() > 1e6);
    }
}
