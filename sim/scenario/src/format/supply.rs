//! The texts of the files that a scenario names.

use super::{hpcc, htsim};
use crate::error::{ScenarioError, Source, Warning};
use crate::scenario::{Network, Scenario};
use crate::workload::{Traffic, Workload};

/// What a scenario's file says that it needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A topology: HPCC's, ConWeave's or htsim's.
    Topology,
    /// Flows: HPCC's, ConWeave's or htsim's.
    Flows,
}

/// The paths that the scenario names, each with what it needs there. A network comes first: supply it first,
/// so that flows can be checked against its hosts.
pub fn files(scenario: &Scenario) -> Vec<(Need, String)> {
    let mut files = Vec::new();
    if let Network::File { path } = &scenario.network {
        files.push((Need::Topology, path.clone()));
    }
    for workload in &scenario.workloads {
        if let Traffic::File { path } = &workload.traffic {
            files.push((Need::Flows, path.clone()));
        }
    }
    files
}

/// Puts what a file says in the place of its path, wherever the scenario names it. `source.name` is the path.
/// A topology that begins with a number is of HPCC's dialects, and any other one htsim's. So is a file of
/// flows.
///
/// # Errors
/// What the file's own parser refuses.
pub fn supply(scenario: &mut Scenario, source: Source<'_>) -> Result<Vec<Warning>, ScenarioError> {
    let mut warnings = Vec::new();
    if matches!(&scenario.network, Network::File { path } if path == source.name) {
        topology(scenario, source, &mut warnings)?;
    }
    let topology = scenario.network.topology().ok();
    let mut failures = Vec::new();
    for workload in &mut scenario.workloads {
        if !matches!(&workload.traffic, Traffic::File { path } if path == source.name) {
            continue;
        }
        let flows = if is_ns3(source) {
            let read = hpcc::flows::parse(source, topology.as_ref())?;
            warnings.extend(read.warnings);
            read.value.flows
        } else {
            let read = htsim::connections::parse(source)?;
            warnings.extend(read.warnings);
            let mut never = Vec::new();
            let flows = read.value.flows(&mut never);
            for id in never {
                let says = format!("flow {id} waits for a trigger that too few flows fire; it is left out");
                warnings.push(Warning { file: source.name.to_owned(), line: 0, says });
            }
            for failed in &read.value.failures {
                let found = topology.as_ref().map(|topology| failed.failure(topology));
                let found = found.unwrap_or_else(|| Err("failures need a network: supply it first".into()));
                failures.push(found.map_err(|says| source.error(0, says))?);
            }
            flows
        };
        workload.traffic = Workload::listed(flows).traffic;
    }
    scenario.failures.extend(failures);
    Ok(warnings)
}

fn topology(
    scenario: &mut Scenario,
    source: Source<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(), ScenarioError> {
    if is_ns3(source) {
        let read = hpcc::topology::parse(source)?;
        warnings.extend(read.warnings);
        scenario.network = Network::from(&read.value);
    } else {
        let read = htsim::topology::parse(source)?;
        warnings.extend(read.warnings);
        let network = read.value.network().map_err(|says| source.error(0, says))?;
        scenario.network = Network::from(network.tree);
        let [tor, agg, core] = network.latency;
        match tor == agg && agg == core {
            true if tor.0 > 0 => scenario.switch.latency = tor,
            true => {}
            false => scenario.switch.latency_by_tier = Some(network.latency),
        }
    }
    Ok(())
}

/// Do the files of ns-3's programs begin so? They begin with a count.
fn is_ns3(source: Source<'_>) -> bool {
    source.text.trim_start().starts_with(|c: char| c.is_ascii_digit())
}
