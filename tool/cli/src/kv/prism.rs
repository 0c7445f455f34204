//! PRISM-KV's server: its clients do their operations themselves, so its program only posts the buffers that come back, looks for those
//! that clients took with them when they died, and makes the table grow.

mod buffers;

use anyhow::{Context as _, Result};
use remora_store::heap::{Classes, Reachable};
use remora_store::kv::prism::{Config, Loader, MovePolicy, Mover, PrismTable};
use remora_store::kv::{Broken, Hello, Refusal, SessionError};
use remora_verbs::{Access, CompletionQueue, EMPTY, QpOptions, QueuePair, Ready, WorkCompletion};

pub use buffers::bytes_for;

use super::Size;
use super::program::Loads;
use super::serve::ServeArgs;
use crate::post::Direct;
use crate::serving::READS;
use crate::serving::kept::{Kept, Room, Shelf};
use crate::serving::program::Memory;

/// The server's table, and who puts into it what is there before clients come.
pub struct PrismShelf {
    table: PrismTable,
    loader: Loader,
    /// None once its queue pair has failed: the table is right as it is, and grows no more.
    growth: Option<Growth>,
}

#[cfg(test)]
impl PrismShelf {
    /// Tables that there are, and how many of them are given up.
    pub fn tables(&self) -> (u32, u32) {
        self.table.tables()
    }
}

/// What makes the table grow, and its way to the NIC that it sits on.
struct Growth {
    mover: Mover,
    pair: QueuePair<Ready>,
    _far: QueuePair<Ready>,
    cq: CompletionQueue,
    done: [WorkCompletion; 64],
}

impl Growth {
    fn new(table: &PrismTable, memory: &mut Memory) -> Result<Growth> {
        let arena = memory.region("what is moved", Mover::arena_len(), Access::LOCAL_WRITE)?;
        let mover =
            Mover::new(table.clone(), arena, MovePolicy::Proved).context("memory for what is moved")?;
        let needs = Mover::needs();
        let cq = memory.domain.context().create_cq(needs.completions * 2)?;
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            prism: true,
            ..QpOptions::default()
        };
        let pair = || memory.domain.create_qp(&cq, &cq, &options);
        let (pair, _far) = QueuePair::connect_pair(pair()?, pair()?)?;
        Ok(Growth { mover, pair, _far, cq, done: [EMPTY; 64] })
    }

    /// Some of what there is to move; true if there is more.
    fn work(&mut self) -> Result<bool> {
        let tell = |broken: Broken| anyhow::anyhow!("{broken}");
        let nic = &mut Direct(&mut self.pair);
        loop {
            let got = self.cq.poll(&mut self.done)?;
            for completion in &self.done[..got] {
                self.mover.complete(completion, nic).map_err(tell)?;
            }
            if got < self.done.len() {
                return self.mover.work(nic).map_err(tell);
            }
        }
    }
}

/// The server's program.
pub type PrismServer = Kept<PrismShelf>;

/// The program, with table and buffers in one region. The table may grow until a key in each buffer takes half of the slots.
pub fn open(args: &ServeArgs, size: Size, memory: &mut Memory) -> Result<PrismServer> {
    let Size { capacity, bytes, seed, .. } = size;
    let sizes = buffers::sizes(args, &size.contents, (capacity, bytes as u64))?;
    let buffers = sizes.iter().map(|(_, count)| u64::from(*count)).sum();
    let ServeArgs { max_key, max_value, .. } = *args;
    let config = Config { max_value, max_key, ..Config::for_keys(capacity, seed) };
    let config = config.growing_to(buffers);
    let room = Room {
        what: "table and buffers",
        table_len: config.table_len(),
        sizes: &sizes,
        clients: args.clients,
    };
    let mut server = Kept::open(&room, memory, |block, classes| {
        let (table, loader) = (PrismTable::new(config, block), Loader::new(classes.clone()));
        Ok(PrismShelf { table, loader, growth: None })
    })?;
    let shelf = server.shelf_mut();
    shelf.growth = Some(Growth::new(&shelf.table, memory)?);
    Ok(server)
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
        if Hello::decode(hello)?.design != remora_store::kv::Design::Prism {
            return Err(SessionError::OtherDesign(remora_store::kv::Design::Prism).into());
        }
        Ok(())
    }

    fn welcome(&mut self, _: &[u8], classes: &Classes) -> Result<Vec<u8>> {
        Ok(self.table.grant(classes).encode())
    }

    fn tend(&mut self) -> bool {
        let Some(growth) = &mut self.growth else { return false };
        growth.work().unwrap_or_else(|error| {
            tracing::error!("the table grows no more: {error:#}");
            self.growth = None;
            false
        })
    }
}

impl Loads for PrismServer {
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let PrismShelf { table, loader, .. } = self.shelf_mut();
        loader.put(table, key, value)
    }

    fn loaded(&mut self) -> Result<()> {
        self.post_all(|shelf, address| shelf.loader.has_used(address))
    }

    fn keys(&self) -> u64 {
        self.shelf().loader.keys()
    }
}
