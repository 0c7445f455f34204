//! Connection matrices (`.cm` files): flows, triggers and link failures, one per line.

mod failed_link;
mod line;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use remora_fabric::topology::{NODES_MAX, Tier};

pub use failed_link::FailedLink;
use line::Line;
use remora_scenario::error::{FLOWS_MAX, Read, ScenarioError, Source, Warnings, excerpt};
use remora_scenario::flow::{After, Dependency, End, Flow, Start};

/// The contents of a connection matrix file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Number of hosts, from the line `Nodes N`.
    pub nodes: u32,
    /// Flows, in the order of the file.
    pub flows: Vec<Connection>,
    /// Triggers, in the order of the file.
    pub triggers: Vec<Trigger>,
    /// Links that are down from the start of the run.
    pub failures: Vec<FailedLink>,
}

/// Size of a flow that never ends, in bytes; a file asks for it by a size of 0. Sending it takes months at
/// any rate.
pub const ENDLESS: u64 = 1 << 62;

/// A flow of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Number of the sending host.
    pub src: u32,
    /// Number of the receiving host.
    pub dst: u32,
    /// Id from the file, or `None` if the line has no id.
    pub id: Option<u64>,
    /// Condition on which the flow starts.
    pub start: ConnectionStart,
    /// Size in bytes; [`ENDLESS`] if the file has 0.
    pub size: u64,
    /// Id of the trigger that fires when the sender has the last ACK.
    pub send_done: Option<u64>,
    /// Id of the trigger that fires when the receiver has the last byte.
    pub recv_done: Option<u64>,
    /// Priority, which RoCE does not use.
    pub priority: Option<u64>,
}

/// The condition on which a flow starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConnectionStart {
    /// The flow starts at this time, in ps.
    At(u64),
    /// The flow starts when the trigger with this id fires.
    Trigger(u64),
}

/// A trigger: flows that end fire it, and it starts other flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Id; not 0.
    pub id: u64,
    /// Number of firings that start the waiting flows.
    pub kind: TriggerKind,
}

/// The number of firings after which a trigger starts its flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The first firing starts the flows.
    OneShot,
    /// Every firing starts the flows. A flow starts only once, so this is equal to [`TriggerKind::OneShot`].
    MultiShot,
    /// This number of firings starts the flows; at least 1.
    Barrier(u32),
}

/// Reads a connection matrix.
///
/// # Errors
/// Fails if a count does not match its lines, on an unknown word, on an id that is 0 or used twice, if a flow
/// has no size, no start or two starts, sends to itself or names a host that is not below `Nodes`, or if a
/// trigger is used but not specified.
pub fn parse(source: Source<'_>) -> Result<Read<Connections>, ScenarioError> {
    source.check_size()?;
    let mut warnings = Warnings::of(source);
    let mut read = Connections::default();
    let mut counts = BTreeMap::from([("Nodes", 0), ("Connections", 0), ("Triggers", 0), ("Failures", 0)]);
    let mut in_body = false;
    for (number, text) in source.lines() {
        let mut line = Line::of(source, number, text, &mut warnings);
        if let Some(ends) = line.ends() {
            in_body = true;
            read.flows.push(connection(&mut line, ends, counts["Nodes"], &mut warnings)?);
            if read.flows.len() > FLOWS_MAX {
                let says = format!("there are more than {FLOWS_MAX} flows: cut the file into parts");
                return Err(source.error(number, says));
            }
            continue;
        }
        let Some(first) = line.next() else { continue };
        in_body |= first == "trigger" || first == "failure";
        if let Some(count) = counts.get_mut(first).filter(|_| !in_body) {
            *count = line.number(first, u64::from(u32::MAX))?;
        } else if first.starts_with('#') {
            if in_body {
                warnings.add(number, "a comment after the first flow is skipped here, but htsim rejects it");
            }
        } else if first == "trigger" {
            read.triggers.push(trigger(&mut line)?);
        } else if first == "failure" {
            read.failures.push(failure(&mut line)?);
        } else if in_body {
            let says = format!(
                "`{}` does not begin a flow, trigger or failure: remove or correct the line",
                excerpt(first)
            );
            return Err(source.error(number, says));
        } else {
            let says = format!("`{}` is not a count that a matrix has; the line is skipped", excerpt(first));
            warnings.add(number, says);
        }
    }
    read.nodes = u32::try_from(counts["Nodes"]).unwrap_or(u32::MAX);
    check_counts(source, &counts, &read)?;
    check_ids(source, &read)?;
    Ok(warnings.with(read))
}

fn connection(
    line: &mut Line<'_>,
    [src, dst]: [&str; 2],
    nodes: u64,
    warnings: &mut Warnings<'_>,
) -> Result<Connection, ScenarioError> {
    let [src, dst] = [line.host(src, nodes)?, line.host(dst, nodes)?];
    let mut flow = Connection {
        src,
        dst,
        id: None,
        start: ConnectionStart::At(0),
        size: 0,
        send_done: None,
        recv_done: None,
        priority: None,
    };
    let mut start = None;
    let mut trigger = None;
    let mut size = None;
    while let Some(word) = line.next() {
        match word {
            "id" => flow.id = Some(line.id(word)?),
            "start" => start = Some(line.start()?),
            "trigger" => trigger = Some(line.id(word)?),
            "size" => size = Some(line.number(word, u64::MAX)?),
            "send_done_trigger" => flow.send_done = Some(line.id(word)?),
            "recv_done_trigger" => flow.recv_done = Some(line.id(word)?),
            "prio" => flow.priority = Some(line.number(word, u64::MAX)?),
            "addon" | "msg" => {
                warnings.add(line.number_of_line(), format!("`{word}` is not modelled; it is skipped"));
                line.skip_number();
            }
            _ => {
                return Err(line
                    .error(format!("`{}` is not a keyword of a flow: remove or correct it", excerpt(word))));
            }
        }
    }
    flow.size = match size {
        None => return Err(line.error("the flow has no size: add `size BYTES`")),
        Some(0) => {
            warnings.add(line.number_of_line(), "a flow of size 0 never ends, as in htsim");
            ENDLESS
        }
        Some(size) => size,
    };
    if src == dst {
        return Err(line.error(format!("host {src} sends to itself: name another host")));
    }
    flow.start = match (start, trigger) {
        (Some(start), None) => ConnectionStart::At(start),
        (None, Some(trigger)) if flow.id.is_some() => ConnectionStart::Trigger(trigger),
        (None, Some(_)) => return Err(line.error("a flow with a trigger has no id: add `id N`")),
        (Some(_), Some(_)) => {
            return Err(line.error("the flow has a start and a trigger: keep one of them"));
        }
        (None, None) => return Err(line.error("the flow has no start: add `start PS` or `trigger N`")),
    };
    Ok(flow)
}

fn trigger(line: &mut Line<'_>) -> Result<Trigger, ScenarioError> {
    let mut id = None;
    let mut kind = None;
    let mut count = None;
    while let Some(word) = line.next() {
        match word {
            "id" => id = Some(line.id(word)?),
            "count" => count = Some(line.number(word, u64::from(u32::MAX))?),
            "oneshot" | "multishot" | "barrier" if kind.is_some() => {
                return Err(line.error("the trigger has two types: keep one of them"));
            }
            "oneshot" => kind = Some(TriggerKind::OneShot),
            "multishot" => kind = Some(TriggerKind::MultiShot),
            "barrier" => kind = Some(TriggerKind::Barrier(0)),
            _ => {
                let says = format!("`{}` is not a keyword of a trigger: remove or correct it", excerpt(word));
                return Err(line.error(says));
            }
        }
    }
    let id = id.ok_or_else(|| line.error("the trigger has no id: add `id N`"))?;
    let kind = match kind {
        None => return Err(line.error("the trigger has no type: add oneshot, multishot or barrier")),
        Some(TriggerKind::Barrier(_)) => match count {
            Some(count @ 1..) => TriggerKind::Barrier(count as u32),
            _ => return Err(line.error("the barrier has no count: add `count N`, at least 1")),
        },
        Some(kind) => kind,
    };
    Ok(Trigger { id, kind })
}

fn failure(line: &mut Line<'_>) -> Result<FailedLink, ScenarioError> {
    let mut tier = None;
    let mut switch = None;
    let mut link = None;
    while let Some(word) = line.next() {
        match word {
            "switch_type" => {
                tier = Some(match line.next() {
                    Some("TOR") => Tier::Tor,
                    Some("AGG") => Tier::Agg,
                    Some("CORE") => Tier::Core,
                    _ => return Err(line.error("switch_type is TOR, AGG or CORE: write one of them")),
                });
            }
            "switch_id" => switch = Some(line.number(word, NODES_MAX)? as u32),
            "link_id" => link = Some(line.number(word, NODES_MAX)? as u32),
            _ => {
                let says = format!("`{}` is not a keyword of a failure: remove or correct it", excerpt(word));
                return Err(line.error(says));
            }
        }
    }
    match (tier, switch, link) {
        (Some(tier), Some(switch), Some(link)) => Ok(FailedLink { tier, switch, link }),
        _ => Err(line.error("a failure has switch_type, switch_id and link_id: add what is missing")),
    }
}

fn check_counts(
    source: Source<'_>,
    counts: &BTreeMap<&str, u64>,
    read: &Connections,
) -> Result<(), ScenarioError> {
    if !(2..=NODES_MAX).contains(&counts["Nodes"]) {
        return Err(source.error(0, format!("Nodes is {}: write 2 to {NODES_MAX}", counts["Nodes"])));
    }
    for (key, is) in [
        ("Connections", read.flows.len()),
        ("Triggers", read.triggers.len()),
        ("Failures", read.failures.len()),
    ] {
        let says = counts[key];
        if says != is as u64 {
            return Err(source.error(0, format!("{key} is {says}, and the file has {is}: correct the count")));
        }
    }
    Ok(())
}

fn check_ids(source: Source<'_>, read: &Connections) -> Result<(), ScenarioError> {
    let mut triggers = BTreeSet::new();
    for trigger in &read.triggers {
        if !triggers.insert(trigger.id) {
            return Err(source.error(0, format!("trigger {} is specified twice: remove one", trigger.id)));
        }
    }
    let mut ids = BTreeSet::new();
    for flow in &read.flows {
        if let Some(id) = flow.id.filter(|id| !ids.insert(*id)) {
            return Err(source.error(0, format!("two flows have the id {id}: give each its own")));
        }
        let waits = match flow.start {
            ConnectionStart::Trigger(id) => Some(id),
            ConnectionStart::At(_) => None,
        };
        let named = [waits, flow.send_done, flow.recv_done];
        if let Some(id) = named.into_iter().flatten().find(|id| !triggers.contains(id)) {
            return Err(source.error(0, format!("trigger {id} is used but not specified: add its line")));
        }
    }
    Ok(())
}

impl Connections {
    /// Translates the matrix into flows of a scenario. Flows without an id get numbers above the largest id.
    ///
    /// A flow with a trigger waits for the flows that fire this trigger: for one of them, or for as many as a
    /// barrier counts. If fewer flows fire the trigger, the waiting flow can never start; it is left out and
    /// its id is appended to `never`.
    pub fn flows(&self, never: &mut Vec<u64>) -> Vec<Flow> {
        let mut free = self.flows.iter().filter_map(|flow| flow.id).max().unwrap_or(0);
        let mut numbered = Vec::with_capacity(self.flows.len());
        let mut fires: BTreeMap<u64, Vec<Dependency>> = BTreeMap::new();
        for flow in &self.flows {
            let id = flow.id.unwrap_or_else(|| {
                free = free.saturating_add(1);
                free
            });
            for (trigger, end) in [(flow.send_done, End::Acknowledged), (flow.recv_done, End::Received)] {
                if let Some(trigger) = trigger {
                    fires.entry(trigger).or_default().push(Dependency { flow: id, end });
                }
            }
            numbered.push((id, flow));
        }
        // All flows of a trigger share one list; separate lists would need quadratic memory for a barrier of
        // thousands.
        let mut waits: BTreeMap<u64, Arc<After>> = BTreeMap::new();
        for trigger in &self.triggers {
            let count = match trigger.kind {
                TriggerKind::OneShot | TriggerKind::MultiShot => 1,
                TriggerKind::Barrier(count) => count,
            };
            let flows = fires.remove(&trigger.id).unwrap_or_default();
            waits.insert(trigger.id, Arc::new(After { flows, count, delay: 0 }));
        }
        let mut flows = Vec::with_capacity(numbered.len());
        for (id, flow) in numbered {
            let mut made = Flow::write(id, flow.src, flow.dst, flow.size, 0);
            match flow.start {
                ConnectionStart::At(time) => made.start = Start::At(time),
                ConnectionStart::Trigger(trigger) => {
                    let enough = |after: &&Arc<After>| after.flows.len() >= after.count as usize;
                    let Some(after) = waits.get(&trigger).filter(enough) else {
                        never.push(id);
                        continue;
                    };
                    made.start = Start::After(Arc::clone(after));
                }
            }
            flows.push(made);
        }
        flows
    }
}
