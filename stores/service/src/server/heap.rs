//! The program of a store whose buffers come from a heap. Clients perform their operations themselves. The
//! program accepts clients, posts returned buffers, and finds buffers that dead clients leaked.

use remora_store::heap::{Class, Classes, Keeper, KeeperConfig, Peer, Reachable};
use remora_store::{Broken, QueueNeeds, Registered};
use remora_verbs::{Access, FreeListOptions, Full, WorkCompletion};

use super::lists::Posted;
use super::program::{Memory, Program};
use crate::Result;
use crate::error::need;
use crate::post::{Batched, Direct, Later};

/// The table of a store, whose entries point to buffers.
pub trait BufferTable: Reachable {
    /// Checks that a client that sent `hello` fits the table.
    ///
    /// # Errors
    /// The client does not fit; it receives the reason.
    fn fits(&self, hello: &[u8]) -> Result<()>;

    /// Returns the grant for a client that fits, if the server is not full.
    ///
    /// # Errors
    /// The table can take no more clients.
    fn welcome(&mut self, hello: &[u8], classes: &Classes) -> Result<Vec<u8>>;

    /// Notes that a client that got this grant was never connected.
    fn abandon(&mut self, welcome: &[u8]) {
        let _ = welcome;
    }

    /// Performs a part of the table's own work. Returns true if there is more that should not wait.
    fn tend(&mut self) -> bool {
        false
    }
}

/// The memory that a store needs.
pub struct Sizes<'a> {
    /// Purpose of the memory, for the error message.
    pub what: &'a str,
    /// Bytes of the table.
    pub table_len: usize,
    /// Bytes per buffer and number of buffers, for each size.
    pub buffers: &'a [(u32, u32)],
    /// Maximum number of clients at the same time.
    pub clients: u32,
}

/// A table with its buffers, and the keeper of the buffers.
pub struct HeapServer<S> {
    table: S,
    keeper: Keeper,
    lists: Posted,
    needs: QueueNeeds,
    clients: u32,
}

/// Returns the access rights of clients to table and buffers.
pub fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

impl<S: BufferTable> HeapServer<S> {
    /// Registers one region with the table and the buffers after it. No buffer is
    /// [posted](HeapServer::post_all) yet.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn open(
        sizes: &Sizes<'_>,
        memory: &mut Memory,
        open: impl FnOnce(Registered, &Classes) -> Result<S>,
    ) -> Result<HeapServer<S>> {
        let mut offset = sizes.table_len.next_multiple_of(4096);
        let buffers: usize = sizes.buffers.iter().map(|(size, count)| *size as usize * *count as usize).sum();
        let block = memory.region(sizes.what, offset + buffers, shared())?;
        let region = need!(memory.regions.last(), Config, "the region");
        let mut lists = Vec::new();
        let mut classes = Vec::new();
        for (size, count) in sizes.buffers.iter().copied() {
            let options = FreeListOptions { offset, size, count, engine: 0 };
            let list = memory.domain.create_free_list(region, &options)?;
            classes.push(Class { list: list.number(), base: list.address(0), size, count });
            offset += size as usize * count as usize;
            lists.push(list);
        }
        let classes = need!(Classes::new(classes), Config, "classes of different sizes");
        let table = open(block, &classes)?;
        let keeping = KeeperConfig { peers: sizes.clients };
        let local = memory.region("messages", keeping.local_len(), Access::LOCAL_WRITE)?;
        let keeper = need!(Keeper::new(keeping, classes, local), Config, "memory for messages");
        Ok(HeapServer { table, keeper, lists: Posted(lists), needs: keeping.needs(), clients: sizes.clients })
    }

    /// Posts all buffers, except those for which `keep` returns true.
    ///
    /// # Errors
    /// A free list is full.
    pub fn post_all(&mut self, keep: impl Fn(&S, u64) -> bool) -> Result<()> {
        Ok(self.keeper.post_all(&mut self.lists, |address| keep(&self.table, address))?)
    }

    /// Returns the table.
    pub fn table(&self) -> &S {
        &self.table
    }

    /// Returns the table, for instance to load its initial contents.
    pub fn table_mut(&mut self) -> &mut S {
        &mut self.table
    }
}

impl<S: BufferTable> Program for HeapServer<S> {
    type Connection = Peer;

    fn needs(&self) -> QueueNeeds {
        self.needs
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Peer, Vec<u8>)> {
        self.table.fits(hello)?;
        if self.keeper.is_full() {
            return Err(Full::clients(self.clients).into());
        }
        let welcome = self.table.welcome(hello, self.keeper.classes())?;
        let peer = self.keeper.accept(nic).ok_or_else(|| Full::clients(self.clients))?;
        Ok((peer, welcome))
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

    fn abandon(&mut self, peer: Peer, welcome: &[u8]) {
        self.table.abandon(welcome);
        self.keeper.disconnect(peer);
    }

    fn tidy(&mut self) -> bool {
        self.keeper.work(&self.table, &mut self.lists);
        self.table.tend()
    }

    fn tell(&mut self, peer: Peer, nic: &mut Direct<'_>) -> Result<(), Broken> {
        self.keeper.notify(peer, nic)
    }

    fn is_late(&self, peer: Peer) -> bool {
        self.keeper.is_late(peer)
    }
}
