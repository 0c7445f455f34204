//! Paths that flows took in another program, as it recorded them: tables with a head and commas.

use std::collections::BTreeMap;

use remora_fabric::topology::{Tier, Topology};

use crate::Flow;
use crate::error::{ScenarioError, Source};
use crate::scenario::GivenPath;

/// Columns of a table that says which switches a flow passes, by node number: `-1` is none.
const OF_NS3: [&str; 7] = ["src", "dst", "sport", "dport", "size_B", "hop1", "hop2"];
/// Columns of a table that counts switches by tier, for several runs.
const OF_HTSIM: [&str; 11] =
    ["set", "run", "seed", "path_id", "flow_id", "src", "dst", "size_B", "fct_us", "agg", "core"];

/// Reads the paths of the flows. A table of several runs has those of run `run`, from 1.
///
/// # Errors
/// A head that is none of the two, a row with other columns, a flow that is not there, a switch that is not.
pub fn parse(
    source: Source<'_>,
    run: u32,
    flows: &[Flow],
    topology: &Topology,
) -> Result<Vec<GivenPath>, ScenarioError> {
    source.check_size()?;
    let mut lines = (1_u32..).zip(source.text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty());
    let head: Vec<&str> = lines.next().map_or(Vec::new(), |(_, head)| head.split(',').collect());
    let is_ns3 = head == OF_NS3;
    if !is_ns3 && head != OF_HTSIM {
        let says = format!(
            "the first line names no known columns: write {} or {}",
            OF_NS3.join(","),
            OF_HTSIM.join(",")
        );
        return Err(source.error(1, says));
    }
    let by_ports: BTreeMap<_, u64> =
        flows.iter().map(|flow| ((flow.src, flow.dst, flow.ports), flow.id)).collect();
    let by_id: BTreeMap<u64, ()> = flows.iter().map(|flow| (flow.id, ())).collect();
    let mut paths = Vec::new();
    for (number, line) in lines {
        let words: Vec<&str> = line.split(',').collect();
        if words.len() != head.len() {
            let says =
                format!("the row has {} columns, and the head {}: mend the row", words.len(), head.len());
            return Err(source.error(number, says));
        }
        let value = |index: usize| {
            let read = words[index].trim().parse::<i64>();
            read.map_err(|_| {
                source.error(
                    number,
                    format!(
                        "`{}` of column {} is no number: mend it",
                        crate::error::excerpt(words[index]),
                        head[index]
                    ),
                )
            })
        };
        let unknown = || source.error(number, "no flow of the scenario is this row's: remove the row");
        if is_ns3 {
            let [src, dst, sport, dport] = [value(0)?, value(1)?, value(2)?, value(3)?];
            let ports = [sport as u16, dport as u16];
            let flow = *by_ports.get(&(src as u32, dst as u32, ports)).ok_or_else(unknown)?;
            let above =
                [value(5)?, value(6)?].into_iter().filter_map(|node| u32::try_from(node).ok()).collect();
            paths.push(GivenPath { flow, above });
        } else if value(1)? == i64::from(run) {
            let flow = value(4)? as u64;
            by_id.get(&flow).ok_or_else(unknown)?;
            let tiers = [(Tier::Agg, value(9)?), (Tier::Core, value(10)?)];
            let mut above = Vec::new();
            for (tier, switch) in tiers.into_iter().filter(|(_, switch)| *switch >= 0) {
                let node = topology.switch_at(tier, switch as u32);
                above.push(node.ok_or_else(|| {
                    source.error(
                        number,
                        format!("the network has no {tier} switch {switch}: is it the file's network?"),
                    )
                })?);
            }
            paths.push(GivenPath { flow, above });
        }
    }
    Ok(paths)
}
