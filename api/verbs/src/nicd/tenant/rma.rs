//! 1RMA that a daemon lends to a program: RegionIds for the tenant's own regions, and command portals.
//!
//! The NIC writes the process id and incarnation of the attachment into each request, and no command can
//! change them. The slot, local region and completion queue of a command must belong to its portal; the NIC
//! checks each command (`core/nic/src/rma/issue.rs`).

use remora_nic::rma::{PortalInit, RegionKey, RegionMemory};
use remora_nic::{Command, CommandError, CommandFault, NicError};
use std::sync::Arc;

use super::super::message::{CreatePortal, PortalFacts, RegisterRma, Reply};
use super::super::users::{Amounts, Claim, Resource};
use super::{Program, ReplyResult, Tenant, descriptor, unknown, words};
use crate::ProtectionDomain;
use crate::completion_queue;
use crate::rma::{OwnRma, Reached};

/// A RegionId of a tenant, with the region that it exposes.
pub(super) struct Exposed {
    id: u32,
    /// The key of the memory region.
    pub region: u32,
    rma: OwnRma,
    _claim: Claim,
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let ended = self.rma.regions.deregister(self.id);
        debug_assert!(ended.is_ok(), "only this drop deregisters the region");
    }
}

/// A command portal of a tenant.
pub(super) struct LentPortal {
    number: u32,
    bell: u32,
    set: u32,
    rma: OwnRma,
    claim: Claim,
    // Kept alive because the portal uses them.
    _cq: Arc<completion_queue::Shared>,
    _domain: ProtectionDomain,
}

impl LentPortal {
    /// The number of the portal's command slots.
    pub(crate) fn slots(&self) -> usize {
        self.claim.get(Resource::Slot) as usize
    }

    /// The claim on the portal and its memory.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }
}

impl Tenant {
    /// Keeps the way to a server for later commands of the tenant. No effect for `None`.
    pub(in crate::nicd) fn keep_reached(&mut self, reached: Option<Reached>) {
        if let Some(reached) = reached {
            self.servers.keep(reached);
        }
    }
}

impl Drop for LentPortal {
    fn drop(&mut self) {
        self.rma.engine.take_bell(Some(self.set), self.bell);
        let ended = self.rma.engine.ask::<()>(Command::DestroyPortal { portal: self.number });
        debug_assert!(ended.is_ok(), "only this drop destroys the portal");
    }
}

impl Tenant {
    /// Replies with the identity that servers see: process id and incarnation.
    pub(super) fn identify(&self) -> ReplyResult {
        let Program { pid, incarnation } = self.program;
        Ok((Reply::Identity { pid, incarnation }, Vec::new()))
    }

    pub(super) fn register_rma(&mut self, asked: &RegisterRma) -> ReplyResult {
        let region = self.regions.get(&asked.region);
        let region = &region.ok_or_else(|| unknown("region with key", asked.region))?.region;
        let memory = RegionMemory {
            key: region.lkey(),
            base: region.address(),
            len: region.len() as u64,
            rights: asked.rights,
        };
        let claim = self.user.claim(Amounts::of(Resource::RmaRegion, 1))?;
        let rma = self.rma.open().map_err(words)?;
        let id = rma.regions.register(&memory, &asked.key).map_err(words)?;
        self.exposed.insert(id, Exposed { id, region: asked.region, rma, _claim: claim });
        Ok((Reply::Number(id), Vec::new()))
    }

    fn exposed(&self, id: u32) -> Result<&Exposed, String> {
        self.exposed.get(&id).ok_or_else(|| unknown("region of 1RMA", id))
    }

    pub(super) fn deregister_rma(&mut self, id: u32) -> Result<(), String> {
        self.exposed(id)?;
        self.exposed.remove(&id);
        Ok(())
    }

    pub(super) fn rekey_rma(&self, id: u32, key: &RegionKey) -> Result<(), String> {
        self.exposed(id)?.rma.regions.rekey(id, key).map_err(words)
    }

    pub(super) fn rma_key(&self, id: u32) -> ReplyResult {
        let region = self.exposed(id)?.rma.regions.get(id).ok_or_else(|| unknown("region of 1RMA", id))?;
        Ok((Reply::RmaKey(region.region_key.clone()), Vec::new()))
    }

    pub(super) fn create_portal(&mut self, asked: CreatePortal) -> ReplyResult {
        let CreatePortal { domain, cq, slots, bulk_only } = asked;
        if slots == 0 {
            return Err("a portal has one command slot at least".to_owned());
        }
        let queue = self.queues.get(&cq).ok_or_else(|| unknown("completion queue", cq))?;
        let (cq, shared) = (queue.cq.shared().number, Arc::clone(queue.cq.shared()));
        let domain = self.domain(domain)?.clone();
        let latency_slots = if bulk_only { 0 } else { slots.into() };
        let claim = self.user.claim(
            Amounts::of(Resource::Portal, 1)
                .and(Resource::Slot, slots.into())
                .and(Resource::LatencySlot, latency_slots)
                .and(Resource::Byte, remora_nic::Ring::size(slots.into()) as u64),
        )?;
        let ring = self.context.ring(slots.into()).map_err(words)?;
        let lent = descriptor(ring.bytes())?;
        let rma = self.rma.open().map_err(words)?;
        let Program { pid, incarnation } = self.program;
        let init = PortalInit {
            ring: rma.engine.hand(ring),
            slots,
            pd: domain.pd().map_err(words)?,
            cq,
            pid,
            incarnation,
        };
        let set = self.set;
        let created = rma.engine.ask(Command::CreatePortal(init));
        let remora_nic::rma::PortalFacts { number, first } =
            created.map_err(|error| self.portal_words(slots, error))?;
        if bulk_only {
            rma.engine.ask::<()>(Command::RestrictToBulk { portal: number }).map_err(words)?;
        }
        // The set lasts as long as the tenant.
        let bell = rma.engine.hang_portal_bell(set, number).unwrap_or_default();
        let facts = PortalFacts { number, bell, first };
        let portal = LentPortal { number, bell, set, rma, claim, _cq: shared, _domain: domain };
        self.portals.insert(number, portal);
        Ok((Reply::Portal(facts), vec![lent]))
    }

    fn portal_words(&self, slots: u16, error: CommandError) -> String {
        match error.fault {
            CommandFault::Nic(NicError::Full) => format!(
                "this NIC has no {slots} command slots in a row left of its {}: ask for fewer, or end other programs",
                self.rma.settings().slots
            ),
            other => other.to_string(),
        }
    }

    pub(super) fn destroy_portal(&mut self, number: u32) -> Result<(), String> {
        self.portals.remove(&number).map(drop).ok_or_else(|| unknown("command portal", number))
    }
}
