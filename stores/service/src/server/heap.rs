//! The program of a store whose buffers come from a heap. Clients do their operations themselves: it takes
//! them on, posts the buffers that come back, and looks for those that clients took with them when they died.

use remora_store::heap::{Class, Classes, Keeper, KeeperConfig, Peer, Reachable};
use remora_store::{Broken, QueueNeeds, Registered};
use remora_verbs::{Access, FreeListOptions, Full, WorkCompletion};

use super::lists::Posted;
use super::program::{Memory, Program};
use crate::Result;
use crate::error::need;
use crate::post::{Batched, Direct, Later};

/// A store's table, whose entries lead to buffers.
pub trait BufferTable: Reachable {
    /// Does a client that says `hello` fit?
    ///
    /// # Errors
    /// It does not; it is told why.
    fn fits(&self, hello: &[u8]) -> Result<()>;

    /// What a client that fits must know, if the server is not full.
    ///
    /// # Errors
    /// The table can take no more.
    fn welcome(&mut self, hello: &[u8], classes: &Classes) -> Result<Vec<u8>>;

    /// A client that was welcomed was never connected.
    fn abandon(&mut self, welcome: &[u8]) {
        let _ = welcome;
    }

    /// Does some of what the table needs beside; true if there is more that should not wait.
    fn tend(&mut self) -> bool {
        false
    }
}

/// How much memory a store takes.
pub struct Sizes<'a> {
    /// What it is for, where there is too little of it.
    pub what: &'a str,
    /// Bytes of the table.
    pub table_len: usize,
    /// Bytes of buffers, and how many of each.
    pub buffers: &'a [(u32, u32)],
    /// Clients at a time.
    pub clients: u32,
}

/// A table with its buffers, and who keeps them.
pub struct HeapServer<S> {
    table: S,
    keeper: Keeper,
    lists: Posted,
    needs: QueueNeeds,
    clients: u32,
}

/// What clients may do with table and buffers.
pub fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

impl<S: BufferTable> HeapServer<S> {
    /// One region with the table and the buffers behind it. No buffer is [posted](HeapServer::post_all) yet.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn open(
        sizes: &Sizes<'_>,
        memory: &mut Memory,
        open: impl FnOnce(Registered, &Classes) -> Result<S>,
    ) -> Result<HeapServer<S>> {
        let mut offset = sizes.table_len.next_multiple_of(4096);
        let buffers: usize = sizes.buffers.iter().map(|(size, count)| *size as usize * *count as usize).sum();
        let block = memory.region(sizes.what, offset + buffers, shared())?;
        let region = need!(memory.regions.last(), Config, "the region");
        let (mut lists, mut classes) = (Vec::new(), Vec::new());
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

    /// Posts all buffers, except those that the table says are in use.
    ///
    /// # Errors
    /// A list takes no more.
    pub fn post_all(&mut self, keep: impl Fn(&S, u64) -> bool) -> Result<()> {
        Ok(self.keeper.post_all(&mut self.lists, |address| keep(&self.table, address))?)
    }

    /// The table.
    pub fn table(&self) -> &S {
        &self.table
    }

    /// The table, to put in what is there before clients come.
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
