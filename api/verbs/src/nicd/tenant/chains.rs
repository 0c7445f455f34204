//! Chains that a daemon executes for a program, also after the program has ended: loopback queue pairs,
//! ports, and code regions.
//!
//! A chain can name only queue pairs of its own protection domain, and completion queues that one of them
//! uses. The NIC checks that (`core/nic/src/chain.rs`). This module therefore only ensures that a tenant
//! combines its own objects: whatever the tenant later writes into its queues cannot name those of others.

use remora_memory::{Access, Range};

use super::super::message::{CodeOf, CodePart, CreateCode, CreateQp, RegionFacts};
use super::{AWAY, LentMemory, Region, ReplyResult, Resource, Stage, Tenant, fresh, ring_bytes, words};
use crate::QueuePair;

impl Tenant {
    pub(super) fn create_loopback(&mut self, asked: CreateQp) -> ReplyResult {
        let [sends, receives] = self.ends(&asked)?;
        let claim = self.claim(Resource::Pair, ring_bytes(&asked.options))?;
        let made = QueuePair::loopback(self.domain(asked.domain)?, sends, receives, &asked.options);
        let mut pair = made.map_err(words)?;
        let bell = pair.share_bell(self.set).map_err(words)?;
        self.keep_pair(Stage::Up(pair), bell, asked, claim)
    }

    /// Creates a code region: zeroed memory and the slots of queue pairs under one key with all rights.
    pub(super) fn create_code(&mut self, asked: &CreateCode) -> ReplyResult {
        let claim = self.claim(Resource::Region, asked.len)?;
        let memory = fresh(asked.len)?;
        let mut parts = Vec::with_capacity(asked.parts.len());
        for CodePart { of: source, iova } in asked.parts.iter().copied() {
            parts.push(match source {
                CodeOf::Memory(offset, len) => {
                    let [offset, len] =
                        [offset, len].map(|value| usize::try_from(value).unwrap_or(usize::MAX));
                    Range { bytes: memory.clone(), offset, len, iova }
                }
                CodeOf::Pair(number) => Range { iova, ..self.slots(number)? },
            });
        }
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = self.domain(asked.domain)?.register_ranges(&parts, rights).map_err(words)?;
        let domain = asked.domain;
        let key = region.lkey().get();
        let iova = region.address();
        self.keep_region(Region {
            region,
            memory: LentMemory(memory),
            facts: RegionFacts { domain, key, iova, name: String::new() },
            claim,
        })
    }

    /// The slots of a queue pair's send queue, without the queue's indices, which precede them.
    fn slots(&self, number: u32) -> Result<Range, String> {
        match &self.pair(number)?.stage {
            Stage::Idle(pair) => Ok(pair.code()),
            Stage::Up(pair) => Ok(pair.code()),
            Stage::Away => Err(AWAY.to_owned()),
        }
    }
}
