//! Translates a configuration with its topology and flows into a [`Scenario`].

mod mmu;
mod time;

use remora_fabric::topology::Topology;

use super::Dialect;
use super::config::{Config, ONE, Value};
use super::flows::FlowFile;
use remora_scenario::error::{Read, ScenarioError, Source, Warnings};
use remora_scenario::scenario::{
    Charging, Control, ControlName, Failure, Host, Network, Output, OutputFormat, Scenario, Transport,
    TransportName,
};
use remora_scenario::units::Time;
use remora_scenario::workload::Workload;
use time::{MICROSECOND, NANOSECOND, SECOND};

/// Start of the traffic in both programs, 2 s, in ps. Times of failures count from here.
const BASE: u64 = 2 * SECOND;

/// Keys that only ConWeave's program knows.
const CONWEAVE_KEYS: [&str; 6] = [
    "ENABLE_IRN",
    "ENABLE_PFC",
    "LB_MODE",
    "FLOWGEN_STOP_TIME",
    "FLOWGEN_START_TIME",
    "SW_MONITORING_INTERVAL",
];

/// The contents of the files that a configuration names.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// Contents of `TOPOLOGY_FILE`.
    pub topology: Topology,
    /// Contents of `FLOW_FILE`.
    pub flows: FlowFile,
    /// Node numbers in `TRACE_FILE`; empty if the configuration names no such file.
    pub trace: Vec<u32>,
}

/// Returns the dialect of a configuration: ConWeave's if it has a key that only ConWeave's program knows.
pub fn dialect(config: &Config) -> Dialect {
    match CONWEAVE_KEYS.iter().any(|key| config.get(key).is_some()) {
        true => Dialect::Conweave,
        false => Dialect::Hpcc,
    }
}

/// Translates a configuration into a scenario. `control` replaces the congestion control of the file if it is
/// given. `source` is the configuration file, for messages only.
///
/// # Errors
/// Fails if the configuration selects a mode that is not modelled (the message names it), if an ECN map lacks
/// a link rate of the topology, or if `LINK_DOWN` names a link that does not exist.
pub fn scenario(
    source: Source<'_>,
    config: &Config,
    parts: Parts,
    control: Option<ControlName>,
) -> Result<Read<Scenario>, ScenarioError> {
    let mut warnings = Warnings::of(source);
    let dialect = dialect(config);
    balance(source, config)?;
    let control_name = match control {
        Some(name) => name,
        None => control_of(source, config)?,
    };
    if config.integer("RATE_BOUND", 1) == 0 {
        warnings.add(
            0,
            "RATE_BOUND 0 leaves the rates of a control without effect in ns-3; here they bound flows",
        );
    }
    let Parts { topology, flows, trace } = parts;
    let mut scenario = Scenario::on(Network::from(&topology));
    scenario.seed = config.integer("RANDOM_SEED", 1);
    scenario.until = Some(Time(until(config, dialect)));
    scenario.mtu = u32::try_from(config.integer("PACKET_PAYLOAD_SIZE", 1000)).unwrap_or(u32::MAX);
    scenario.charging = Charging::Ns3;
    scenario.loss = config.decimal("ERROR_RATE_PER_LINK", 0) as f64 / ONE as f64;
    scenario.transport = transport(config, dialect, &mut warnings);
    scenario.switch =
        mmu::switch(source, config, dialect, scenario.transport.name, &topology, &mut warnings)?;
    scenario.host = Host { ack_class: ack_class(config, dialect), ..Host::default() };
    scenario.control = parameters(config, control_name);
    scenario.workloads = vec![Workload::listed(flows.flows)];
    scenario.failures = failures(source, config, &topology)?;
    scenario.output = output(config, dialect, trace);
    scenario.check().map_err(|says| source.error(0, says))?;
    Ok(warnings.with(scenario))
}

/// Checks the load balancing mode: only ECMP is modelled.
fn balance(source: Source<'_>, config: &Config) -> Result<(), ScenarioError> {
    let name = match config.integer("LB_MODE", 0) {
        0 => return Ok(()),
        2 => "DRILL",
        3 => "Conga",
        6 => "Letflow",
        9 => "ConWeave",
        mode => {
            let says = format!("LB_MODE {mode} is not known: write 0 (ECMP)");
            return Err(source.error(0, says));
        }
    };
    Err(source.error(0, format!("LB_MODE selects {name}, which is not modelled: write LB_MODE 0 (ECMP)")))
}

fn control_of(source: Source<'_>, config: &Config) -> Result<ControlName, ScenarioError> {
    let name = match config.integer("CC_MODE", 1) {
        1 => return Ok(ControlName::DcqcnNs3),
        7 => return Ok(ControlName::Timely),
        3 => "HPCC",
        8 => "DCTCP",
        10 => "PINT",
        mode => {
            let says = format!("CC_MODE {mode} is not known: write 1 (DCQCN) or 7 (TIMELY)");
            return Err(source.error(0, says));
        }
    };
    let names: Vec<_> = ControlName::ALL.iter().map(|known| known.name()).collect();
    let names = names.join(", ");
    let says = format!("CC_MODE selects {name}, which is not modelled: choose --control NAME of {names}");
    Err(source.error(0, says))
}

fn until(config: &Config, dialect: Dialect) -> u64 {
    let seconds = match dialect {
        Dialect::Hpcc => config.decimal("SIMULATOR_STOP_TIME", 3_010_000_000),
        // ConWeave's program stops ten seconds after the traffic generator, or earlier when all flows have
        // ended.
        Dialect::Conweave => config.decimal("FLOWGEN_STOP_TIME", 2_500_000_000).saturating_add(10 * ONE),
    };
    seconds.saturating_mul(SECOND / ONE)
}

fn transport(config: &Config, dialect: Dialect, warnings: &mut Warnings<'_>) -> Transport {
    let flag = |key: &str, default: u64| config.integer(key, default) != 0;
    let (irn, pfc) = match dialect {
        Dialect::Hpcc => (false, true),
        Dialect::Conweave => (flag("ENABLE_IRN", 0), flag("ENABLE_PFC", 1)),
    };
    if flag("L2_BACK_TO_ZERO", 0) && !irn {
        warnings.add(0, "L2_BACK_TO_ZERO 1 goes back to the start of a chunk; go-back-N is taken");
    }
    let name = match (irn, pfc) {
        (false, false) => TransportName::Roce,
        (false, true) => TransportName::RocePfc,
        (true, false) => TransportName::Irn,
        (true, true) => TransportName::IrnPfc,
    };
    let conweave = dialect == Dialect::Conweave;
    let time = |is: bool, us: u64| is.then_some(Time(us * MICROSECOND));
    Transport {
        name,
        rto: time(conweave && !irn, 4000),
        rto_low: time(irn, 100),
        rto_high: time(irn, 320),
        few_packets: irn.then_some(3),
        packets_per_ack: u32::try_from(config.integer("L2_ACK_INTERVAL", 1)).unwrap_or(u32::MAX).max(1),
        ..Transport::default()
    }
}

/// Returns the traffic class of ACKs: class 0, the highest priority, in ConWeave's program, and in HPCC's if
/// `ACK_HIGH_PRIO` is set. Otherwise `None`: ACKs have the default class of data.
fn ack_class(config: &Config, dialect: Dialect) -> Option<u8> {
    (dialect == Dialect::Conweave || config.integer("ACK_HIGH_PRIO", 0) != 0).then_some(0)
}

fn parameters(config: &Config, name: ControlName) -> Control {
    let flag = |key: &str| config.get(key).map(|_| config.integer(key, 1) != 0);
    let windows = Control {
        name,
        // HPCC's program limits flows by a window unless the file says otherwise.
        window: Some(config.integer("HAS_WIN", 1) != 0),
        window_of_pair: flag("GLOBAL_T").map(|longest| !longest),
        window_follows_rate: flag("VAR_WIN"),
        ..Control::default()
    };
    if name == ControlName::None {
        return windows;
    }
    let us = |key: &str| match config.get(key) {
        Some(Value::Decimal(value)) => Some(Time(value.saturating_mul(MICROSECOND) / ONE)),
        _ => None,
    };
    let rate = |key: &str| config.rate(key);
    let gain = config.get("EWMA_GAIN").map(|_| config.decimal("EWMA_GAIN", 0) as f64 / ONE as f64);
    let rounds = config.get("FAST_RECOVERY_TIMES").map(|_| config.integer("FAST_RECOVERY_TIMES", 1));
    Control {
        alpha_interval: us("ALPHA_RESUME_INTERVAL"),
        decrease_interval: us("RATE_DECREASE_INTERVAL"),
        increase_interval: us("RP_TIMER"),
        gain,
        fast_recovery: rounds.map(|rounds| u32::try_from(rounds).unwrap_or(u32::MAX)),
        rate_ai: rate("RATE_AI"),
        rate_hai: rate("RATE_HAI"),
        min_rate: rate("MIN_RATE"),
        clamp_target: flag("CLAMP_TARGET_RATE"),
        ..windows
    }
}

/// Translates `LINK_DOWN t a b`: the link between `a` and `b` fails `t` µs after [`BASE`]. With `t` = 0 no
/// link fails.
fn failures(source: Source<'_>, config: &Config, topology: &Topology) -> Result<Vec<Failure>, ScenarioError> {
    let Some(Value::Triple([time, a, b])) = config.get("LINK_DOWN") else { return Ok(Vec::new()) };
    if *time == 0 {
        return Ok(Vec::new());
    }
    let end = |node: u64| u32::try_from(node).unwrap_or(u32::MAX);
    let failure_time = Time(time.saturating_mul(MICROSECOND).saturating_add(BASE));
    let failure = Failure { ends: [end(*a), end(*b)], nth: 0, at: failure_time, until: None };
    match failure.link(topology) {
        Some(_) => Ok(vec![failure]),
        None => {
            Err(source.error(0, format!("LINK_DOWN names {a} and {b}, which no link joins: name two ends")))
        }
    }
}

fn output(config: &Config, dialect: Dialect, trace: Vec<u32>) -> Output {
    let ns = |key: &str, default: u64| Time(config.integer(key, default).saturating_mul(NANOSECOND));
    let traced = dialect == Dialect::Hpcc && config.integer("ENABLE_TRACE", 1) != 0;
    let queues = [ns("QLEN_MON_START", 2_000_000_000), ns("QLEN_MON_END", 2_100_000_000)];
    Output {
        format: match dialect {
            Dialect::Hpcc => OutputFormat::Hpcc,
            Dialect::Conweave => OutputFormat::Conweave,
        },
        trace: if traced { trace } else { Vec::new() },
        // ConWeave's program accepts the keys but samples no queues.
        queues: config.text("QLEN_MON_FILE").filter(|_| dialect == Dialect::Hpcc).map(|_| queues),
        sampling: config.get("SW_MONITORING_INTERVAL").map(|_| ns("SW_MONITORING_INTERVAL", 10_000)),
    }
}
