//! Trees of two or three tiers: fat-trees, leaf-spine networks, and the topologies of htsim's files.

use super::{LINKS_MAX, Level, NODES_MAX, NodeKind, Place, Tier, Topology, TopologyError, limit};

/// A tree of switches. Host `h` is attached to ToR `h / hosts_per_tor`. Each ToR has links to all aggregation
/// switches of its pod. The aggregation switch at position `a` of each pod has links to the cores `a +
/// aggs_per_pod * l`, as in htsim.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Number of pods; 1 in a tree of two tiers.
    pub pods: u32,
    /// Number of ToR switches in each pod.
    pub tors_per_pod: u32,
    /// Number of hosts at each ToR switch.
    pub hosts_per_tor: u32,
    /// Number of aggregation switches in each pod; the spine switches in a tree of two tiers.
    pub aggs_per_pod: u32,
    /// Number of cores above each aggregation switch; 0 in a tree of two tiers.
    pub cores_per_agg: u32,
    /// Links below the ToR, aggregation and core switches, in this order.
    pub below: [Level; 3],
}

impl Tree {
    /// Returns the fat-tree of switches with `k` ports, in which each ToR has `oversubscription` times `k/2`
    /// hosts. With 1 it has `k³/4` hosts and full bisection bandwidth. All links are equal.
    ///
    /// # Errors
    /// Returns [`TopologyError::Shape`] if `k` is odd or below 2.
    pub fn fat(k: u32, oversubscription: u32, link: Level) -> Result<Tree, TopologyError> {
        if k < 2 || !k.is_multiple_of(2) {
            return Err(TopologyError::Shape("the k of a fat-tree is even and at least 2: choose such a k"));
        }
        let half = k / 2;
        Ok(Tree {
            pods: k,
            tors_per_pod: half,
            hosts_per_tor: half.saturating_mul(oversubscription),
            aggs_per_pod: half,
            cores_per_agg: half,
            below: [link; 3],
        })
    }

    /// Returns a leaf-spine network: leaves with hosts, each with a link to every spine.
    pub fn leaf_spine(leaves: u32, spines: u32, hosts_per_leaf: u32, hosts: Level, up: Level) -> Tree {
        Tree {
            pods: 1,
            tors_per_pod: leaves,
            hosts_per_tor: hosts_per_leaf,
            aggs_per_pod: spines,
            cores_per_agg: 0,
            below: [hosts, up, up],
        }
    }

    /// Returns the numbers of hosts, ToRs, aggregation switches and cores.
    pub fn counts(&self) -> [u64; 4] {
        let [pods, tors, hosts, aggs, cores] =
            [self.pods, self.tors_per_pod, self.hosts_per_tor, self.aggs_per_pod, self.cores_per_agg]
                .map(u64::from);
        let all = pods.saturating_mul(tors);
        [all.saturating_mul(hosts), all, pods.saturating_mul(aggs), aggs.saturating_mul(cores)]
    }

    /// Builds the topology. Nodes: hosts, ToRs, aggregation switches, cores, each tier pod by pod. Links:
    /// from the hosts upwards, in the order of the lower node.
    ///
    /// # Errors
    /// Fails if a required number is 0, or if there are too many nodes or links.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let least = [self.pods, self.tors_per_pod, self.hosts_per_tor, self.aggs_per_pod];
        if least.contains(&0) || self.below.iter().any(|level| level.bundle == 0) {
            return Err(TopologyError::Shape(
                "a tree has at least one pod, ToR, host, agg and link of a bundle: raise the count that is 0",
            ));
        }
        let [hosts, tors, aggs, cores] = self.counts();
        limit("nodes", [hosts, tors, aggs, cores].into_iter().fold(0, u64::saturating_add), NODES_MAX)?;
        let [below_tor, below_agg, below_core] = self.below.map(|level| u64::from(level.bundle));
        let up = tors.saturating_mul(u64::from(self.aggs_per_pod)).saturating_mul(below_agg);
        let top = aggs.saturating_mul(u64::from(self.cores_per_agg)).saturating_mul(below_core);
        limit("links", hosts.saturating_mul(below_tor).saturating_add(up).saturating_add(top), LINKS_MAX)?;
        let topology = self.wire([hosts, tors, aggs, cores].map(|count| count as u32));
        topology.check()?;
        Ok(topology)
    }

    fn wire(&self, counts: [u32; 4]) -> Topology {
        let [hosts, tors, aggs, cores] = counts;
        let mut topology = Topology { nodes: vec![NodeKind::Host; hosts as usize], ..Topology::default() };
        topology.nodes.resize((hosts + tors + aggs + cores) as usize, NodeKind::Switch);
        topology.places = vec![None; hosts as usize];
        for (tier, count, per_pod) in [
            (Tier::Tor, tors, self.tors_per_pod),
            (Tier::Agg, aggs, self.aggs_per_pod),
            (Tier::Core, cores, cores.max(1)),
        ] {
            let place = |number| Place { tier, pod: number / per_pod, position: number % per_pod, number };
            topology.places.extend((0..count).map(|number| Some(place(number))));
        }
        let [tor, agg, core] = [hosts, hosts + tors, hosts + tors + aggs];
        for host in 0..hosts {
            topology.join(host, tor + host / self.hosts_per_tor, self.below[0]);
        }
        for lower in 0..tors {
            let pod = lower / self.tors_per_pod;
            for position in 0..self.aggs_per_pod {
                topology.join(tor + lower, agg + pod * self.aggs_per_pod + position, self.below[1]);
            }
        }
        for lower in 0..aggs {
            for l in 0..self.cores_per_agg {
                topology.join(
                    agg + lower,
                    core + lower % self.aggs_per_pod + self.aggs_per_pod * l,
                    self.below[2],
                );
            }
        }
        topology
    }
}
