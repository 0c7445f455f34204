//! Topology files (`.topo`): trees with two or three tiers of switches.

mod tier;

use remora_fabric::topology::{NODES_MAX, Tree};

use remora_scenario::error::{Read, ScenarioError, Source, Warnings, excerpt};
use remora_scenario::units::Time;
use tier::Value;
pub use tier::{TierText, TreeFile, tree};

/// The network of a topology file: the tree, and attributes of the switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNetwork {
    /// The tree, wired as htsim wires it.
    pub tree: Tree,
    /// Switching latency by tier: ToR, aggregation, core.
    pub latency: [Time; 3],
    /// Capacity of an output queue in bytes: the largest `Queue_Up` or `Queue_Down` of all tiers, or `None`
    /// if the file has neither.
    pub queue: Option<u64>,
}

/// Reads a topology.
///
/// # Errors
/// Fails if a key occurs twice in a tier or has no number, if a tier or a required value is missing, or if
/// the numbers do not describe a tree.
pub fn parse(source: Source<'_>) -> Result<Read<TreeFile>, ScenarioError> {
    source.check_size()?;
    let mut warnings = Warnings::of(source);
    let mut nodes = None;
    let mut count = None;
    let mut pod = None;
    let mut tiers: [Option<TierText>; 3] = Default::default();
    let mut current = None;
    for (number, text) in source.lines() {
        let mut words = text.split_ascii_whitespace();
        let Some(key) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let value = Value { source, line: number, key, word: words.next().unwrap_or("") };
        match key.to_ascii_lowercase().as_str() {
            "nodes" if current.is_none() => nodes = Some(value.number(NODES_MAX)?),
            "tiers" if current.is_none() => count = Some(value.number(3)?),
            "podsize" if current.is_none() => pod = Some(value.number(NODES_MAX)?),
            "tier" => {
                let tier = value.number(2)? as usize;
                current = Some(tier);
                tiers[tier].get_or_insert_default();
            }
            key => match current.and_then(|tier| tiers[tier].as_mut().map(|text| (tier, text))) {
                Some((tier, text)) => text.set(tier, key, &value, &mut warnings)?,
                None => warnings
                    .add(number, format!("the key {} is not known here; it is skipped", excerpt(value.key))),
            },
        }
    }
    let need = |value: Option<u64>, key: &str| match value {
        Some(value @ 1..) => Ok(value as u32),
        _ => Err(source.error(0, format!("{key} is missing or 0: add `{key} N` before the first tier"))),
    };
    let nodes = need(nodes, "Nodes")?;
    let count = need(count, "Tiers")?;
    let pod = need(pod, "Podsize")?;
    if count < 2 {
        return Err(source.error(0, format!("Tiers is {count}: write 2 or 3")));
    }
    let mut texts = Vec::new();
    for (tier, text) in tiers.into_iter().enumerate().take(count as usize) {
        let text =
            text.ok_or_else(|| source.error(0, format!("tier {tier} is missing: add `Tier {tier}`")))?;
        text.check(source, tier, tier + 1 == count as usize)?;
        texts.push(text);
    }
    let file = TreeFile { nodes, pod, tiers: texts };
    tree(&file).map_err(|says| source.error(0, says))?;
    Ok(warnings.with(file))
}

impl TreeFile {
    /// Derives the network from the file.
    ///
    /// # Errors
    /// Fails if the numbers contradict each other: see [`tree`].
    pub fn network(&self) -> Result<TreeNetwork, String> {
        let mut latency = [Time(0); 3];
        for (latency, tier) in latency.iter_mut().zip(&self.tiers) {
            *latency = Time(tier.switch_latency.unwrap_or(0) * 1000);
        }
        let queues = self.tiers.iter().flat_map(|tier| [tier.queue_up, tier.queue_down]);
        Ok(TreeNetwork { tree: tree(self)?, latency, queue: queues.flatten().max() })
    }

    /// Writes the topology in the format that [`parse`] reads.
    pub fn write(&self) -> String {
        let mut text = format!("Nodes {}\nTiers {}\nPodsize {}\n", self.nodes, self.tiers.len(), self.pod);
        for (number, tier) in self.tiers.iter().enumerate() {
            text.push_str(&format!("\nTier {number}\n{}", tier.write()));
        }
        text
    }
}
