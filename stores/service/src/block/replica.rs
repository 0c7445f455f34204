//! The program of a replica. Clients perform their operations themselves. The program connects them, and
//! recovers the buffers (PRISM-RS) or locks (ABDLOCK) of clients that are gone. Other replicas ask it for
//! its state, and read from it when they return empty.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remora_store::block::{
    Design, Grant, Hello, Layout, Membership, Purpose, Tag, Welcome, abdlock, prism_rs,
};
use remora_store::heap::{Class, Classes, Reachable};
use remora_store::{Broken, QueueNeeds};
use remora_verbs::{Full, WorkCompletion};

use super::WINDOW;
use crate::error::{Result, ensure, need};
use crate::post::{Batched, Direct, Later};
use crate::server::{BufferTable, HeapServer, Memory, Program, Sizes, shared};

/// The size of a replica.
#[derive(Copy, Clone, Debug)]
pub struct Size {
    /// Number and length of the blocks.
    pub layout: Layout,
    /// Maximum number of clients at the same time.
    pub clients: u32,
}

/// The blocks of a replica, in one design. The program answers each accepted client with a [`Grant`].
pub trait Blocks: Program {
    /// The design of the blocks.
    const DESIGN: Design;

    /// Initialises all memory, with blocks that were never written.
    ///
    /// # Errors
    /// There is not enough memory.
    fn open(size: &Size, memory: &mut Memory) -> Result<Self>
    where
        Self: Sized;

    /// Returns a grant for a peer that asks without becoming a client.
    ///
    /// # Errors
    /// Never, after the blocks were opened.
    fn grant(&mut self) -> Result<Grant>;

    /// Stores a block that was read from other replicas, before there are clients. Returns false if the
    /// block does not fit.
    fn install(&mut self, block: u64, tag: Tag, value: &[u8]) -> bool;

    /// Prepares the blocks for clients.
    ///
    /// # Errors
    /// The NIC failed.
    fn begin(&mut self) -> Result<()>;
}

/// A membership that two threads share.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Membership>>);

impl Shared {
    /// Returns a shared membership.
    pub fn new(membership: Membership) -> Shared {
        Shared(Arc::new(Mutex::new(membership)))
    }

    /// Locks the membership.
    pub fn lock(&self) -> MutexGuard<'_, Membership> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of a connected peer.
#[derive(Copy, Clone)]
pub enum Guest<C> {
    /// Connection of a client.
    Client(C),
    /// A replica that repairs itself. It stays connected when clients must leave, because its reads answer
    /// no client.
    Reader(C),
    /// A replica that asked for the state of the store.
    Visitor,
}

impl<C: Copy> Guest<C> {
    fn connection(self) -> Option<C> {
        match self {
            Guest::Client(connection) | Guest::Reader(connection) => Some(connection),
            Guest::Visitor => None,
        }
    }
}

/// A replica: its blocks and its membership.
pub struct Replica<B> {
    blocks: B,
    membership: Shared,
}

impl<B: Blocks> Replica<B> {
    /// Returns a replica with these blocks.
    pub fn new(blocks: B, membership: Shared) -> Replica<B> {
        Replica { blocks, membership }
    }
}

impl<B: Blocks> Program for Replica<B> {
    type Connection = Guest<B::Connection>;

    fn needs(&self) -> QueueNeeds {
        self.blocks.needs()
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Self::Connection, Vec<u8>)> {
        let message = Hello::decode(hello);
        let message = need!(message, Peer, "this is a replica of blocks, and the client is none of it");
        let mut membership = self.membership.lock();
        let replicas = membership.state().replicas;
        ensure!(
            message.replicas == replicas,
            Config,
            "this store has {replicas} replicas, not {}: name all of them",
            message.replicas
        );
        let mut number = None;
        let mut guest = Guest::Visitor;
        let grant = match message.purpose {
            Purpose::Ask { replica, incarnation } => {
                membership.asked(replica, incarnation);
                self.blocks.grant()?
            }
            Purpose::Mark { replica, incarnation, mark } => {
                membership.marked(replica, incarnation, mark)?;
                self.blocks.grant()?
            }
            Purpose::Repair { replica, incarnation, store } => {
                membership.replaced(replica, incarnation, store)?;
                let (connection, grant) = self.blocks.accept(hello, nic)?;
                guest = Guest::Reader(connection);
                need!(Grant::decode(&grant), Peer, "a grant")
            }
            Purpose::Use { wants_number } => {
                membership.serves()?;
                let (connection, grant) = self.blocks.accept(hello, nic)?;
                match wants_number.then(|| membership.number()).transpose() {
                    Ok(given) => number = given,
                    Err(misfit) => {
                        self.blocks.disconnect(connection);
                        return Err(misfit.into());
                    }
                }
                guest = Guest::Client(connection);
                need!(Grant::decode(&grant), Peer, "a grant")
            }
        };
        Ok((guest, Welcome { state: membership.state(), number, grant }.encode()))
    }

    fn gives_way(&self, guest: Self::Connection, hello: &[u8]) -> bool {
        let Some(Hello { replicas, purpose: Purpose::Repair { replica, incarnation, store } }) =
            Hello::decode(hello)
        else {
            return false;
        };
        let mut membership = self.membership.lock().clone();
        let comes = replicas == membership.state().replicas
            && membership.replaced(replica, incarnation, store).is_ok();
        comes && matches!(guest, Guest::Client(_))
    }

    fn is_brief(&self, guest: Self::Connection) -> bool {
        guest.connection().is_none()
    }

    fn handle(
        &mut self,
        guest: Self::Connection,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken> {
        let Some(connection) = guest.connection() else { return Ok(()) };
        self.blocks.handle(connection, completion, nic)
    }

    fn disconnect(&mut self, guest: Self::Connection) {
        if let Some(connection) = guest.connection() {
            self.blocks.disconnect(connection);
        }
    }

    fn tidy(&mut self) -> bool {
        self.blocks.tidy()
    }

    fn tell(&mut self, guest: Self::Connection, nic: &mut Direct<'_>) -> Result<(), Broken> {
        guest.connection().map_or(Ok(()), |connection| self.blocks.tell(connection, nic))
    }

    fn is_late(&self, guest: Self::Connection) -> bool {
        guest.connection().is_some_and(|connection| self.blocks.is_late(connection))
    }

    fn is_over(&self, guest: Self::Connection) -> bool {
        guest.connection().is_some_and(|connection| self.blocks.is_over(connection))
    }
}

/// The table of a replica of PRISM-RS.
pub struct PrismRs {
    table: prism_rs::Table,
    classes: Classes,
    /// The buffers in which blocks were installed.
    used: Vec<bool>,
}

impl PrismRs {
    fn class(&self) -> &Class {
        &self.classes.all()[0]
    }
}

impl Reachable for PrismRs {
    fn entries(&self) -> usize {
        self.table.entries()
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        self.table.buffers(entry, report);
    }
}

impl BufferTable for PrismRs {
    fn fits(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn welcome(&mut self, _: &[u8], classes: &Classes) -> Result<Vec<u8>> {
        let grant = need!(self.table.grant(classes), Config, "blocks have buffers of one size");
        Ok(grant.encode())
    }
}

impl Blocks for HeapServer<PrismRs> {
    const DESIGN: Design = Design::PrismRs;

    fn open(size: &Size, memory: &mut Memory) -> Result<HeapServer<PrismRs>> {
        let Size { layout, clients } = *size;
        let len = layout.buffer_len() as u32;
        let count = layout.buffers_for(clients, WINDOW);
        ensure!(
            count as usize <= remora_nic::MAX_RING_SLOTS as usize,
            Config,
            "{count} buffers are more than the {} of a free list: ask for fewer --blocks",
            remora_nic::MAX_RING_SLOTS
        );
        let buffers = [(len, count)];
        let sizes = Sizes { what: "blocks", table_len: layout.table_len(), buffers: &buffers, clients };
        HeapServer::open(&sizes, memory, |block, classes| {
            let table = need!(prism_rs::Table::format(layout, block), Config, "memory for the table");
            Ok(PrismRs { table, classes: classes.clone(), used: vec![false; count as usize] })
        })
    }

    fn grant(&mut self) -> Result<Grant> {
        let PrismRs { table, classes, .. } = self.table();
        Ok(need!(table.grant(classes), Config, "blocks have buffers of one size"))
    }

    fn install(&mut self, block: u64, tag: Tag, value: &[u8]) -> bool {
        let program = self.table_mut();
        let class = *program.class();
        let buffer = block as u32;
        let done = program.table.install(block, tag, value, &class, buffer);
        if done && tag != Tag::NEVER {
            program.used[buffer as usize] = true;
        }
        done
    }

    fn begin(&mut self) -> Result<()> {
        self.post_all(|program, address| {
            program.class().index(address).is_some_and(|buffer| program.used[buffer as usize])
        })
    }
}

/// A replica of ABDLOCK.
pub struct AbdLock {
    table: abdlock::Table,
    /// Leases of the connected clients.
    leases: Vec<u64>,
    clients: u32,
}

impl Blocks for AbdLock {
    const DESIGN: Design = Design::AbdLock;

    fn open(size: &Size, memory: &mut Memory) -> Result<AbdLock> {
        let Size { layout, clients } = *size;
        let block = memory.region("blocks", abdlock::Table::len(layout), shared())?;
        let table = need!(abdlock::Table::format(layout, block), Config, "memory for the blocks");
        Ok(AbdLock { table, leases: Vec::new(), clients })
    }

    fn grant(&mut self) -> Result<Grant> {
        Ok(self.table.grant())
    }

    fn install(&mut self, block: u64, tag: Tag, value: &[u8]) -> bool {
        self.table.install(block, tag, value)
    }

    fn begin(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Program for AbdLock {
    type Connection = u64;

    fn needs(&self) -> QueueNeeds {
        // The queue pair carries only the probe of the connection.
        QueueNeeds { send: 1, receive: 1, sges: 1, completions: 1 }
    }

    fn accept(&mut self, _: &[u8], _: &mut Later) -> Result<(u64, Vec<u8>)> {
        if self.leases.len() >= self.clients as usize {
            return Err(Full::clients(self.clients).into());
        }
        let grant = self.table.grant();
        self.leases.push(grant.lease);
        Ok((grant.lease, grant.encode()))
    }

    fn handle(&mut self, _: u64, completion: &WorkCompletion, _: &mut Batched<'_, '_>) -> Result<(), Broken> {
        match completion.status {
            remora_verbs::Status::Success => Ok(()),
            status => Err(Broken::Completion(status)),
        }
    }

    fn disconnect(&mut self, lease: u64) {
        self.leases.retain(|lives| *lives != lease);
        self.table.break_locks(|lease| self.leases.contains(&lease));
    }
}
