//! PRISM-KV's server: its clients do their operations themselves, so its program only posts the buffers that come back, and looks for those
//! that clients took with them when they died.

use anyhow::Result;
use store::heap::{Classes, Reachable};
use store::kv::prism::{Config, HEADER, Loader, PrismTable};
use store::kv::{Hello, Refusal, SessionError};
use store::ycsb::record;

use super::Size;
use super::program::Loads;
use super::serve::ServeArgs;
use crate::serving::kept::{Kept, Room, Shelf};
use crate::serving::program::Memory;

/// The server's table, and who puts into it what is there before clients come.
pub struct PrismShelf {
    table: PrismTable,
    loader: Loader,
}

/// The server's program.
pub type PrismServer = Kept<PrismShelf>;

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

/// The program, with table and buffers in one region.
pub fn open(args: &ServeArgs, size: Size, memory: &mut Memory) -> Result<PrismServer> {
    let Size { capacity, bytes, seed } = size;
    let config = Config { max_value: args.max_value, max_key: 1024, ..Config::for_keys(capacity, seed) };
    let room = Room {
        what: "table and buffers",
        table_len: config.table_len(),
        sizes: &sizes(args, capacity, bytes),
        clients: args.clients,
    };
    Kept::open(&room, memory, |block, classes| {
        Ok(PrismShelf { table: PrismTable::new(config, block), loader: Loader::new(classes.clone()) })
    })
}

impl Reachable for PrismShelf {
    fn entries(&self) -> usize {
        self.table.entries()
    }

    fn buffers(&self, entry: usize, found: &mut dyn FnMut(u64)) {
        self.table.buffers(entry, found);
    }
}

impl Shelf for PrismShelf {
    fn fits(&self, hello: &[u8]) -> Result<()> {
        if Hello::decode(hello)?.design != store::kv::Design::Prism {
            return Err(SessionError::OtherDesign(store::kv::Design::Prism).into());
        }
        Ok(())
    }

    fn welcome(&mut self, _: &[u8], classes: &Classes) -> Result<Vec<u8>> {
        Ok(self.table.grant(classes).encode())
    }

    fn full(&self) -> anyhow::Error {
        SessionError::TooManyConnections.into()
    }
}

impl Loads for PrismServer {
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let PrismShelf { table, loader } = self.shelf_mut();
        loader.put(table, key, value)
    }

    fn loaded(&mut self) -> Result<()> {
        self.post_all(|shelf, address| shelf.loader.has_used(address))
    }

    fn keys(&self) -> u64 {
        self.shelf().loader.keys()
    }
}
