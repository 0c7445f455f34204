//! The flow file: a count, then one row per flow.
//!
//! The columns are `src dst pg dport size start` in HPCC's dialect and `src dst pg size start` in ConWeave's.
//! The columns of ns3-rdma, `src dst pg packets start end`, are recognised and rejected with a message of
//! their own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use remora_fabric::topology::Topology;

use super::Dialect;
use remora_scenario::error::{FLOWS_MAX, Read, ScenarioError, Source, Warnings, excerpt};
use remora_scenario::flow::{Flow, Start};
use remora_scenario::tokens::{Token, Tokens};
use remora_scenario::units::{self, Time, WholeError, decimal};

/// First source port that [`number`] assigns, and first destination port in ConWeave's dialect.
const FIRST: [u16; 2] = [10_000, 100];

/// A flow file: the flows and the dialect of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowFile {
    /// Dialect that determines the columns of each row.
    pub dialect: Dialect,
    /// Flows in ascending order of their start; ids count from 0 in this order.
    pub flows: Vec<Flow>,
}

/// Reads flows between the hosts of `topology`; without a topology, any number is accepted as a host.
///
/// A count that is larger than the number of rows is a warning, because traffic generators first write an
/// estimate and later overwrite only some of its digits. If the count is smaller, the remaining rows are
/// ignored with a warning, as in ns-3. Rows are sorted by their start; flows that start at the same time keep
/// their order. A size of 0 is read as 1 byte.
///
/// # Errors
/// Fails if a row is incomplete, names a host that does not exist or sends to itself, if its class (`pg`) is
/// above 7, or if its start is not a decimal number of seconds.
pub fn parse(source: Source<'_>, topology: Option<&Topology>) -> Result<Read<FlowFile>, ScenarioError> {
    source.check_size()?;
    let mut warnings = Warnings::of(source);
    let mut tokens = Tokens::of(source);
    let count = tokens.number("the count of flows", u64::MAX)?;
    let dialect = if count == 0 { Dialect::Hpcc } else { dialect(&tokens)? };
    let mut flows = Vec::new();
    let mut latest = 0;
    let mut sorted = true;
    while let Some(first) = tokens.peek() {
        if flows.len() as u64 >= count {
            if first.text.parse::<u64>().is_ok() {
                let says = format!(
                    "there are more flows than the count of {count}; the others are ignored, as in ns-3"
                );
                warnings.add(first.line, says);
            }
            break;
        }
        if flows.len() == FLOWS_MAX {
            let says = format!("there are more than {FLOWS_MAX} flows: cut the file into parts");
            return Err(tokens.error(first, says));
        }
        let mut flow = row(&mut tokens, dialect, topology)?;
        flow.size = flow.size.max(1);
        let Start::At(start) = flow.start else { continue };
        if start < latest && sorted {
            sorted = false;
            warnings.add(first.line, "this flow starts before the previous one; the flows are sorted");
        }
        latest = latest.max(start);
        flows.push(flow);
    }
    if (flows.len() as u64) < count {
        let says =
            format!("the count is {count}, and the file has {} flows; all of them are read", flows.len());
        warnings.add(1, says);
    }
    flows.sort_by_key(|flow| match flow.start {
        Start::At(start) => start,
        Start::After(_) => u64::MAX,
    });
    if dialect == Dialect::Hpcc {
        warn_of_ns3_rdma(&flows, &mut warnings);
    }
    number(&mut flows, dialect);
    Ok(warnings.with(FlowFile { dialect, flows }))
}

/// Returns the dialect that the number of words in the first row implies. If the whole file is a single line,
/// that line must hold one flow only.
fn dialect(tokens: &Tokens<'_>) -> Result<Dialect, ScenarioError> {
    match tokens.left_in_line() {
        0 | 6 => Ok(Dialect::Hpcc),
        5 => Ok(Dialect::Conweave),
        columns => {
            let line = tokens.peek().map_or(1, |token| token.line);
            let says = format!(
                "the first flow has {columns} columns: write `src dst pg dport size start` or \
                 `src dst pg size start`, one flow a line"
            );
            Err(tokens.source().error(line, says))
        }
    }
}

fn row(
    tokens: &mut Tokens<'_>,
    dialect: Dialect,
    topology: Option<&Topology>,
) -> Result<Flow, ScenarioError> {
    let first = tokens.need("a flow")?;
    let src = host(tokens, first, topology)?;
    let second = tokens.need("the destination of a flow")?;
    let dst = host(tokens, second, topology)?;
    if src == dst {
        return Err(tokens.error(first, format!("host {src} sends to itself: name another host")));
    }
    let class = tokens.number("the class of a flow", 7)? as u8;
    let port = match dialect {
        Dialect::Hpcc => port(tokens)?,
        Dialect::Conweave => 0,
    };
    let size = size(tokens, dialect)?;
    let token = tokens.need("the start of a flow")?;
    let start = Time::parse(token.text).ok_or_else(|| {
        let says = format!("`{}` is not a start: write seconds like 2.000000027", excerpt(token.text));
        tokens.error(token, says)
    })?;
    Ok(Flow { class, ports: [0, port], ..Flow::write(0, src, dst, size, start.0) })
}

/// Names the columns of ns3-rdma's flow files in messages.
const OF_NS3_RDMA: &str = "the columns are those of ns3-rdma, `src dst pg packets start end`";
const REMEDY: &str = "write `src dst pg dport size start`";

/// Reads the fourth of six columns. A number above 65,535 is no port; ns3-rdma has its count of packets
/// there.
fn port(tokens: &mut Tokens<'_>) -> Result<u16, ScenarioError> {
    let token = tokens.need("the destination port of a flow")?;
    match units::whole(token.text, u64::from(u16::MAX)) {
        Ok(port) => Ok(port as u16),
        Err(WholeError::TooLarge(max)) => {
            let port = excerpt(token.text);
            let says = format!(
                "the destination port of a flow is {port}: choose at most {max}; if {OF_NS3_RDMA}, {REMEDY}"
            );
            Err(tokens.error(token, says))
        }
        Err(WholeError::NoNumber) => tokens.number_of(token, "the destination port of a flow", 0).map(|_| 0),
    }
}

/// Reads the size in bytes. A decimal number is rejected: ns3-rdma has the start of the flow there.
fn size(tokens: &mut Tokens<'_>, dialect: Dialect) -> Result<u64, ScenarioError> {
    let token = tokens.need("the size of a flow")?;
    let is_start = token.text.contains('.') && Time::parse(token.text).is_some();
    if dialect == Dialect::Hpcc && is_start {
        let size = excerpt(token.text);
        return Err(tokens.error(token, format!("a flow has the size {size}: {OF_NS3_RDMA}; {REMEDY}")));
    }
    tokens.number_of(token, "the size of a flow", u64::MAX)
}

/// Warns if every size is smaller than the flow's start in seconds: such a file is probably one of ns3-rdma,
/// with starts in whole seconds in the column of the sizes.
fn warn_of_ns3_rdma(flows: &[Flow], warnings: &mut Warnings<'_>) {
    const SECOND: u128 = 1_000_000_000_000;
    let looks_so = |flow: &Flow| match flow.start {
        Start::At(start) => flow.ports[1] != 0 && u128::from(flow.size) * SECOND < u128::from(start),
        Start::After(_) => false,
    };
    if !flows.is_empty() && flows.iter().all(looks_so) {
        warnings.add(2, format!("all sizes are below the seconds of the starts; if {OF_NS3_RDMA}, {REMEDY}"));
    }
}

fn host(tokens: &Tokens<'_>, token: Token<'_>, topology: Option<&Topology>) -> Result<u32, ScenarioError> {
    let host = tokens.number_of(token, "the number of a host", u64::from(u32::MAX))? as u32;
    match topology {
        Some(topology) if !topology.is_host(host) => {
            let says = format!("node {host} is not a host of the topology: name a host");
            Err(tokens.error(token, says))
        }
        _ => Ok(host),
    }
}

/// Assigns ids from 0, and ports as the two programs do.
///
/// HPCC counts source ports per pair of sender and receiver and keeps the destination ports of the file.
/// ConWeave counts source ports per sender and destination ports per receiver. Ports wrap at 16 bits.
pub fn number(flows: &mut [Flow], dialect: Dialect) {
    let mut counts: BTreeMap<[u32; 3], u16> = BTreeMap::new();
    let mut next = |key: [u32; 3], first: u16| {
        let count = counts.entry(key).or_default();
        *count = count.wrapping_add(1);
        first.wrapping_add(count.wrapping_sub(1))
    };
    for (id, flow) in (0..).zip(flows) {
        flow.id = id;
        match dialect {
            Dialect::Hpcc => flow.ports[0] = next([0, flow.src, flow.dst], FIRST[0]),
            Dialect::Conweave => {
                flow.ports = [next([1, flow.src, 0], FIRST[0]), next([2, flow.dst, 0], FIRST[1])];
            }
        }
    }
}

/// Writes flows in the format that [`parse`] reads, with starts in seconds: 9 decimals, or 12 for a start
/// that is not a whole number of nanoseconds. Flows that start after other flows cannot be written; they are
/// left out and not counted.
pub fn write(file: &FlowFile) -> String {
    let mut rows = String::new();
    let mut count = 0;
    for flow in &file.flows {
        let Start::At(start) = flow.start else { continue };
        count += 1;
        let start = if start.is_multiple_of(1000) { decimal(start / 1000, 9) } else { decimal(start, 12) };
        let _ = write!(rows, "{} {} {} ", flow.src, flow.dst, flow.class);
        if file.dialect == Dialect::Hpcc {
            let _ = write!(rows, "{} ", flow.ports[1]);
        }
        let _ = writeln!(rows, "{} {start}", flow.size);
    }
    format!("{count}\n{rows}")
}
