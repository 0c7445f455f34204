//! The nodes whose packets are traced: a count, then numbers of nodes.

use remora_fabric::topology::NODES_MAX;

use crate::error::{Read, ScenarioError, Source, Warnings};
use crate::tokens::Tokens;

/// Reads the nodes, of `nodes` that there are; others are left out. Prose behind the last is ignored.
///
/// # Errors
/// The text has fewer than its count, or a word that is no number.
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
            // The original's own file names 348 nodes for any topology.
            warnings
                .add(token.line, format!("there are only {nodes} nodes; others are left out, as in ns-3"));
        }
    }
    Ok(warnings.with(list))
}

/// Writes the nodes as [`parse`] reads them.
pub fn write(nodes: &[u32]) -> String {
    let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
    format!("{}\n{}\n", list.len(), list.join(" "))
}
