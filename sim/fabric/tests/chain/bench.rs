//! The test bed of these tests: one node with loopback queue pairs and a region.

use std::cell::Cell;

use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_nic::wqe::{SLOT, WqeOpcode, flag};
use remora_nic::{Command, Fetching, Flags, Operation, Payload, Remote, Sge, WorkCompletion, WorkRequest};

pub(crate) const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };
pub(crate) const SILENT: Flags = Flags { signaled: false, fence: false, solicited: false };

pub(crate) struct Bench {
    pub world: World,
    pub data: Region,
}

/// A loopback queue pair with its completion queue and its code region.
pub(crate) struct Chain {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub code: Region,
    posted: Cell<u64>,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let mut world = World::new(&Config::default());
        let data = world.register(0, 1 << 16, ALL);
        Bench { world, data }
    }

    /// Creates a loopback queue pair of 64 slots.
    pub(crate) fn chain(&mut self, fetching: Fetching) -> Chain {
        self.chain_of(fetching, 64)
    }

    /// Creates a loopback queue pair of `send_slots` slots.
    pub(crate) fn chain_of(&mut self, fetching: Fetching, send_slots: u32) -> Chain {
        let settings = Settings { fetching, send_slots, receive_max_sge: 16, ..Settings::default() };
        let cq = self.world.create_counted_cq(0, 256);
        let qp = self.world.create_loopback(cq, cq, &settings).unwrap();
        let code = self.world.register_code(qp, ALL);
        Chain { qp, cq, code, posted: Cell::new(0) }
    }

    /// Posts a work request and returns its slot.
    pub(crate) fn put(&mut self, chain: &Chain, operation: Operation, list: &[Sge], flags: Flags) -> u64 {
        self.put_as(chain, 0, operation, list, flags)
    }

    /// Like [`put`](Bench::put), with an id.
    pub(crate) fn put_as(
        &mut self,
        chain: &Chain,
        id: u64,
        operation: Operation,
        list: &[Sge],
        flags: Flags,
    ) -> u64 {
        let request = WorkRequest { id, operation, payload: Payload::Sges(list), flags };
        self.world.post_quietly(chain.qp, &request).unwrap();
        chain.posted.set(chain.posted.get() + 1);
        chain.posted.get() - 1
    }

    /// Rings the doorbell of a chain.
    pub(crate) fn ring(&mut self, chain: &Chain) {
        self.world.ring(chain.qp);
    }

    /// Runs the world until no event is left. Returns the completions of `chain`.
    pub(crate) fn settle(&mut self, chain: &Chain) -> Vec<WorkCompletion> {
        assert!(self.world.settle(1_000_000), "the world never comes to rest");
        self.world.drain(chain.cq)
    }

    /// Returns the number of completions ever written to the queue of `chain`.
    pub(crate) fn count(&mut self, chain: &Chain) -> u64 {
        self.world.ask::<u64>(0, Command::CountCompletions { cq: chain.cq.number }).unwrap()
    }

    /// Returns a word of the data region.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.data.load(offset, 8).try_into().unwrap())
    }

    pub(crate) fn set_word(&self, offset: usize, value: u64) {
        self.data.store(offset, &value.to_le_bytes());
    }
}

impl Chain {
    /// Returns the address of byte `byte` of `slot` in the code region.
    pub(crate) fn field(&self, slot: u64, byte: usize) -> Remote {
        self.code.remote(self.offset(slot, byte))
    }

    /// Returns a scatter/gather element of `len` bytes at byte `byte` of `slot`.
    pub(crate) fn element(&self, slot: u64, byte: usize, len: usize) -> Sge {
        self.code.sge(self.offset(slot, byte), len)
    }

    fn offset(&self, slot: u64, byte: usize) -> usize {
        SLOT + slot as usize * SLOT + byte
    }

    pub(crate) fn wait(&self, count: u64) -> Operation {
        Operation::Wait { cq: self.cq.number, count }
    }

    pub(crate) fn enable(&self, count: u64) -> Operation {
        Operation::Enable { qp: self.qp.number, count }
    }
}

/// Returns a header word.
pub(crate) fn header(opcode: WqeOpcode, signaled: bool, id: u64) -> u64 {
    u64::from(opcode.0) | u64::from(if signaled { flag::SIGNALED } else { 0 }) << 8 | id << 16
}
