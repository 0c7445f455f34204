//! Translates a command line with its connection matrix and topology into a [`Scenario`].

use remora_fabric::topology::{Level, Tier, Tree};

use super::connections::Connections;
use super::options::Options;
use super::topology::{TreeFile, TreeNetwork};
use remora_scenario::error::{Read, ScenarioError, Source, Warnings};
use remora_scenario::scenario::{
    Balance, Buffering, Charging, Control, Counted, Hash, Network, Output, OutputFormat, Pfc, Scenario,
    Switch, Transport, TransportName,
};
use remora_scenario::units::{Size, Time};
use remora_scenario::workload::Workload;

/// Translates a connection matrix into a scenario. Without a topology file, the network is htsim's default
/// tree for the number of hosts. `source` is the matrix file, for messages only.
///
/// # Errors
/// Fails if the matrix and the network differ in their hosts, if no default tree has that number of hosts, or
/// if a failure names a link that does not exist.
pub fn scenario(
    source: Source<'_>,
    options: &Options,
    matrix: &Connections,
    file: Option<&TreeFile>,
) -> Result<Read<Scenario>, ScenarioError> {
    let mut warnings = Warnings::of(source);
    let fault = |says: String| source.error(0, says);
    if let Some(nodes) = options.nodes.filter(|nodes| *nodes != matrix.nodes) {
        return Err(fault(format!("Nodes is {} and -nodes is {nodes}: make them the same", matrix.nodes)));
    }
    if let Some(file) = file.filter(|file| file.nodes != matrix.nodes) {
        let says =
            format!("Nodes is {}, and {} in the topology: make them the same", matrix.nodes, file.nodes);
        return Err(fault(says));
    }
    let network = match file {
        Some(file) => file.network().map_err(fault)?,
        None => default_tree(matrix.nodes, options).map_err(fault)?,
    };
    let topology = network.tree.topology().map_err(|error| fault(error.to_string()))?;
    let mut scenario = Scenario::on(Network::from(network.tree));
    scenario.seed = options.seed;
    scenario.until = Some(Time(options.end));
    scenario.mtu = options.mtu;
    scenario.charging = Charging::Htsim;
    scenario.switch = switch(options, &network);
    let name = if options.lossless { TransportName::RocePfc } else { TransportName::Roce };
    scenario.transport = Transport { name, ..Transport::default() };
    scenario.control = Control { name: options.control, ..Control::default() };
    let mut never = Vec::new();
    scenario.workloads = vec![Workload::listed(matrix.flows(&mut never))];
    for id in never {
        warnings.add(0, format!("flow {id} waits for a trigger that too few flows fire; it is left out"));
    }
    for failed in &matrix.failures {
        scenario.failures.push(failed.failure(&topology).map_err(fault)?);
        if failed.tier != Tier::Agg {
            warnings.add(0, "htsim refuses failures of TOR and CORE; their link fails here");
        } else if network.tree.aggs_per_pod > 1 {
            warnings.add(0, "htsim fails another core's link than it has wired; the wired one fails here");
        }
    }
    for option in &options.ignored {
        let says = match option.as_str() {
            "-start_delta" => "delays flows at random in htsim; here they start at their times",
            "-paths" => "draws htsim's path numbers from fewer; the path number comes from the seed here",
            "-host_queue_type" => "is not modelled; hosts send their flows in turn",
            "-conns" => "is not used; the flows of the matrix count",
            _ => "changes nothing here; it is skipped",
        };
        warnings.add(0, format!("{option} {says}"));
    }
    if options.pauses_by_queue {
        warnings.add(0, "-queue_type lossless pauses at a share of -q in htsim; here -pfc_thresholds count");
    }
    scenario.output = Output { format: OutputFormat::Htsim, ..Output::default() };
    scenario.check().map_err(fault)?;
    Ok(warnings.with(scenario))
}

/// Returns the tree that htsim builds without a topology file from switches with `k` ports: `k³/4` hosts in
/// three tiers, `k²/2` in two. Fails if no even `k` gives exactly `nodes` hosts.
fn default_tree(nodes: u32, options: &Options) -> Result<TreeNetwork, String> {
    let hosts = |k: u64| if options.tiers == 3 { k * k * k / 4 } else { k * k / 2 };
    let k = (1..=100_000).map(|half| 2 * half).find(|k| hosts(*k) >= u64::from(nodes)).unwrap_or(2);
    if hosts(k) != u64::from(nodes) {
        let below = hosts(k.saturating_sub(2));
        let near = format!("{} or {}", below.max(2), hosts(k));
        return Err(format!(
            "no fat-tree of {} tiers has {nodes} hosts: choose {near}, or a topology file",
            options.tiers
        ));
    }
    let link = Level::new(options.rate, options.hop_latency);
    let half = (k / 2) as u32;
    let tree = match options.tiers {
        3 => Tree::fat(k as u32, 1, link).map_err(|error| error.to_string())?,
        _ => Tree::leaf_spine(k as u32, half, half, link, link),
    };
    Ok(TreeNetwork { tree, latency: [Time(options.switch_latency); 3], queue: None })
}

/// Capacity of an output queue in bytes that is never reached.
const UNBOUNDED: Size = Size(1 << 31);

/// Returns the switch of a command line: a FIFO per output, and PFC that pauses all classes of an input.
/// Pause frames take no time on the link and do not expire. A lossless queue is unbounded, as in htsim, which
/// only prints a line if a queue exceeds `-q`.
fn switch(options: &Options, network: &TreeNetwork) -> Switch {
    let packets = |count: u64| Size(count.saturating_mul(u64::from(options.mtu)));
    let [low, high] = options.thresholds;
    let pfc = Pfc {
        xoff: Some(packets(high)),
        xon: Some(packets(low)),
        headroom: None,
        counted: Counted::Port,
        expiry: None,
        reaction: Time(0),
        free: true,
    };
    let bound = network.queue.map_or(packets(options.queue), Size);
    let [tor, ..] = network.latency;
    let alike = network.latency == [tor; 3];
    Switch {
        kind: Buffering::Fifo,
        buffer: if options.lossless { UNBOUNDED } else { bound.max(Size(1)) },
        latency: if alike { tor } else { Time(0) },
        latency_by_tier: (!alike).then_some(network.latency),
        pfc: options.lossless.then_some(pfc),
        balance: if options.sprays { Balance::Spray {} } else { Balance::Ecmp { hash: Hash::Htsim } },
        ..Switch::default()
    }
}
