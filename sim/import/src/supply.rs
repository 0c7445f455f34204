//! Replacement of the file names in a scenario by the contents of the files.

use crate::{hpcc, htsim};
use remora_scenario::error::{ScenarioError, Source, Warning};
use remora_scenario::scenario::{Network, Scenario};
use remora_scenario::workload::{Traffic, Workload};

/// The kind of a file that a scenario names.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A network topology of HPCC, ConWeave or htsim.
    Topology,
    /// Flows of HPCC, ConWeave or htsim.
    Flows,
}

/// Returns the paths of all files that the scenario names, with their kinds. The topology comes first and
/// must be supplied first, because flows are checked against its hosts.
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

/// Replaces the path `source.name` by the contents of that file wherever the scenario names it. Returns the
/// parser's warnings.
///
/// A file whose first character is a digit is in HPCC's or ConWeave's format, any other file in htsim's.
///
/// # Errors
/// Fails if the parser of the format rejects the file, or if a link failure in it does not fit the network.
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
                let failure = topology.as_ref().map(|topology| failed.failure(topology));
                let failure =
                    failure.unwrap_or_else(|| Err("failures need a network: supply it first".into()));
                failures.push(failure.map_err(|says| source.error(0, says))?);
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

/// Returns true if the file is in the format of an ns-3 program: those files begin with a count.
fn is_ns3(source: Source<'_>) -> bool {
    source.text.trim_start().starts_with(|c: char| c.is_ascii_digit())
}
