//! The objects that a daemon has kept for a program that was restarted.

use remora_nic::CompletionPoller;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::daemon_client::{DaemonClient, loan, one, ring};
use super::loan::Loan;
use super::message::{PairFacts, Reply, Request};
use crate::{
    CompletionQueue, Context, CreateError, KernelHandle, MemoryRegion, ProtectionDomain, QueuePair, Ready,
};

/// The objects that earlier programs of this tenant left. Dropping one of them gives it back to the daemon.
#[derive(Debug, Default)]
pub struct Kept {
    /// Connected queue pairs. Their posted work is under way or done; its completions are in the completion
    /// queues.
    pub pairs: Vec<QueuePair<Ready>>,
    /// Completion queues, with the tags that they had.
    pub queues: Vec<CompletionQueue>,
    /// Regions with their names, at the addresses that they had.
    pub regions: Vec<(String, MemoryRegion)>,
    /// Protection domains of the earlier programs.
    pub domains: Vec<ProtectionDomain>,
    /// Kernels that the earlier programs deployed.
    pub kernels: Vec<KernelHandle>,
}

impl Kept {
    /// Takes the region of this name out of `regions`.
    pub fn region(&mut self, name: &str) -> Option<MemoryRegion> {
        let place = self.regions.iter().position(|(named, _)| named == name)?;
        Some(self.regions.remove(place).1)
    }

    /// Returns whether no object was kept.
    pub fn is_empty(&self) -> bool {
        let Kept { pairs, queues, regions, domains, kernels } = self;
        let rest = queues.is_empty() && regions.is_empty() && domains.is_empty();
        rest && pairs.is_empty() && kernels.is_empty()
    }
}

impl Context {
    /// The objects that the daemon has kept from earlier programs of this tenant
    /// ([`Attachment::keep`](crate::nicd::Attachment::keep)). To be called once, before the program creates
    /// an object.
    ///
    /// # Errors
    /// `NotByDaemon` if the NIC is the program's own; `Daemon` if the daemon refuses.
    pub fn kept(&self) -> Result<Kept, CreateError> {
        let daemon = self.daemon().ok_or(CreateError::NotByDaemon)?;
        let mut kept = Kept::default();
        let mut domains = BTreeMap::new();
        let mut pairs = Vec::new();
        for place in 0.. {
            match daemon.ask(&Request::Kept(place), &[])? {
                (Reply::Domain(number), _) => {
                    domains.insert(number, ProtectionDomain::lent(self, number));
                }
                (Reply::Region(facts), memory) => {
                    let Some(domain) = domains.get(&facts.domain) else { continue };
                    let region = MemoryRegion::lent(domain, &facts, one(memory)?);
                    kept.regions.push((facts.name, region));
                }
                (Reply::Queue(facts), memory) => {
                    self.skip_tags(facts.tag);
                    let poller = CompletionPoller::resume(ring(one(memory)?)?);
                    kept.queues.push(CompletionQueue::lent(self, daemon, &facts, poller));
                }
                (Reply::Kernel { number, domain }, _) => {
                    let Some(domain) = domains.get(&domain) else { continue };
                    kept.kernels.push(KernelHandle::lent(domain, daemon, number));
                }
                (Reply::Pair(facts), lent) => pairs.push((*facts, loan(lent)?)),
                _ => break,
            }
        }
        for (facts, loan) in pairs {
            kept.pairs.extend(reattach(daemon, &kept.queues, &domains, facts, loan));
        }
        kept.domains = domains.into_values().collect();
        Ok(kept)
    }

    /// Leaves all objects to the daemon, as if the program were killed now: objects dropped from now on are
    /// not given back. No effect if the NIC is the program's own.
    pub fn leave(&self) {
        if let Some(daemon) = self.daemon() {
            daemon.leave(true);
        }
    }

    /// Reverts [`leave`](Context::leave): objects dropped from now on are given back.
    pub fn stay(&self) {
        if let Some(daemon) = self.daemon() {
            daemon.leave(false);
        }
    }
}

fn reattach(
    daemon: &Arc<DaemonClient>,
    queues: &[CompletionQueue],
    domains: &BTreeMap<u32, ProtectionDomain>,
    facts: PairFacts,
    loan: Loan,
) -> Option<QueuePair<Ready>> {
    let queue = |number| queues.iter().find(|queue| queue.shared().number == number);
    let send_cq = queue(facts.send_cq)?;
    let receive_cq = queue(facts.receive_cq)?;
    Some(QueuePair::reattach(daemon, domains.get(&facts.domain)?, send_cq, receive_cq, facts, loan))
}
