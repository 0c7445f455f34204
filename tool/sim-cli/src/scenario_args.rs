//! The options that select a scenario, and the exit status of its run.

use std::path::PathBuf;

use remora_options::number::natural;
use remora_scenario::format::change::Change;
use remora_scenario::scenario::{ControlName, TransportName};

/// Exit status of runs with unfinished flows or findings, and of comparisons with a result outside its
/// bound.
pub(crate) const INCOMPLETE: i32 = 3;

/// Options that select a scenario and change it.
#[derive(clap::Args, Default)]
#[group(skip)]
pub(crate) struct ScenarioArgs {
    /// File with the scenario
    #[arg(required = true)]
    pub scenario: Option<PathBuf>,

    /// Congestion control: none, dcqcn, dcqcn-ns3, timely or timely-patched [default: the scenario's]
    #[arg(long, value_name = "NAME", value_parser = |name: &str| name.parse::<ControlName>())]
    pub control: Option<ControlName>,

    /// Transport, such as irn, roce or roce+pfc [default: the scenario's]
    #[arg(long, value_name = "NAME", value_parser = |name: &str| name.parse::<TransportName>())]
    pub transport: Option<TransportName>,

    /// Set a key of the scenario, for example workload.0.traffic.load=0.7; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = |text: &str| text.parse::<Change>())]
    pub set: Vec<Change>,

    /// Table of htsim or ns-3 with the paths that flows take [default: paths by the scenario's load
    /// balancing]
    #[arg(long, value_name = "FILE")]
    pub paths: Option<PathBuf>,

    /// Number of the run in the table of paths
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = natural::<u32>)]
    pub paths_run: u32,

    /// Seed of all random choices [default: the scenario's]
    #[arg(long, value_parser = natural::<u64>)]
    pub seed: Option<u64>,

    /// Options of htsim, for a connection matrix
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}
