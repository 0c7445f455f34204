//! A link that fails, and which link of the tree that is.

use remora_fabric::topology::{Place, Tier, Topology};

use crate::scenario::Failure;
use crate::units::Time;

/// A link that fails: number `link` of those upwards from a switch of its tier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FailedLink {
    /// The tier of the switch.
    pub tier: Tier,
    /// Its number in the tier.
    pub switch: u32,
    /// The number of the link.
    pub link: u32,
}

impl FailedLink {
    /// The link by the wiring of the tree; from a core it is the one to the pod of that number. Of a bundle
    /// the first fails.
    ///
    /// # Errors
    /// There is no such link, or the network is no tree.
    pub fn failure(&self, topology: &Topology) -> Result<Failure, String> {
        let FailedLink { tier, switch, link } = *self;
        let missing = || {
            format!(
                "a failure names link {link} of {tier} switch {switch}, which is not there: mend its numbers"
            )
        };
        let near = topology.switch_at(tier, switch).ok_or_else(missing)?;
        let ports = topology.ports();
        let is_up = |place: Place| if tier == Tier::Core { place.tier < tier } else { place.tier > tier };
        let mut far: Vec<u32> = ports[near as usize].iter().map(|port| port.neighbour).collect();
        far.retain(|node| topology.place(*node).is_some_and(is_up));
        // The links of a bundle lie beside each other.
        far.dedup();
        let far = far.get(link as usize).copied().ok_or_else(missing)?;
        Ok(Failure { ends: [near, far], nth: 0, at: Time(0), until: None })
    }
}
