//! The failed links of a connection matrix, and their places in the tree.

use remora_fabric::topology::{Place, Tier, Topology};

use remora_scenario::scenario::Failure;
use remora_scenario::units::Time;

/// A link that is down from the start of the run, named by a switch and the number of one of its links.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FailedLink {
    /// Tier of the switch.
    pub tier: Tier,
    /// Number of the switch within its tier, from 0.
    pub switch: u32,
    /// Number of the link among the upward links of the switch; for a core switch, the number of the pod.
    pub link: u32,
}

impl FailedLink {
    /// Translates the failure by the wiring of `topology`. If several links join the same two switches
    /// (`Bundle`), the first of them fails.
    ///
    /// # Errors
    /// Fails if there is no such switch or link, for instance because the network is not a tree.
    pub fn failure(&self, topology: &Topology) -> Result<Failure, String> {
        let FailedLink { tier, switch, link } = *self;
        let missing = || {
            format!(
                "a failure names link {link} of {tier} switch {switch}, which does not exist: correct switch_id or link_id"
            )
        };
        let near = topology.switch_at(tier, switch).ok_or_else(missing)?;
        let ports = topology.ports();
        let is_up = |place: Place| if tier == Tier::Core { place.tier < tier } else { place.tier > tier };
        let mut far: Vec<u32> = ports[near as usize].iter().map(|port| port.neighbour).collect();
        far.retain(|node| topology.place(*node).is_some_and(is_up));
        // Parallel links of a bundle are adjacent ports, so `dedup` leaves one entry for each neighbour.
        far.dedup();
        let far = far.get(link as usize).copied().ok_or_else(missing)?;
        Ok(Failure { ends: [near, far], nth: 0, at: Time(0), until: None })
    }
}
