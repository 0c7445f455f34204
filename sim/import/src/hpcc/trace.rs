//! The trace file: a count, then the numbers of the nodes whose packets are traced.

use remora_fabric::topology::NODES_MAX;

use remora_scenario::error::{Read, ScenarioError, Source, Warnings};
use remora_scenario::tokens::Tokens;

/// Reads the node numbers. Numbers that are not below `nodes` are left out with a warning, and text after the
/// last number is ignored.
///
/// # Errors
/// Fails if there are fewer numbers than the count states, or if a word is not a number.
pub fn parse(source: Source<'_>, nodes: usize) -> Result<Read<Vec<u32>>, ScenarioError> {
    source.check_size()?;
    let mut warnings = Warnings::of(source);
    let mut tokens = Tokens::of(source);
    let count = tokens.number("the count of nodes", NODES_MAX)?;
    let mut list = Vec::new();
    for _ in 0..count {
        let token = tokens.need("a node")?;
        let node = tokens.number_of(token, "the number of a node", u64::from(u32::MAX))?;
        if node < nodes as u64 {
            list.push(node as u32);
        } else {
            // HPCC publishes one trace file for all topologies: it names 348 nodes.
            warnings
                .add(token.line, format!("there are only {nodes} nodes; others are left out, as in ns-3"));
        }
    }
    Ok(warnings.with(list))
}

/// Writes node numbers in the format that [`parse`] reads.
pub fn write(nodes: &[u32]) -> String {
    let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
    format!("{}\n{}\n", list.len(), list.join(" "))
}
