//! A replica's program. Clients do their operations themselves: it connects them, and sees to what clients had that are gone: buffers (PRISM-RS)
//! or locks (ABDLOCK).

use anyhow::{Context as _, Result};
use store::block::{ClientId, Grant, Hello, Layout, Numbers, Welcome, abdlock, prism_rs};
use store::heap::{Classes, Reachable};
use store::{Broken, QueueNeeds};
use verbs::WorkCompletion;

use super::WINDOW;
use crate::post::{Batched, Later};
use crate::serving::kept::{Kept, Room, Shelf, shared};
use crate::serving::program::{Memory, Program};

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

/// Who a replica is, and the numbers that it gives to writers.
struct Desk {
    replica: usize,
    numbers: Numbers,
}

impl Desk {
    fn of(replica: usize) -> Result<Desk> {
        let numbers = Numbers::of(replica).context("replicas are numbered from 0 to 6")?;
        Ok(Desk { replica, numbers })
    }

    fn read(hello: &[u8]) -> Result<Hello> {
        Hello::decode(hello).context("this is a replica of blocks, and the client is none of it")
    }

    /// A number for a client that wants one.
    fn number(&mut self, hello: Hello) -> Result<Option<ClientId>> {
        let given = || self.numbers.give().context("this replica has given all its numbers to writers");
        hello.wants_number.then(given).transpose()
    }

    fn welcome(&self, number: Option<ClientId>, grant: Grant) -> Vec<u8> {
        Welcome { replica: self.replica, number, grant }.encode().to_vec()
    }

    fn full() -> anyhow::Error {
        anyhow::anyhow!("the replica has no room for another connection")
    }
}

/// The table of a replica of PRISM-RS.
pub struct PrismRs {
    table: prism_rs::Table,
    desk: Desk,
}

/// A replica of PRISM-RS, with all its memory: blocks that were never written.
///
/// # Errors
/// There is no room.
pub fn prism_rs(size: &Size, memory: &mut Memory) -> Result<Kept<PrismRs>> {
    let Size { replica, layout, clients } = *size;
    let desk = Desk::of(replica)?;
    let (len, count) = (layout.buffer_len() as u32, layout.buffers_for(clients, WINDOW));
    anyhow::ensure!(
        count as usize <= nic::MAX_RING_SLOTS as usize,
        "{count} buffers are more than the {} of a free list: ask for fewer --blocks",
        nic::MAX_RING_SLOTS
    );
    let room = Room { what: "blocks", table_len: layout.table_len(), sizes: &[(len, count)], clients };
    let mut kept = Kept::open(&room, memory, |block, _| {
        let table = prism_rs::Table::format(layout, block).context("memory for the table")?;
        Ok(PrismRs { table, desk })
    })?;
    kept.post_all(|_, _| false)?;
    Ok(kept)
}

impl Reachable for PrismRs {
    fn entries(&self) -> usize {
        self.table.entries()
    }

    fn buffers(&self, entry: usize, found: &mut dyn FnMut(u64)) {
        self.table.buffers(entry, found);
    }
}

impl Shelf for PrismRs {
    fn fits(&self, hello: &[u8]) -> Result<()> {
        Desk::read(hello).map(|_| ())
    }

    fn welcome(&mut self, hello: &[u8], classes: &Classes) -> Result<Vec<u8>> {
        let grant = self.table.grant(classes).context("blocks have buffers of one size")?;
        let number = self.desk.number(Desk::read(hello)?)?;
        Ok(self.desk.welcome(number, grant))
    }

    fn full(&self) -> anyhow::Error {
        Desk::full()
    }
}

/// A replica of ABDLOCK.
pub struct AbdLock {
    table: abdlock::Table,
    desk: Desk,
    /// Of the clients that are there.
    leases: Vec<u64>,
    clients: u32,
}

impl AbdLock {
    /// With all its memory: blocks that were never written.
    ///
    /// # Errors
    /// There is no room.
    pub fn open(size: &Size, memory: &mut Memory) -> Result<AbdLock> {
        let Size { replica, layout, clients } = *size;
        let desk = Desk::of(replica)?;
        let block = memory.region("blocks", abdlock::Table::len(layout), shared())?;
        let table = abdlock::Table::format(layout, block).context("memory for the blocks")?;
        Ok(AbdLock { table, desk, leases: Vec::new(), clients })
    }
}

impl Program for AbdLock {
    type Connection = u64;

    fn needs(&self) -> QueueNeeds {
        // The probe alone.
        QueueNeeds { send: 1, receive: 1, sges: 1, completions: 1 }
    }

    fn accept(&mut self, hello: &[u8], _: &mut Later) -> Result<(u64, Vec<u8>)> {
        let hello = Desk::read(hello)?;
        if self.leases.len() >= self.clients as usize {
            return Err(Desk::full());
        }
        let number = self.desk.number(hello)?;
        let grant = self.table.grant();
        self.leases.push(grant.lease);
        Ok((grant.lease, self.desk.welcome(number, grant)))
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
