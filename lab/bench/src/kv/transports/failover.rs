//! The failover test: one of two servers with the same records is killed while a client reads.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use remora_service::kv::{FarmDesign, KvSession as _, Session};
use remora_store::ycsb::record::{self, Values};

use super::Comparison;
use crate::testbed::Testbed;
use crate::{Report, Row};
use remora_options::device::PortArgs;
use remora_store_cli::measure::runner::{Plan, Server};
use remora_store_cli::measure::transports::{by_pairs, by_rma, start};
use remora_store_cli::transport::TransportName;

/// The duration of the load before the server is killed, and after GETs succeed anew.
const LOAD: Duration = Duration::from_millis(500);
/// The maximum interruption of GETs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interruption of a client's GETs while a server is replaced.
struct Outage {
    /// The longest time between two GETs that did not fail.
    gap: Duration,
    failed: u64,
}

/// Kills a server of each transport, round after round.
pub(crate) fn measure(comparison: &Comparison<'_>, testbed: &Testbed, report: &mut Report) -> Result<()> {
    let mut all: Vec<[Vec<f64>; 2]> = Vec::new();
    for (number, transport) in comparison.transports.iter().enumerate() {
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..comparison.rounds {
            let links = [2 * number, 2 * number + 1];
            let servers = [
                start(*transport, testbed, links[0], comparison.plan)?,
                start(*transport, testbed, links[1], comparison.plan)?,
            ];
            let ports = links.map(|link| testbed.client(link));
            let seen = one(*transport, &servers, &ports, comparison.plan)?;
            rounds[0].push(seen.gap.as_nanos() as f64);
            rounds[1].push(seen.failed as f64);
        }
        all.push(rounds);
    }
    for (transport, [gap, failed]) in comparison.transports.iter().zip(&all) {
        let case = comparison.path(testbed.port(), *transport, "one-of-two-killed");
        let row = Row::new("kv", case.clone(), "longest_gap", "ns", gap);
        let beside = transport != &comparison.transports[0];
        let row = if beside { row.against(comparison.transports[0].name(), &all[0][0]) } else { row };
        report.add(row);
        let row = Row::new("kv", case, "failed_gets", "GETs", failed);
        report.add(if *transport == TransportName::Rma { row.at_most(0.0) } else { row });
    }
    Ok(())
}

fn one(
    transport: TransportName,
    servers: &[Server; 2],
    ports: &[PortArgs; 2],
    plan: &Plan,
) -> Result<Outage> {
    let kill = || servers[0].kill();
    if transport == TransportName::Rma {
        let mut session = by_rma(&[&servers[0], &servers[1]], &ports[0], plan)?;
        return read_on(plan, kill, &mut |key| session.get(key).ok().flatten());
    }
    let mut pairs = Pairs { transport, servers, ports, plan, sessions: [None, None], current: 0 };
    pairs.connect(0)?;
    pairs.connect(1)?;
    read_on(plan, kill, &mut |key| pairs.get(key))
}

/// A client with a queue pair to each server, which goes to the other one when a GET fails.
struct Pairs<'a> {
    transport: TransportName,
    servers: &'a [Server; 2],
    ports: &'a [PortArgs; 2],
    plan: &'a Plan,
    sessions: [Option<Session<FarmDesign>>; 2],
    current: usize,
}

impl Pairs<'_> {
    fn connect(&mut self, number: usize) -> Result<()> {
        let session = by_pairs(&self.servers[number], self.transport, &self.ports[number], self.plan)?;
        self.sessions[number] = Some(session);
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        for _ in 0..2 {
            match self.sessions[self.current].as_mut().map(|session| session.get(key)) {
                Some(Ok(value)) => return value,
                Some(Err(_)) | None => {
                    self.sessions[self.current] = None;
                    self.current = 1 - self.current;
                }
            }
        }
        None
    }
}

/// Measures GETs before and after a failover, one at a time, and checks each value.
fn read_on(
    plan: &Plan,
    kill: impl Fn() -> Result<()>,
    get: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Result<Outage> {
    let values = Values::fixed(plan.value_len);
    let mut seen = Outage { gap: Duration::ZERO, failed: 0 };
    let mut record = 0;
    let began = Instant::now();
    let mut killed = None::<Instant>;
    let mut last = Instant::now();
    let mut back = None::<Instant>;
    while back.is_none_or(|back| back.elapsed() < LOAD) {
        if killed.is_none() && began.elapsed() > LOAD {
            kill()?;
            killed = Some(Instant::now());
        }
        record = (record + 7919) % plan.records;
        let value = get(&record::key(record));
        let now = Instant::now();
        match value {
            Some(value) => {
                ensure!(values.check(record, &value).is_some(), "record {record} has a wrong value");
                seen.gap = seen.gap.max(now.duration_since(last));
                last = now;
                // The first GET after the failover may have been answered before the kill.
                back = back.or_else(|| killed.filter(|killed| now.duration_since(*killed) > LOAD));
            }
            None => seen.failed += 1,
        }
        ensure!(last.elapsed() < PATIENCE, "no GET is answered");
    }
    Ok(seen)
}
