//! 1RMA regions that a daemon exposes for a program.
//!
//! The NIC writes the process id and incarnation of the attachment into each request, and no command can
//! change them. The slot, local region and completion queue of a command must belong to its portal; the NIC
//! checks each command (`core/nic/src/rma/issue.rs`).

use remora_memory::Key;
use remora_nic::rma::{RegionKey, RegionMemory};

use super::super::message::{Refusal, RegisterRma, Reply};
use super::super::users::{Amounts, Resource};
pub(super) use super::exposed::Exposed;
use super::{Program, ReplyResult, Tenant, unknown, words};

impl Tenant {
    /// Replies with the identity that servers see: process id and incarnation.
    pub(super) fn identify(&self) -> ReplyResult {
        let Program { pid, incarnation } = self.program;
        Ok((Reply::Identity { pid, incarnation }, Vec::new()))
    }

    pub(super) fn register_rma(&mut self, asked: &RegisterRma) -> ReplyResult {
        let RegisterRma { region, base, len, rights, key } = asked;
        if !self.regions.contains_key(region) {
            return Err(unknown("region with key", region));
        }
        let memory = RegionMemory { key: Key::new(*region), base: *base, len: *len, rights: *rights };
        let claim = self.claim_all(Amounts::of(Resource::RmaRegion, 1))?;
        let regions = self.rma.open().map_err(words)?;
        let id = regions.register(&memory, key).map_err(words)?;
        self.exposed.insert(id, Exposed { id, region: *region, regions, _claim: claim });
        Ok((Reply::Number(id), Vec::new()))
    }

    fn exposed(&self, id: u32) -> Result<&Exposed, Refusal> {
        self.exposed.get(&id).ok_or_else(|| unknown("region of 1RMA", id))
    }

    pub(super) fn deregister_rma(&mut self, id: u32) -> Result<(), Refusal> {
        self.exposed(id)?;
        self.exposed.remove(&id);
        Ok(())
    }

    pub(super) fn rekey_rma(&self, id: u32, key: &RegionKey) -> Result<(), Refusal> {
        self.exposed(id)?.regions.rekey(id, key).map_err(words)
    }

    pub(super) fn rma_key(&self, id: u32) -> ReplyResult {
        let region = self.exposed(id)?.regions.get(id).ok_or_else(|| unknown("region of 1RMA", id))?;
        Ok((Reply::RmaKey(region.region_key.clone()), Vec::new()))
    }
}
