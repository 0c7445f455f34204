//! Free lists of PRISM that a daemon's NIC has for a program, and the memory of queues that the next command
//! names. Both end with the program.

use remora_nic::prism::FreeListInit;
use remora_nic::{Command, PartNumber, Ring};
use std::collections::BTreeMap;

use super::super::message::Reply;
use super::super::users::{Amounts, Claim, Resource};
use super::{LentMemory, ReplyResult, Tenant, descriptor, words};
use crate::ProtectionDomain;

/// Largest number of a program's rings that no command has named yet.
const MAX_HANDED: usize = 16;
/// Bytes that the NIC needs for each buffer of a free list.
const BYTES_OF_BUFFER: u64 = 16;

/// Memory of a queue that no command has named yet.
struct HandedRing {
    ring: Ring,
    memory: LentMemory,
    claim: Claim,
}

/// The memory of queues that no command has named yet.
#[derive(Default)]
pub(super) struct Handed {
    rings: BTreeMap<u32, HandedRing>,
    next: u32,
}

impl Handed {
    /// Returns whether the program has memory with this number.
    pub(crate) fn has(&self, part: PartNumber) -> bool {
        self.rings.contains_key(&part.0)
    }
}

/// A free list of the tenant.
pub(super) struct LentFreeList {
    _memory: LentMemory,
    _domain: ProtectionDomain,
    claim: Claim,
    _ring_claim: Claim,
}

impl LentFreeList {
    /// Returns the claim on the list.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }
}

impl Tenant {
    /// Allocates memory for a queue, which a later command names.
    pub(super) fn hand(&mut self, slots: u32) -> ReplyResult {
        if self.handed.rings.len() == MAX_HANDED {
            return Err(format!("{MAX_HANDED} queues have memory and are not created: create them first"));
        }
        let claim = self.user.claim(Amounts::of(Resource::Byte, Ring::size(slots) as u64))?;
        let ring = self.context.ring(slots).map_err(words)?;
        let lent = descriptor(ring.bytes())?;
        let memory = LentMemory(ring.bytes().clone());
        let number = self.handed.next;
        self.handed.next = number.wrapping_add(1);
        self.handed.rings.insert(number, HandedRing { ring, memory, claim });
        Ok((Reply::Number(number), vec![lent]))
    }

    /// Creates a free list over memory that was handed out before. The memory is taken in any case.
    pub(super) fn create_free_list(&mut self, init: FreeListInit) -> ReplyResult {
        let handed = self.handed.rings.remove(&init.ring.0).ok_or("this program has no such memory")?;
        let HandedRing { ring, memory, claim: ring_claim } = handed;
        let amounts = Amounts::of(Resource::FreeList, 1);
        let claim = self.user.claim(amounts.and(Resource::Byte, u64::from(init.count) * BYTES_OF_BUFFER))?;
        let domain = self.domain(init.pd.get())?.clone();
        let engine = self.engine()?;
        let command = Command::CreateFreeList(FreeListInit { ring: engine.hand(ring), ..init });
        let created = engine.execute(command);
        if let Ok(remora_nic::Reply::Number(number)) = created {
            let list = LentFreeList { _memory: memory, _domain: domain, claim, _ring_claim: ring_claim };
            self.free_lists.insert(number, list);
        }
        Ok((created.map_or_else(Reply::RefusedByNic, Reply::Executed), Vec::new()))
    }

    /// Destroys a free list of this tenant.
    pub(super) fn destroy_free_list(&mut self, number: u64) -> Result<(), String> {
        let ended = self.engine()?.ask::<()>(Command::DestroyFreeList { list: number });
        debug_assert!(ended.is_ok(), "only the tenant destroys its lists");
        self.free_lists.remove(&number);
        Ok(())
    }

    /// Destroys all free lists of this tenant.
    pub(super) fn end_free_lists(&mut self) {
        let numbers: Vec<u64> = self.free_lists.keys().copied().collect();
        for number in numbers {
            let ended = self.destroy_free_list(number);
            debug_assert!(ended.is_ok(), "a daemon has an engine");
        }
    }
}
