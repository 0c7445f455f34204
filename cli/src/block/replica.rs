//! A replica's program. Clients do their operations themselves: it connects them, posts the buffers that come back, and sees to what clients
//! had that are gone: buffers (PRISM-RS) or locks (ABDLOCK).

use anyhow::{Context as _, Result, bail};
use store::block::{Design, Grant, Hello, Layout, Numbers, Welcome, abdlock, prism_rs};
use store::heap::{Class, Classes, Keeper, KeeperConfig, Peer};
use store::{Broken, QueueNeeds};
use verbs::{Access, FreeListOptions, WorkCompletion};

use super::WINDOW;
use crate::post::{Batched, Direct, Later};
use crate::serving::lists::Posted;
use crate::serving::program::{Memory, Program};

/// What clients may do with a replica's memory.
fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// How large a replica is.
#[derive(Copy, Clone, Debug)]
pub struct Size {
    /// Its number.
    pub replica: usize,
    /// Its blocks.
    pub layout: Layout,
    /// Clients at a time.
    pub clients: u32,
}

/// What a design's replica does.
pub trait Store: Sized {
    /// What it calls a client.
    type Connection: Copy;
    /// Which design.
    const DESIGN: Design;

    /// Blocks that were never written.
    ///
    /// # Errors
    /// There is no room.
    fn open(size: &Size, memory: &mut Memory) -> Result<Self>;

    /// What each client's queue pair must hold.
    fn needs(&self) -> QueueNeeds;

    /// Takes a client on; None if there are enough.
    fn accept(&mut self, nic: &mut Later) -> Option<(Self::Connection, Grant)>;

    /// As [`Program::handle`].
    ///
    /// # Errors
    /// The client is gone.
    fn handle(
        &mut self,
        connection: Self::Connection,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken>;

    /// A client is gone, its queue pair with it.
    fn disconnect(&mut self, connection: Self::Connection);

    /// As [`Program::tidy`].
    fn tidy(&mut self) {}

    /// As [`Program::tell`].
    ///
    /// # Errors
    /// The client is gone.
    fn tell(&mut self, connection: Self::Connection, nic: &mut Direct<'_>) -> Result<(), Broken> {
        let _ = (connection, nic);
        Ok(())
    }

    /// As [`Program::is_late`].
    fn is_late(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// A replica.
pub struct Replica<S> {
    store: S,
    replica: usize,
    numbers: Numbers,
}

impl<S: Store> Replica<S> {
    /// With all its memory.
    ///
    /// # Errors
    /// There is no room.
    pub fn open(size: &Size, memory: &mut Memory) -> Result<Replica<S>> {
        let numbers = Numbers::of(size.replica).context("replicas are numbered from 0 to 6")?;
        Ok(Replica { store: S::open(size, memory)?, replica: size.replica, numbers })
    }
}

impl<S: Store> Program for Replica<S> {
    type Connection = S::Connection;

    fn needs(&self) -> QueueNeeds {
        self.store.needs()
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(S::Connection, Vec<u8>)> {
        let hello =
            Hello::decode(hello).context("this is a replica of blocks, and the client is none of it")?;
        let number = match hello.wants_number {
            true => Some(self.numbers.give().context("this replica has given all its numbers to writers")?),
            false => None,
        };
        let Some((connection, grant)) = self.store.accept(nic) else {
            bail!("the replica has no room for another connection");
        };
        Ok((connection, Welcome { replica: self.replica, number, grant }.encode().to_vec()))
    }

    fn handle(
        &mut self,
        connection: S::Connection,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken> {
        self.store.handle(connection, completion, nic)
    }

    fn disconnect(&mut self, connection: S::Connection) {
        self.store.disconnect(connection);
    }

    fn tidy(&mut self) {
        self.store.tidy();
    }

    fn tell(&mut self, connection: S::Connection, nic: &mut Direct<'_>) -> Result<(), Broken> {
        self.store.tell(connection, nic)
    }

    fn is_late(&self, connection: S::Connection) -> bool {
        self.store.is_late(connection)
    }
}

/// A replica of PRISM-RS.
pub struct PrismRs {
    table: prism_rs::Table,
    keeper: Keeper,
    lists: Posted,
    needs: QueueNeeds,
}

impl Store for PrismRs {
    type Connection = Peer;
    const DESIGN: Design = Design::PrismRs;

    fn open(size: &Size, memory: &mut Memory) -> Result<PrismRs> {
        let Size { layout, clients, .. } = *size;
        let offset = layout.table_len().next_multiple_of(4096);
        let (len, count) = (layout.buffer_len() as u32, layout.buffers_for(clients, WINDOW));
        anyhow::ensure!(
            count as usize <= nic::MAX_RING_SLOTS as usize,
            "{count} buffers are more than the {} of a free list: ask for fewer --blocks",
            nic::MAX_RING_SLOTS
        );
        let block = memory.region("blocks", offset + len as usize * count as usize, shared())?;
        let region = memory.regions.last().context("the region")?;
        let options = FreeListOptions { offset, size: len, count, engine: 0 };
        let list = memory.domain.create_free_list(region, &options)?;
        let class = Class { list: list.number(), base: list.address(0), size: len, count };
        let classes = Classes::new(vec![class]).context("one size")?;
        let keeping = KeeperConfig { peers: clients };
        let local = memory.region("messages", keeping.local_len(), Access::LOCAL_WRITE)?;
        let keeper = Keeper::new(keeping, classes, local).context("memory for messages")?;
        let mut lists = Posted(vec![list]);
        keeper.post_all(&mut lists, |_| false)?;
        let table = prism_rs::Table::format(layout, block).context("memory for the table")?;
        Ok(PrismRs { table, keeper, lists, needs: keeping.needs() })
    }

    fn needs(&self) -> QueueNeeds {
        self.needs
    }

    fn accept(&mut self, nic: &mut Later) -> Option<(Peer, Grant)> {
        let grant = self.table.grant(self.keeper.classes())?;
        Some((self.keeper.accept(nic)?, grant))
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

/// A replica of ABDLOCK.
pub struct AbdLock {
    table: abdlock::Table,
    /// Of the clients that are there.
    leases: Vec<u64>,
    clients: u32,
}

impl Store for AbdLock {
    type Connection = u64;
    const DESIGN: Design = Design::AbdLock;

    fn open(size: &Size, memory: &mut Memory) -> Result<AbdLock> {
        let block = memory.region("blocks", abdlock::Table::len(size.layout), shared())?;
        let table = abdlock::Table::format(size.layout, block).context("memory for the blocks")?;
        Ok(AbdLock { table, leases: Vec::new(), clients: size.clients })
    }

    fn needs(&self) -> QueueNeeds {
        // The probe alone.
        QueueNeeds { send: 1, receive: 1, sges: 1, completions: 1 }
    }

    fn accept(&mut self, _: &mut Later) -> Option<(u64, Grant)> {
        if self.leases.len() >= self.clients as usize {
            return None;
        }
        let grant = self.table.grant();
        self.leases.push(grant.lease);
        Some((grant.lease, grant))
    }

    fn handle(&mut self, _: u64, completion: &WorkCompletion, _: &mut Batched<'_, '_>) -> Result<(), Broken> {
        match completion.status {
            verbs::Status::Success => Ok(()),
            status => Err(Broken::Completion(status)),
        }
    }

    fn disconnect(&mut self, lease: u64) {
        self.leases.retain(|lives| *lives != lease);
        self.table.break_locks(|lease| self.leases.contains(&lease));
    }
}
