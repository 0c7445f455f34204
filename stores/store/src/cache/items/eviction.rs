//! Eviction of items: to free memory, because they are dead, and by `lru_crawler`.

use super::{Items, Name, OutOfMemory};
use crate::cache::attributes::Attributes;
use crate::cache::lru::NONE;
use crate::cache::{MAX_KEY, MAX_VALUE};
use crate::kv::two_sided::{Draft, TwoSidedTable};
use remora_transport::Instant;

/// Number of items evicted one by one, oldest first, before all items in the way of a long object are
/// evicted. The lines of the oldest items may be scattered, but a long object needs contiguous ones.
const ONE_BY_ONE: u32 = 8;
/// Maximum number of items evicted per store because the memory limit was lowered.
const LIMITED: u32 = 64;
/// Number of nodes that each store checks for dead items, so that their memory is freed even if no command
/// looks them up.
const SWEEP: u32 = 2;

/// Number of nodes checked with each client command after `lru_crawler crawl`.
const CRAWL: u32 = 256;

impl Items {
    /// Allocates memory for a value. Other items are evicted if necessary, even the item of `key` itself.
    ///
    /// # Errors
    /// `OutOfMemory`; no item is left in that case.
    pub(crate) fn draft(&mut self, key: &[u8], len: usize, now: Instant) -> Result<Draft, OutOfMemory> {
        self.sweep(now);
        let needed = TwoSidedTable::lines(key.len(), len);
        for _ in 0..LIMITED {
            let taken = self.owners.len() - self.table.free_lines() as usize;
            if taken + needed <= self.most_lines {
                break;
            }
            let Some(oldest) = self.lru.oldest() else { break };
            self.drop_item(Name(oldest), now);
        }
        let mut dropped = 0;
        loop {
            if let Ok(draft) = self.table.draft(key, len) {
                return Ok(draft);
            }
            let oldest = Name(self.lru.oldest().ok_or(OutOfMemory)?);
            if dropped < ONE_BY_ONE {
                self.drop_item(oldest, now);
            } else {
                self.clear(self.stored(oldest).line(), needed, now);
            }
            dropped += 1;
        }
    }

    /// Evicts all items in `lines` lines from about `line` on.
    fn clear(&mut self, line: usize, lines: usize, now: Instant) {
        let first = line.min(self.owners.len().saturating_sub(lines));
        // An object that begins before these lines may extend into them.
        let before = (0..first).rev().take(TwoSidedTable::lines(MAX_KEY, MAX_VALUE));
        let before = before.map(|index| self.owners[index]).find(|owner| *owner != NONE).map(Name);
        if let Some(name) = before {
            let node = self.node(name);
            let taken = TwoSidedTable::lines(node.key_len.into(), node.stored.len);
            if node.stored.line() + taken > first {
                self.drop_item(name, now);
            }
        }
        for index in first..(first + lines).min(self.owners.len()) {
            if self.owners[index] != NONE {
                self.drop_item(Name(self.owners[index]), now);
            }
        }
    }

    /// Evicts an item to free its memory.
    pub(super) fn drop_item(&mut self, name: Name, now: Instant) {
        if self.is_dead(name, now) {
            return self.reclaim(name);
        }
        let idle = self.idle(name, now);
        let Attributes { expires, marks, .. } = self.attributes(name);
        let unfetched = u64::from(!marks.fetched);
        let nonzero = u64::from(expires != Instant::NEVER);
        self.gone.evicted += 1;
        self.gone.evicted_unfetched += unfetched;
        let counts = self.counts(name);
        counts.evicted += 1;
        counts.evicted_unfetched += unfetched;
        counts.evicted_nonzero += nonzero;
        counts.evicted_time = idle.into();
        self.remove(name);
    }

    /// Removes a dead item.
    pub(super) fn reclaim(&mut self, name: Name) {
        let unfetched = u64::from(!self.attributes(name).marks.fetched);
        self.gone.reclaimed += 1;
        self.gone.expired_unfetched += unfetched;
        let counts = self.counts(name);
        counts.reclaimed += 1;
        counts.expired_unfetched += unfetched;
        self.remove(name);
    }

    /// Checks some nodes for dead items.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEEP.min(self.nodes.len() as u32) {
            self.hand = (self.hand + 1) % self.nodes.len() as u32;
            let name = Name(self.hand);
            if self.node(name).used && self.is_dead(name, now) {
                self.reclaim(name);
            }
        }
    }

    /// Starts a check of all items for dead ones, some with each command.
    pub(crate) fn crawl(&mut self) {
        self.crawl = self.nodes.len() as u32;
    }

    /// Returns true while that check is under way.
    pub(crate) fn is_crawling(&self) -> bool {
        self.crawl > 0
    }

    /// Checks the next items of the crawl and removes those that are dead.
    pub(crate) fn crawl_on(&mut self, now: Instant) {
        for _ in 0..self.crawl.min(CRAWL) {
            self.crawl -= 1;
            self.gone.looked_at += 1;
            let name = Name(self.crawl);
            if self.node(name).used && self.is_dead(name, now) {
                self.gone.crawled += 1;
                self.counts(name).crawler_reclaimed += 1;
                self.remove(name);
            }
        }
    }
}
