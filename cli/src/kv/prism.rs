//! PRISM-KV's server: its clients do their operations themselves, so its program only posts the buffers that come back, and looks for those
//! that clients took with them when they died.

use anyhow::{Context as _, Result};
use store::heap::{Class, Classes, Keeper, KeeperConfig, Peer};
use store::kv::prism::{Config, HEADER, Loader, PrismTable};
use store::kv::{Broken, Hello, QueueNeeds, Refusal, SessionError};
use store::ycsb::record;
use verbs::{Access, FreeListOptions, WorkCompletion};

use super::Size;
use super::program::Loads;
use super::serve::ServeArgs;
use crate::post::{Batched, Direct, Later};
use crate::serving::lists::Posted;
use crate::serving::program::{Memory, Program};

/// The server's program.
pub struct PrismServer {
    table: PrismTable,
    keeper: Keeper,
    lists: Posted,
    loader: Loader,
    needs: QueueNeeds,
}

/// Sizes of buffers beside that of the records.
const SIZES: [u32; 6] = [128, 512, 2048, 8192, 65536, (1 << 20) + 1024];
/// Buffers of a list at most: as many posts as a ring holds.
const MOST: u64 = nic::MAX_RING_SLOTS as u64;

/// Buffers of the records' own size have seven eighths of the memory; of what is left the other sizes have equal parts.
fn sizes(args: &ServeArgs, capacity: u32, bytes: usize) -> Vec<(u32, u32)> {
    let object = HEADER + record::KEY_LEN + args.value_len as usize;
    let size = object.next_multiple_of(64) as u32;
    let wanted = args.records + args.records / 8 + 4096;
    let mut all = Vec::new();
    let mut left = bytes as u64;
    if args.records > 0 {
        let count = wanted.max(u64::from(capacity).min(left / 8 * 7 / u64::from(size))).min(MOST);
        all.push((size, count as u32));
        left = left.saturating_sub(count * u64::from(size));
    }
    let longest = HEADER as u32 + 1024 + args.max_value;
    let others = SIZES.iter().map(|size| (*size).min(longest.next_multiple_of(64)));
    for other in others.filter(|other| *other != size || args.records == 0) {
        if all.iter().all(|(size, _)| *size != other) {
            let count = (left / SIZES.len() as u64 / u64::from(other)).clamp(4, MOST);
            all.push((other, count as u32));
        }
    }
    all
}

impl PrismServer {
    /// With its table and buffers in one region.
    pub fn open(args: &ServeArgs, size: Size, memory: &mut Memory) -> Result<PrismServer> {
        let Size { capacity, bytes, seed } = size;
        let config = Config { max_value: args.max_value, max_key: 1024, ..Config::for_keys(capacity, seed) };
        let sizes = sizes(args, capacity, bytes);
        let table_len = config.table_len().next_multiple_of(4096);
        let buffers: usize = sizes.iter().map(|(size, count)| *size as usize * *count as usize).sum();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let block = memory.region("table and buffers", table_len + buffers, access)?;
        let region = memory.regions.last().context("the region")?;
        let (mut lists, mut classes, mut offset) = (Vec::new(), Vec::new(), table_len);
        for (size, count) in sizes {
            let list = memory
                .domain
                .create_free_list(region, &FreeListOptions { offset, size, count, engine: 0 })?;
            classes.push(Class { list: list.number(), base: list.address(0), size, count });
            offset += size as usize * count as usize;
            lists.push(list);
        }
        let classes = Classes::new(classes).context("classes of different sizes")?;
        let keeping = KeeperConfig { peers: args.clients };
        let local = memory.region("messages", keeping.local_len(), Access::LOCAL_WRITE)?;
        let keeper = Keeper::new(keeping, classes.clone(), local).context("memory for messages")?;
        Ok(PrismServer {
            table: PrismTable::new(config, block),
            keeper,
            lists: Posted(lists),
            loader: Loader::new(classes),
            needs: keeping.needs(),
        })
    }
}

impl Program for PrismServer {
    type Connection = Peer;

    fn needs(&self) -> QueueNeeds {
        self.needs
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Peer, Vec<u8>)> {
        if Hello::decode(hello)?.design != store::kv::Design::Prism {
            return Err(SessionError::OtherDesign(store::kv::Design::Prism).into());
        }
        let peer = self.keeper.accept(nic).ok_or(SessionError::TooManyConnections)?;
        Ok((peer, self.table.grant(self.keeper.classes()).encode()))
    }

    fn handle(
        &mut self,
        peer: Peer,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken> {
        self.keeper.handle(peer, completion, nic, &mut self.lists)
    }

    fn disconnect(&mut self, peer: Peer) {
        self.keeper.disconnect(peer);
    }

    fn tidy(&mut self) {
        self.keeper.work(&self.table, &mut self.lists);
    }

    fn tell(&mut self, peer: Peer, nic: &mut Direct<'_>) -> Result<(), Broken> {
        self.keeper.tell(peer, nic)
    }
    fn is_late(&self, peer: Peer) -> bool {
        self.keeper.late().any(|late| late == peer)
    }
}

impl Loads for PrismServer {
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.loader.put(&self.table, key, value)
    }

    fn loaded(&mut self) -> Result<()> {
        let loader = &self.loader;
        Ok(self.keeper.post_all(&mut self.lists, |address| loader.has_used(address))?)
    }

    fn keys(&self) -> u64 {
        self.loader.keys()
    }
}
