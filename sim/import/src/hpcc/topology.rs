//! The topology file: `nodes switches links`, then the node numbers of the switches, then one `a b rate delay
//! error` line per link.
//!
//! Programs that descend from HPCC's have longer first lines, which are read as well: see `Header`.

mod header;

use std::fmt::Write as _;

use remora_fabric::topology::{Link, NodeKind, Topology};

use header::Header;
use remora_scenario::error::{Read, ScenarioError, Source, Warnings, excerpt};
use remora_scenario::tokens::Tokens;
use remora_scenario::units::{Rate, Time};

/// Reads a topology. The ports of a node are numbered from 0 in the order of its links; ns-3 numbers the same
/// interfaces from 1.
///
/// # Errors
/// Fails if the file has fewer switches or links than its first line states, if a link has an unknown node or
/// an invalid rate, delay or error rate, if a host has no link, or if the network is larger than
/// [`NODES_MAX`](remora_fabric::topology::NODES_MAX) nodes or
/// [`LINKS_MAX`](remora_fabric::topology::LINKS_MAX) links.
pub fn parse(source: Source<'_>) -> Result<Read<Topology>, ScenarioError> {
    source.check_size()?;
    let mut warnings = Warnings::of(source);
    let mut tokens = Tokens::of(source);
    let Header { nodes, switches, links } = Header::parse(&mut tokens, &mut warnings)?;
    let mut topology = Topology { nodes: vec![NodeKind::Host; nodes as usize], ..Topology::default() };
    for _ in 0..switches {
        let token = tokens.need("a switch")?;
        let node = tokens.number_of(token, "the number of a switch", nodes.saturating_sub(1))?;
        let kind = &mut topology.nodes[node as usize];
        if *kind == NodeKind::Switch {
            warnings.add(token.line, format!("switch {node} is listed twice; once counts"));
        }
        *kind = NodeKind::Switch;
    }
    for number in 0..links as usize {
        let (line, link) = link(&mut tokens, nodes)?;
        topology.check_link(number, &link).map_err(|error| source.error(line, error.to_string()))?;
        topology.links.push(link);
    }
    if let Some(token) = tokens.peek()
        && token.text.parse::<u64>().is_ok()
    {
        let says =
            format!("there are more links than the count of {links}; the others are ignored, as in ns-3");
        warnings.add(token.line, says);
    }
    topology.check().map_err(|error| source.error(0, error.to_string()))?;
    Ok(warnings.with(topology))
}

/// Reads the five words of a link. Returns the link with the number of its line.
fn link(tokens: &mut Tokens<'_>, nodes: u64) -> Result<(u32, Link), ScenarioError> {
    let first = tokens.need("a link")?;
    let a = tokens.number_of(first, "the number of a node", nodes.saturating_sub(1))?;
    let b = tokens.number("the number of a node", nodes.saturating_sub(1))?;
    let token = tokens.need("the rate of a link")?;
    let rate = Rate::parse(token.text).ok_or_else(|| {
        let says = format!("`{}` is not a rate: write one like 100Gbps", excerpt(token.text));
        tokens.error(token, says)
    })?;
    let token = tokens.need("the delay of a link")?;
    let delay = Time::parse(token.text).ok_or_else(|| {
        let says = format!("`{}` is not a delay: write one like 1000ns", excerpt(token.text));
        tokens.error(token, says)
    })?;
    let token = tokens.need("the error rate of a link")?;
    let loss = token.text.parse::<f64>().ok().filter(|loss| (0.0..=1.0).contains(loss)).ok_or_else(|| {
        let says = format!("`{}` is not an error rate: write one from 0 to 1", excerpt(token.text));
        tokens.error(token, says)
    })?;
    Ok((first.line, Link { a: a as u32, b: b as u32, rate: rate.0, delay: delay.0, loss }))
}

/// Writes a topology in the format that [`parse`] reads, one link per line.
pub fn write(topology: &Topology) -> String {
    let switches: Vec<String> = topology.switches().map(|node| node.to_string()).collect();
    let mut text = format!("{} {} {}\n", topology.nodes.len(), switches.len(), topology.links.len());
    text.push_str(&switches.join(" "));
    text.push('\n');
    for link in &topology.links {
        let rate = Rate(link.rate);
        let delay = Time(link.delay);
        let _ = writeln!(text, "{} {} {rate} {delay} {}", link.a, link.b, link.loss);
    }
    text
}
