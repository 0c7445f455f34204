//! A shard of PRISM-TX: its clients do their transactions themselves.

use anyhow::{Context as _, Result, ensure};
use remora_store::heap::{Classes, Reachable};
use remora_store::txn::{Granted, HEADER, Incarnations, Shard, ShardConfig, Welcome};

use super::desk::Desk;
use super::serve::ServeArgs;
use crate::serving::kept::{Kept, Room, Shelf};
use crate::serving::program::Memory;

/// Clients that a shard numbers, at most: as many as timestamps tell apart.
const SESSIONS: u32 = (1 << 14) - 1;
/// Slots that a key may be away from where its hash leads: with half of them free, a million keys stay within.
pub const REACH: u32 = 128;

/// A shard's table.
pub struct PrismTx {
    shard: Shard,
    desk: Desk,
}

/// Buffers: one for each key, and those that are being written, or are on their way back.
fn buffers(args: &ServeArgs) -> Result<u32> {
    let busy = u64::from(args.clients) * (u64::from(args.window * args.max_keys) + 64);
    let most = u64::from(remora_nic::MAX_RING_SLOTS);
    let count = (args.keys + args.keys / 16 + busy).min(most);
    ensure!(
        count >= args.keys + 64,
        "{} keys take more buffers than the {most} of a free list: ask for fewer --keys, and start more shards",
        args.keys
    );
    Ok(count as u32)
}

/// The program, with table and buffers in one region.
///
/// # Errors
/// There is no room.
pub fn open(args: &ServeArgs, memory: &mut Memory) -> Result<Kept<PrismTx>> {
    let slots = args.slots();
    let reach = u64::from(REACH).min(slots) as u32;
    let config = ShardConfig { slots, reach, sessions: SESSIONS, window: args.window };
    let incarnations_at = config.table_len().next_multiple_of(64);
    let size = (HEADER as u32 + args.key_len + args.value_len).next_multiple_of(64);
    let room = Room {
        what: "keys and values",
        table_len: incarnations_at + Incarnations::len(args.shards),
        sizes: &[(size, buffers(args)?)],
        clients: args.clients,
    };
    let mut kept = Kept::open(&room, memory, |block, _| {
        let desk = Desk::open(args.place(), args.limits(), block.clone(), incarnations_at)?;
        let shard = Shard::open(config, &block).context("memory for the table")?;
        Ok(PrismTx { shard, desk })
    })?;
    kept.post_all(|_, _| false)?;
    Ok(kept)
}

impl Reachable for PrismTx {
    fn entries(&self) -> usize {
        self.shard.entries()
    }

    fn buffers(&self, entry: usize, found: &mut dyn FnMut(u64)) {
        self.shard.buffers(entry, found);
    }
}

impl Shelf for PrismTx {
    fn fits(&self, hello: &[u8]) -> Result<()> {
        self.desk.read(hello).map(|_| ())
    }

    fn welcome(&mut self, _: &[u8], classes: &Classes) -> Result<Vec<u8>> {
        let grant = self.shard.accept(classes).with_context(|| {
            format!(
                "this shard has had the {} clients that it has numbers for: begin the store anew",
                SESSIONS - 1
            )
        })?;
        Ok(self.desk.welcome(Granted::PrismTx(grant)))
    }

    fn abandon(&mut self, welcome: &[u8]) {
        if let Some(Welcome { granted: Granted::PrismTx(grant), .. }) = Welcome::decode(welcome) {
            self.shard.take_back(grant.session);
        }
    }
}
