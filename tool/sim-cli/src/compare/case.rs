//! Finds the comparisons in a folder: scenarios, and the flow completion times that other simulators gave
//! for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use remora_import::htsim::times;
use remora_scenario::format::change::Change;
use remora_scenario::format::hpcc::outputs::{FctLine, parse_fct};
use remora_scenario::{Flow, Source};

use crate::load;
use crate::scenario_args::ScenarioArgs;

/// Command line of csg-htsim for its files, without options for output files and those that change nothing
/// here.
const HTSIM: &str = "-linkspeed 100000 -mtu 1000 -hop_latency 1 -strat ecmp_host -queue_type lossless_input \
    -q 10000 -pfc_thresholds 49 61 -end 100000";
/// Names of the matrices with single flows.
const ALONE: [&str; 3] = ["interpod", "intrapod", "intrarack"];

/// The quantity that a comparison checks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Completion time of each flow.
    Alone,
    /// Completion time of the last flow.
    Incast,
    /// Mean completion time over all runs, and the share of flows with a similar time.
    Permutation,
    /// Distribution of the slowdowns of all flows.
    Load,
}

/// The result of another simulator for one flow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerTime {
    /// Time in picoseconds until the sender received the last acknowledgement.
    pub fct: u64,
    /// Completion time in picoseconds without other traffic, if the simulator reports it.
    pub alone: Option<u64>,
}

/// The identity of a flow in both simulators.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The flow's number, for htsim.
    Id(u64),
    /// Source host, destination host and ports, for ns-3.
    Ports(u32, u32, [u16; 2]),
}

/// A scenario and the results of another simulator.
pub(crate) struct Case {
    /// Scenario as Remora runs it.
    pub scenario: ScenarioArgs,
    /// Results of the other simulator.
    pub theirs: BTreeMap<Key, PeerTime>,
}

/// A group of runs that are checked together.
pub(crate) struct Reference {
    /// Quantity that is compared.
    pub kind: Kind,
    /// Name of the other simulator.
    pub peer: &'static str,
    /// Transport that the flows use.
    pub transport: &'static str,
    /// Runs of the group.
    pub cases: Vec<Case>,
}

impl Kind {
    /// Returns the name on the command line and in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Alone => "alone",
            Kind::Incast => "incast",
            Kind::Permutation => "permutation",
            Kind::Load => "load",
        }
    }
}

impl Reference {
    /// Returns the name of the comparison: quantity, simulator and transport.
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", self.kind.name(), self.peer, self.transport)
    }
}

impl Key {
    /// Returns the identity of a flow: by hosts and ports if `by_ports`, otherwise by its number.
    pub(crate) fn of(flow: &Flow, by_ports: bool) -> Key {
        match by_ports {
            true => Key::Ports(flow.src, flow.dst, flow.ports),
            false => Key::Id(flow.id),
        }
    }
}

/// Returns all comparisons in a folder, with `changes` applied to each scenario.
///
/// # Errors
/// Fails if the folder contains no comparison, or if a file is missing or invalid.
pub(crate) fn find(folder: &Path, changes: &[Change]) -> Result<Vec<Reference>> {
    let mut all = Vec::new();
    let has = |name: &str| folder.join(name).is_file();
    if has("htsim-one.csv") {
        let named =
            |row: &times::Time| ALONE.contains(&row.set.as_str()).then(|| format!("one_{}.cm", row.set));
        all.push(htsim(folder, "htsim-one.csv", Kind::Alone, named)?);
    }
    for (kind, table, matrix) in [
        (Kind::Incast, "htsim-incast32.csv", "inc_128_32_2000000.cm"),
        (Kind::Permutation, "htsim-perm128.csv", "perm_128_2000000.cm"),
    ] {
        if has(table) {
            all.push(htsim(folder, table, kind, |_| Some(matrix.to_owned()))?);
        }
    }
    for (kind, name) in [(Kind::Alone, "one"), (Kind::Load, "T2ms")] {
        for transport in ["irn", "pfc"] {
            if has(&format!("ns3-{name}-{transport}-fct.txt")) {
                all.push(ns3(folder, kind, name, transport)?);
            }
        }
    }
    if all.is_empty() {
        bail!(
            "{} has no times to compare with, such as htsim-one.csv or ns3-one-irn-fct.txt: docs/reference/simulator.md lists \
            the files",
            folder.display()
        );
    }
    for case in all.iter_mut().flat_map(|asked| &mut asked.cases) {
        case.scenario.set = changes.to_vec();
    }
    Ok(all)
}

/// Returns a comparison for a table of htsim, in which each set and run is a case. Single flows may take
/// any path.
fn htsim(
    folder: &Path,
    table: &str,
    kind: Kind,
    matrix: impl Fn(&times::Time) -> Option<String>,
) -> Result<Reference> {
    let path = folder.join(table);
    let text = load::read(&path)?;
    let name = path.display().to_string();
    let mut cases: Vec<((String, u32), Case)> = Vec::new();
    for row in times::parse(Source::new(&name, &text))? {
        let known = cases.iter().position(|(key, _)| *key == (row.set.clone(), row.run));
        let index = match known {
            Some(index) => index,
            None => {
                let matrix = matrix(&row).with_context(|| {
                    format!("{name}: unknown set {}; the sets are {}", row.set, ALONE.join(", "))
                })?;
                let scenario = ScenarioArgs {
                    scenario: Some(present(folder, &matrix)?),
                    options: HTSIM.split_whitespace().map(str::to_owned).collect(),
                    paths: (kind != Kind::Alone).then(|| path.clone()),
                    paths_run: row.run,
                    ..ScenarioArgs::default()
                };
                cases.push(((row.set.clone(), row.run), Case { scenario, theirs: BTreeMap::new() }));
                cases.len() - 1
            }
        };
        cases[index].1.theirs.insert(Key::Id(row.flow), PeerTime { fct: row.fct, alone: None });
    }
    let cases = cases.into_iter().map(|(_, case)| case).collect();
    Ok(Reference { kind, peer: "csg-htsim", transport: "roce+pfc", cases })
}

/// Returns a comparison for an output file of ConWeave's program, with its configuration and paths.
fn ns3(folder: &Path, kind: Kind, name: &str, transport: &'static str) -> Result<Reference> {
    let path = folder.join(format!("ns3-{name}-{transport}-fct.txt"));
    let text = load::read(&path)?;
    let shown = path.display().to_string();
    let scenario = ScenarioArgs {
        scenario: Some(present(folder, &format!("ns3-{name}-{transport}-config.txt"))?),
        paths: Some(present(folder, &format!("ns3-{name}-paths.csv"))?),
        paths_run: 1,
        ..ScenarioArgs::default()
    };
    let theirs = |line: &FctLine| {
        let theirs = PeerTime { fct: line.fct * 1000, alone: Some(line.alone * 1000) };
        (Key::Ports(line.src, line.dst, line.ports), theirs)
    };
    let lines = parse_fct(Source::new(&shown, &text))?.value;
    let case = Case { scenario, theirs: lines.iter().map(theirs).collect() };
    let transport = if transport == "irn" { "irn" } else { "roce+pfc" };
    Ok(Reference { kind, peer: "conweave-ns3", transport, cases: vec![case] })
}

fn present(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    match path.is_file() {
        true => Ok(path),
        false => bail!("{} is missing, but a file of its completion times exists: add it", path.display()),
    }
}
