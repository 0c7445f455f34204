//! Runs of scenarios, with real NICs at every host.

mod alone;
mod dependencies;
mod hashes;
mod memory;
mod paths;
mod record;
mod recovery;
mod several_links;
mod transports;
mod windows;

use remora_fabric::engine::Picos;
use remora_scenario::Flow;
use remora_scenario::run::{Row, Run};
use remora_scenario::scenario::{Network, Scenario};
use remora_scenario::units::{Rate, Time};
use remora_scenario::workload::Workload;

/// Returns a fat-tree of links with 100 Gb/s and 1 µs.
fn fat_tree(k: u32) -> Network {
    Network::FatTree { k, oversubscription: 1, rate: Rate(100_000_000_000), delay: Time(Picos::MICROSECOND) }
}

/// Returns a scenario with these flows (source, destination, bytes), all starting at time 0.
fn scenario(network: Network, flows: &[(u32, u32, u64)]) -> Scenario {
    let flow =
        |(id, (src, dst, size)): (usize, &(u32, u32, u64))| Flow::write(id as u64, *src, *dst, *size, 0);
    let flows = flows.iter().enumerate().map(flow).collect();
    Scenario { workloads: vec![Workload::listed(flows)], ..Scenario::on(network) }
}

/// Runs a scenario to its end. All flows must succeed, and no invariant may be violated.
fn run(scenario: &Scenario) -> Vec<Row> {
    let mut run = Run::new(scenario).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = run.advance(Picos(1_000_000 * Picos::MICROSECOND)) {
        rows.push(row);
    }
    assert_eq!(run.unfinished().collect::<Vec<_>>(), []);
    assert_eq!(run.findings(), (Vec::new(), 0));
    assert!(run.is_over());
    rows
}
