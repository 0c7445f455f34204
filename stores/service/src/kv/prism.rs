//! The PRISM-KV server. Clients perform their operations themselves, so its program only posts returned
//! buffers, finds buffers that dead clients leaked, and makes the table grow.

mod buffers;

use remora_store::heap::{Classes, Reachable};
use remora_store::kv::prism::{Config, Loader, MovePolicy, Mover, PrismTable};
use remora_store::kv::{Hello, Refusal, SessionError};
use remora_verbs::{Access, CompletionQueue, EMPTY, QpOptions, QueuePair, Ready, WorkCompletion};

pub(crate) use buffers::bytes_for;

use super::program::Loads;
use super::size::{Limits, Size};
use crate::Result;
use crate::error::need;
use crate::post::Direct;
use crate::server::{BufferTable, HeapServer, Memory, READS, Sizes};

/// The server's table, and the loader of its initial contents.
pub struct PrismTableProgram {
    table: PrismTable,
    loader: Loader,
    /// The growth of the table; `None` after its queue pair has failed. The table then stays correct, but no
    /// longer grows.
    growth: Option<Growth>,
}

#[cfg(test)]
impl PrismTableProgram {
    /// Returns the number of tables, and the number of those that are no longer in use.
    pub fn tables(&self) -> (u32, u32) {
        self.table.tables()
    }
}

/// The mover that makes the table grow, and its queue pair to the server's own NIC.
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
            need!(Mover::new(table.clone(), arena, MovePolicy::Proved), Config, "memory for what is moved");
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

    /// Moves some slots. Returns true if there are more.
    fn work(&mut self) -> Result<bool> {
        let nic = &mut Direct(&mut self.pair);
        loop {
            let got = self.cq.poll(&mut self.done)?;
            for completion in &self.done[..got] {
                self.mover.complete(completion, nic)?;
            }
            if got < self.done.len() {
                return Ok(self.mover.work(nic)?);
            }
        }
    }
}

/// The program of a PRISM-KV server.
pub type PrismServer = HeapServer<PrismTableProgram>;

/// Creates the program, with table and buffers in one region. The table may grow until one key per buffer
/// takes half of the slots.
pub(crate) fn open(limits: &Limits, size: Size, memory: &mut Memory) -> Result<PrismServer> {
    let Size { capacity, bytes, seed, .. } = size;
    let buffers = buffers::sizes(limits, &size.contents, capacity, bytes as u64)?;
    let count = buffers.iter().map(|(_, count)| u64::from(*count)).sum();
    let Limits { max_key, max_value, .. } = *limits;
    let config = Config { max_value, max_key, ..Config::for_keys(capacity, seed) };
    let config = config.growing_to(count);
    let sizes = Sizes {
        what: "table and buffers",
        table_len: config.table_len(),
        buffers: &buffers,
        clients: limits.clients,
    };
    let mut server = HeapServer::open(&sizes, memory, |block, classes| {
        let table = PrismTable::new(config, block);
        let loader = Loader::new(classes.clone());
        Ok(PrismTableProgram { table, loader, growth: None })
    })?;
    let program = server.table_mut();
    program.growth = Some(Growth::new(&program.table, memory)?);
    Ok(server)
}

impl Reachable for PrismTableProgram {
    fn entries(&self) -> usize {
        self.table.entries()
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        self.table.buffers(entry, report);
    }
}

impl BufferTable for PrismTableProgram {
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
            tracing::error!("the table grows no more: {}", error.chain());
            self.growth = None;
            false
        })
    }
}

impl Loads for PrismServer {
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let PrismTableProgram { table, loader, .. } = self.table_mut();
        loader.put(table, key, value)
    }

    fn loaded(&mut self) -> Result<()> {
        self.post_all(|program, address| program.loader.has_used(address))
    }

    fn keys(&self) -> u64 {
        self.table().loader.keys()
    }
}
