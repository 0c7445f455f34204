//! Recorded paths: tables with a header line and comma-separated columns that say which way flows took in
//! another simulator.

use std::collections::{BTreeMap, BTreeSet};

use remora_fabric::topology::{Tier, Topology};

use crate::htsim::times;
use crate::table::Table;
use remora_scenario::Flow;
use remora_scenario::error::{ScenarioError, Source};
use remora_scenario::scenario::GivenPath;

/// Columns of a table from conweave-ns3. `hop1` and `hop2` are the node numbers of the switches above the
/// sender's ToR; `-1` means that the path has no such switch.
const OF_NS3: [&str; 7] = ["src", "dst", "sport", "dport", "size_B", "hop1", "hop2"];

/// Reads the paths of the flows. Of a table with several runs, only the rows of number `run` count; runs are
/// numbered from 1.
///
/// # Errors
/// Fails if the columns are those of neither simulator, or if a row has another number of columns, belongs to
/// no flow or names a switch that does not exist.
pub fn parse(
    source: Source<'_>,
    run: u32,
    flows: &[Flow],
    topology: &Topology,
) -> Result<Vec<GivenPath>, ScenarioError> {
    let table = Table::parse(source, &[&OF_NS3, &times::COLUMNS])?;
    match table.head == OF_NS3 {
        true => of_ns3(&table, flows),
        false => of_htsim(&table, run, flows, topology),
    }
}

/// Message for a row that belongs to no flow.
const UNKNOWN: &str = "no flow of the scenario is this row's: remove the row";

fn of_ns3(table: &Table<'_>, flows: &[Flow]) -> Result<Vec<GivenPath>, ScenarioError> {
    let by_ports: BTreeMap<_, u64> =
        flows.iter().map(|flow| ((flow.src, flow.dst, flow.ports), flow.id)).collect();
    let path = |row| {
        let value = |column| table.number::<i64>(row, column);
        let ports = [value(2)? as u16, value(3)? as u16];
        let flow = by_ports.get(&(value(0)? as u32, value(1)? as u32, ports));
        let flow = *flow.ok_or_else(|| table.error(row, UNKNOWN))?;
        let above = [value(5)?, value(6)?].into_iter().filter_map(|node| u32::try_from(node).ok()).collect();
        Ok(GivenPath { flow, above })
    };
    table.rows.iter().map(path).collect()
}

fn of_htsim(
    table: &Table<'_>,
    run: u32,
    flows: &[Flow],
    topology: &Topology,
) -> Result<Vec<GivenPath>, ScenarioError> {
    let ids: BTreeSet<u64> = flows.iter().map(|flow| flow.id).collect();
    let mut paths = Vec::new();
    for row in &table.rows {
        if table.number::<u32>(row, 1)? != run {
            continue;
        }
        let flow = table.number(row, 4)?;
        if !ids.contains(&flow) {
            return Err(table.error(row, UNKNOWN));
        }
        let tiers = [(Tier::Agg, table.number::<i64>(row, 9)?), (Tier::Core, table.number(row, 10)?)];
        let mut above = Vec::new();
        for (tier, switch) in tiers.into_iter().filter(|(_, switch)| *switch >= 0) {
            let node = topology.switch_at(tier, switch as u32);
            above.push(node.ok_or_else(|| {
                table.error(
                    row,
                    format!("the network has no {tier} switch {switch}: is it the file's network?"),
                )
            })?);
        }
        paths.push(GivenPath { flow, above });
    }
    Ok(paths)
}
