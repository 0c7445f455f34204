//! A server, a client and the model of the connection between them.

use super::wire::{CopyOrder, Side, Wire, block};
use crate::kv::farm::{self, Farm, FarmTable};
use crate::kv::pilaf::{self, Pilaf, PilafTable};
use crate::kv::two_sided::{self, TwoSided, TwoSidedTable};
use crate::kv::{
    Client, ClientConfig, Connection, Finished, Grant, Hello, Lookup, Outcome, Server, ServerConfig, Slot,
    Table,
};
use std::cell::RefCell;
use std::rc::Rc;

/// A design, over which the tests are generic.
pub(crate) trait Arm {
    type Lookup: Lookup;
    type Table: Table;
    const ORDER: CopyOrder;
    /// Returns a table for `keys` keys, with `extent_bytes` bytes for objects.
    fn table(keys: u32, extent_bytes: usize, wire: &mut Wire) -> Self::Table;
    fn free_lines(table: &Self::Table) -> u32;
}

pub(crate) struct PilafArm;
pub(crate) struct FarmArm;
pub(crate) struct TwoSidedArm;

pub(crate) const SEED: u64 = 0x0123_4567_89ab_cdef;

impl Arm for PilafArm {
    type Lookup = Pilaf;
    type Table = PilafTable;
    const ORDER: CopyOrder = CopyOrder::WordsShuffled;

    fn table(keys: u32, extent_bytes: usize, wire: &mut Wire) -> PilafTable {
        let config = pilaf::Config::for_keys(keys, SEED);
        let index = wire.register(Side::Server, config.index_len());
        PilafTable::new(config, index, wire.register(Side::Server, extent_bytes))
    }

    fn free_lines(table: &PilafTable) -> u32 {
        table.free_lines()
    }
}

impl Arm for FarmArm {
    type Lookup = Farm;
    type Table = FarmTable;
    const ORDER: CopyOrder = CopyOrder::LinesShuffled;

    fn table(keys: u32, extent_bytes: usize, wire: &mut Wire) -> FarmTable {
        let config = farm::Config::for_keys(keys, SEED);
        let index = wire.register(Side::Server, config.index_len());
        FarmTable::new(config, index, wire.register(Side::Server, extent_bytes))
    }

    fn free_lines(table: &FarmTable) -> u32 {
        table.free_lines()
    }
}

impl Arm for TwoSidedArm {
    type Lookup = TwoSided;
    type Table = TwoSidedTable;
    const ORDER: CopyOrder = CopyOrder::WordsShuffled;

    fn table(keys: u32, extent_bytes: usize, wire: &mut Wire) -> TwoSidedTable {
        let config = two_sided::Config { keys, hash_seed: SEED };
        TwoSidedTable::new(config, wire.register(Side::Server, extent_bytes))
    }

    fn free_lines(table: &TwoSidedTable) -> u32 {
        table.free_lines()
    }
}

/// The result of an operation, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub slot: Slot,
    pub value: Option<Vec<u8>>,
    pub outcome: Outcome<'static>,
    pub round_trips: u32,
    pub tries: u32,
}

impl Ended {
    fn of(finished: Finished<'_>) -> Ended {
        let Finished { slot, outcome, round_trips, tries, .. } = finished;
        let (value, outcome) = match outcome {
            Outcome::Value(value) => (Some(value.to_vec()), Outcome::Done),
            Outcome::Done => (None, Outcome::Done),
            Outcome::Absent => (None, Outcome::Absent),
            Outcome::Refused(refusal) => (None, Outcome::Refused(refusal)),
            Outcome::TooLong => (None, Outcome::TooLong),
            Outcome::Contended => (None, Outcome::Contended),
            Outcome::Failed(broken) => (None, Outcome::Failed(broken)),
        };
        Ended { slot, value, outcome, round_trips, tries }
    }
}

pub(crate) struct World<A: Arm> {
    pub server: Rc<RefCell<Server<A::Table>>>,
    pub connection: Connection,
    pub client: Client<A::Lookup>,
    pub hello: Hello,
    pub grant: Grant,
    pub wire: Wire,
}

impl<A: Arm> World<A> {
    pub(crate) fn new(
        client: ClientConfig,
        server: ServerConfig,
        keys: u32,
        extents: usize,
        seed: u64,
    ) -> World<A> {
        let mut wire = Wire::new(client.needs(), server.needs(), A::ORDER, seed);
        let table = A::table(keys, extents, &mut wire);
        let local = wire.register(Side::Server, server.local_len());
        let staging = wire.register(Side::Server, server.staging_len());
        let mut server = Server::new(table, server, local, staging).unwrap();
        let arena = block(900, client.arena_len::<A::Lookup>());
        wire.add(Side::Client, arena.clone());
        let hello = client.hello::<A::Lookup>(&arena);
        let (connection, grant) = server.accept(&hello, wire.end(Side::Server)).unwrap();
        let mut client = Client::new(client, &grant, arena).unwrap();
        client.start(wire.end(Side::Client)).unwrap();
        World { server: Rc::new(RefCell::new(server)), connection, client, hello, grant, wire }
    }

    /// Performs a random possible step. Returns true if there was one, and the operation that it ended.
    pub(crate) fn step(&mut self, between: impl FnMut()) -> (bool, Option<Ended>) {
        let first = self.wire.below(4);
        let mut between = between;
        for choice in (first..first + 4).map(|choice| choice % 4) {
            match choice {
                0 if self.wire.run(Side::Client, &mut between) => return (true, None),
                1 if self.wire.run(Side::Server, || ()) => return (true, None),
                2 if self.step_server() => return (true, None),
                3 => {
                    if let Some(completion) = self.wire.end(Side::Client).poll() {
                        let end = &mut self.wire.ends[Side::Client as usize];
                        let ended = self.client.complete(&completion, end).unwrap();
                        return (true, ended.map(Ended::of));
                    }
                }
                _ => {}
            }
        }
        (false, None)
    }

    /// Runs until an operation ends.
    pub(crate) fn finish(&mut self) -> Ended {
        loop {
            let (moved, ended) = self.step(|| ());
            if let Some(ended) = ended {
                return ended;
            }
            assert!(moved, "everything is still and no operation has ended");
        }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Ended {
        self.client.get(key, &mut self.wire.ends[0]).unwrap();
        self.finish()
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Ended {
        self.client.put(key, value, &mut self.wire.ends[0]).unwrap();
        self.finish()
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Ended {
        self.client.delete(key, &mut self.wire.ends[0]).unwrap();
        self.finish()
    }

    /// Delivers the server's next completion, if there is one.
    pub(crate) fn step_server(&mut self) -> bool {
        let Some(completion) = self.wire.end(Side::Server).poll() else { return false };
        let end = &mut self.wire.ends[Side::Server as usize];
        self.server.borrow_mut().handle(self.connection, &completion, end).unwrap();
        true
    }

    /// Executes every posted request.
    pub(crate) fn settle_nic(&mut self) {
        while self.wire.run(Side::Client, || ()) || self.wire.run(Side::Server, || ()) {}
    }

    /// Runs until nothing changes any more.
    pub(crate) fn settle(&mut self) {
        while self.step(|| ()).0 {}
    }

    pub(crate) fn free_lines(&self) -> u32 {
        A::free_lines(self.server.borrow().table())
    }
}

/// Runs a test body for every design.
#[macro_export]
macro_rules! on_every_design {
    ($body:ident) => {
        $body::<$crate::kv::tests::world::PilafArm>();
        $body::<$crate::kv::tests::world::FarmArm>();
        $body::<$crate::kv::tests::world::TwoSidedArm>();
    };
}
