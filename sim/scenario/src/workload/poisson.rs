//! Flows at random times to random hosts (a Poisson process per host).

use remora_fabric::topology::Topology;
use remora_fault::Random;

use super::WorkloadError;
use super::distribution::unit;
use super::sizes::Sizes;
use super::stream::{Purpose, stream};
use crate::error::FLOWS_MAX;
use crate::flow::Flow;

/// Returns the flows that all hosts start within `duration` ps, by start and then by sender.
///
/// The mean gap between two flows of a host is `mean size * 8 / (rate * load)` seconds, where `rate` is the
/// sum of the rates of its links.
pub(crate) fn flows(
    topology: &Topology,
    hosts: &[u32],
    seed: u64,
    sizes: &Sizes,
    load: f64,
    duration: u64,
) -> Result<Vec<Flow>, WorkloadError> {
    if hosts.len() < 2 {
        return Err(WorkloadError::TooFewHosts { needs: 2, has: hosts.len() });
    }
    let sizes = sizes.distribution().map_err(WorkloadError::Numbers)?;
    let rates = rates(topology);
    let mut flows = Vec::new();
    for &src in hosts {
        let [mut gaps, mut bytes, mut others] = [Purpose::Gaps, Purpose::Sizes, Purpose::Destinations]
            .map(|purpose| stream(seed, purpose, u64::from(src)));
        let mean = sizes.mean() * 8.0 / (rates[src as usize] as f64 * load) * 1e12;
        let mut time = gap(&mut gaps, mean);
        while time < duration {
            if flows.len() == FLOWS_MAX {
                return Err(WorkloadError::TooMany);
            }
            let dst = other(&mut others, hosts, src);
            flows.push(Flow::write(0, src, dst, sizes.draw(&mut bytes), time));
            time = time.saturating_add(gap(&mut gaps, mean));
        }
    }
    flows.sort_by_key(|flow| match flow.start {
        crate::flow::Start::At(start) => (start, flow.src),
        crate::flow::Start::After(_) => (u64::MAX, flow.src),
    });
    (0..).zip(&mut flows).for_each(|(id, flow)| flow.id = id);
    Ok(flows)
}

/// Draws an exponentially distributed gap with this mean, in ps; at least 1, so that every loop ends.
pub(crate) fn gap(random: &mut Random, mean: f64) -> u64 {
    ((-libm::log(1.0 - unit(random)) * mean) as u64).max(1)
}

/// Returns the sum of the rates of each node's links, in bit/s.
pub(crate) fn rates(topology: &Topology) -> Vec<u64> {
    let mut rates = vec![0u64; topology.nodes.len()];
    for link in &topology.links {
        for node in [link.a, link.b] {
            rates[node as usize] = rates[node as usize].saturating_add(link.rate);
        }
    }
    rates
}

/// Draws a host other than `src`.
fn other(random: &mut Random, hosts: &[u32], src: u32) -> u32 {
    loop {
        let dst = random.pick(hosts);
        if dst != src {
            return dst;
        }
    }
}
