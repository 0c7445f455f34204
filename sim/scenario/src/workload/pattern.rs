//! The patterns incast, permutation and all-to-all.

use remora_fabric::topology::Topology;

use super::poisson::{gap, rates};
use super::stream::{Purpose, stream};
use super::{Repeat, WorkloadError};
use crate::error::FLOWS_MAX;
use crate::flow::Flow;

/// An incast: several hosts send to one host at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incast {
    pub senders: u32,
    /// Size of each flow, in bytes.
    pub size: u64,
    /// Node number of the receiver, or `None` for a random host.
    pub to: Option<u32>,
}

impl Incast {
    /// Returns the flows of a single incast at time 0, in the order of their senders.
    pub(crate) fn once(&self, hosts: &[u32], seed: u64) -> Result<Vec<Flow>, WorkloadError> {
        self.round(hosts, seed, 0, 0)
    }

    /// Returns incasts at random times that put a mean load of `repeat.load` on the links of all hosts.
    pub(crate) fn repeated(
        &self,
        topology: &Topology,
        hosts: &[u32],
        seed: u64,
        repeat: Repeat,
    ) -> Result<Vec<Flow>, WorkloadError> {
        let rates = rates(topology);
        let rate: f64 = hosts.iter().map(|host| rates[*host as usize] as f64).sum();
        let bits = self.size as f64 * f64::from(self.senders) * 8.0;
        let mean = bits / (rate * repeat.load) * 1e12;
        let mut gaps = stream(seed, Purpose::Gaps, 0);
        let mut flows = Vec::new();
        let mut time = gap(&mut gaps, mean);
        let mut round = 0;
        while time < repeat.duration.0 {
            flows.append(&mut self.round(hosts, seed, round, time)?);
            if flows.len() > FLOWS_MAX {
                return Err(WorkloadError::TooMany);
            }
            time = time.saturating_add(gap(&mut gaps, mean));
            round += 1;
        }
        (0..).zip(&mut flows).for_each(|(id, flow)| flow.id = id);
        Ok(flows)
    }

    fn round(&self, hosts: &[u32], seed: u64, round: u64, start: u64) -> Result<Vec<Flow>, WorkloadError> {
        let few = WorkloadError::TooFewHosts { needs: u64::from(self.senders) + 1, has: hosts.len() };
        if hosts.is_empty() {
            return Err(few);
        }
        let receiver = self.to.unwrap_or_else(|| stream(seed, Purpose::Receiver, round).pick(hosts));
        let mut senders: Vec<(u64, u32)> = hosts
            .iter()
            .filter(|host| **host != receiver)
            .map(|host| (stream(seed, Purpose::Senders, round << 32 | u64::from(*host)).bits(), *host))
            .collect();
        if self.senders == 0 || senders.len() < self.senders as usize {
            return Err(few);
        }
        senders.sort_unstable();
        senders.truncate(self.senders as usize);
        senders.sort_unstable_by_key(|(_, host)| *host);
        let ids = (0..).zip(senders);
        Ok(ids.map(|(id, (_, src))| Flow::write(id, src, receiver, self.size, start)).collect())
    }
}

/// Returns one flow per host, to the next host in a random cyclic order, sorted by sender. Fewer than two
/// hosts give no flows.
pub(crate) fn permutation(hosts: &[u32], seed: u64, size: u64) -> Vec<Flow> {
    let mut order: Vec<(u64, u32)> =
        hosts.iter().map(|host| (stream(seed, Purpose::Order, u64::from(*host)).bits(), *host)).collect();
    order.sort_unstable();
    let next = order.iter().cycle().skip(1);
    let mut pairs: Vec<[u32; 2]> = order
        .iter()
        .zip(next)
        .map(|((_, src), (_, dst))| [*src, *dst])
        .filter(|[src, dst]| src != dst)
        .collect();
    pairs.sort_unstable();
    (0..).zip(pairs).map(|(id, [src, dst])| Flow::write(id, src, dst, size, 0)).collect()
}

/// Returns a flow for every ordered pair of hosts. Each host sends to the next host first, so that the first
/// flows have different receivers.
pub(crate) fn all_to_all(hosts: &[u32], size: u64) -> Result<Vec<Flow>, WorkloadError> {
    let count = hosts.len();
    if count.saturating_mul(count.saturating_sub(1)) > FLOWS_MAX {
        return Err(WorkloadError::TooMany);
    }
    let mut flows = Vec::new();
    for (index, &src) in hosts.iter().enumerate() {
        for step in 1..count {
            let dst = hosts[(index + step) % count];
            flows.push(Flow::write(flows.len() as u64, src, dst, size, 0));
        }
    }
    Ok(flows)
}
