//! A shard of PRISM-TX, whose clients execute their transactions themselves.

use remora_store::heap::{Classes, Reachable};
use remora_store::txn::{Granted, HEADER, Incarnations, Shard, ShardConfig, Welcome};

use super::ShardConfig as Config;
use super::identity::ShardIdentity;
use crate::error::{Result, ensure, need};
use crate::server::{BufferTable, HeapServer, Memory, Sizes};

/// Maximum number of client numbers that a shard issues: as many as timestamps can distinguish.
const SESSIONS: u32 = (1 << 14) - 1;
/// Maximum distance of a key's slot from its home. With half of the slots free, a million keys stay within
/// it.
pub(crate) const REACH: u32 = 128;

/// The table of a shard.
pub struct PrismTx {
    shard: Shard,
    identity: ShardIdentity,
}

/// Returns the number of buffers: one for each key, and those that are being written or returned.
fn buffers(size: &Config) -> Result<u32> {
    let busy = u64::from(size.clients) * (u64::from(size.limits.window * size.limits.max_keys) + 64);
    let most = u64::from(remora_nic::MAX_RING_SLOTS);
    let count = (size.keys + size.keys / 16 + busy).min(most);
    ensure!(
        count >= size.keys + 64,
        Config,
        "{} keys take more buffers than the {most} of a free list: ask for fewer --keys, and start more shards",
        size.keys
    );
    Ok(count as u32)
}

impl PrismTx {
    /// Creates the program of a shard, with table and buffers in one region.
    ///
    /// # Errors
    /// There is not enough memory, or there are too many keys for one shard.
    pub fn open(size: &Config, memory: &mut Memory) -> Result<HeapServer<PrismTx>> {
        let slots = size.slots;
        let limits = size.limits;
        let reach = u64::from(REACH).min(slots) as u32;
        let config = ShardConfig { slots, reach, sessions: SESSIONS, window: limits.window };
        let incarnations_at = config.table_len().next_multiple_of(64);
        let len = (HEADER as u32 + limits.max_key + limits.max_value).next_multiple_of(64);
        let buffers = [(len, buffers(size)?)];
        let sizes = Sizes {
            what: "keys and values",
            table_len: incarnations_at + Incarnations::len(size.id.shards),
            buffers: &buffers,
            clients: size.clients,
        };
        let mut server = HeapServer::open(&sizes, memory, |block, _| {
            let identity = ShardIdentity::open(size.id, limits, block.clone(), incarnations_at)?;
            let shard = need!(Shard::open(config, &block), Config, "memory for the table");
            Ok(PrismTx { shard, identity })
        })?;
        server.post_all(|_, _| false)?;
        Ok(server)
    }
}

impl Reachable for PrismTx {
    fn entries(&self) -> usize {
        self.shard.entries()
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        self.shard.buffers(entry, report);
    }
}

impl BufferTable for PrismTx {
    fn fits(&self, hello: &[u8]) -> Result<()> {
        self.identity.read(hello).map(|_| ())
    }

    fn welcome(&mut self, _: &[u8], classes: &Classes) -> Result<Vec<u8>> {
        let grant = need!(
            self.shard.accept(classes),
            Refused,
            "this shard has had the {} clients that it has numbers for: begin the store anew",
            SESSIONS - 1
        );
        Ok(self.identity.welcome(Granted::PrismTx(grant)))
    }

    fn abandon(&mut self, welcome: &[u8]) {
        if let Some(Welcome { granted: Granted::PrismTx(grant), .. }) = Welcome::decode(welcome) {
            self.shard.take_back(grant.session);
        }
    }
}
