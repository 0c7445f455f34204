//! Ring all-reduce.

use std::sync::Arc;

use super::WorkloadError;
use crate::error::FLOWS_MAX;
use crate::flow::{After, Dependency, End, Flow, Start};

/// Returns the flows of an all-reduce of `size` bytes by n hosts: n - 1 rounds of reduction, then n - 1
/// rounds that distribute the sums.
///
/// In round `r` the host at position `i` sends chunk `i - r` (modulo n) to the next host, as soon as it has
/// received that chunk from the previous host. The flow has the id `r * n + i`.
pub(crate) fn all_reduce(hosts: &[u32], size: u64) -> Result<Vec<Flow>, WorkloadError> {
    let n = hosts.len();
    if n < 2 {
        return Err(WorkloadError::TooFewHosts { needs: 2, has: n });
    }
    let rounds = 2 * (n - 1);
    if n.saturating_mul(rounds) > FLOWS_MAX {
        return Err(WorkloadError::TooMany);
    }
    let mut flows = Vec::with_capacity(n * rounds);
    for round in 0..rounds {
        for place in 0..n {
            let chunk = (place + n * 2 - round) % n;
            let more = u64::from((chunk as u64) < size % n as u64);
            let bytes = (size / n as u64 + more).max(1);
            let id = flows.len() as u64;
            let next = hosts[(place + 1) % n];
            let mut flow = Flow::write(id, hosts[place], next, bytes, 0);
            if round > 0 {
                let before = ((round - 1) * n + (place + n - 1) % n) as u64;
                let wait = Dependency { flow: before, end: End::Received };
                flow.start = Start::After(Arc::new(After { flows: vec![wait], count: 1, delay: 0 }));
            }
            flows.push(flow);
        }
    }
    Ok(flows)
}
