//! The domains and regions of a tenant, and the regions that have ended.

use remora_memory::{Key, Pd};
use std::collections::BTreeMap;

use super::super::message::SentRange;
use super::super::users::Claim;
use super::LentMemory;
use super::lent_memory::MemoryOwner;

/// A protection domain.
pub(crate) struct Domain {
    pub pd: Pd,
    pub(super) _claim: Claim,
}

/// A region, or a region without memory.
pub(crate) struct Region {
    pub key: Key,
    pub pd: Pd,
    pub name: String,
    /// The first range, whose memory is the first block.
    pub first: SentRange,
    pub blocks: Vec<LentMemory>,
    pub(super) claim: Option<Claim>,
    /// The program, if the memory is its own and must not be freed while the program runs.
    pub(super) owner: Option<MemoryOwner>,
}

impl Region {
    /// The claim on the region and its memory.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.keep(std::mem::take(&mut self.blocks), self.claim.take());
        }
    }
}

/// Regions that have ended, whose memory the program is about to make its own. Each still counts.
#[derive(Default)]
pub(crate) struct RetiredRegions {
    pub(super) regions: BTreeMap<u32, Region>,
    pub(super) next: u32,
}

impl RetiredRegions {
    /// The regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// Keeps the memory of a region, and returns the number by which it is freed.
    pub(super) fn keep(&mut self, region: Region) -> u32 {
        // A number is used again only after all others.
        while self.regions.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.regions.insert(number, region);
        number
    }
}
