//! The memory of an offload, and other memory beside it.

use remora_chain::Numbers;
use remora_chain::offload::{BUCKET, LIST, node};
use remora_fabric::{ALL, World};
use remora_memory::{Access, Bytes, Key, Pd, Range};
use remora_nic::chain::LoopbackInit;
use remora_nic::{Command, CqFlags, Fetching, Ring};

use crate::node_memory::SECRET;

/// The length of each region in bytes.
pub const LEN: usize = 4096;
/// The length of the guards around a region in bytes.
const GUARD: usize = 64;
/// The offset of the records of another client. The values have a different offset.
pub const PLANTED: usize = 1024;
/// The number of those records.
pub const RECORDS: u8 = 6;
const VALUES: u64 = 2048;
const VALUE: u64 = 256;

/// A region with guards around it.
pub struct GuardedRegion {
    pub address: u64,
    pub key: Key,
    pub len: usize,
    bytes: Bytes,
}

impl GuardedRegion {
    /// Registers memory of a node at an address, with guards of the byte `around` before and after it.
    fn new(world: &World, node: usize, pd: Pd, access: Access, address: u64, around: u8) -> GuardedRegion {
        let bytes = Bytes::heap(LEN + 2 * GUARD).expect("memory for a region");
        bytes.write(0, &[around; LEN + 2 * GUARD]).expect("the whole buffer is accessible");
        bytes.write(GUARD, &[0; LEN]).expect("the whole buffer is accessible");
        let range = Range { bytes: bytes.clone(), offset: GUARD, len: LEN, iova: address };
        let key = world.table(node).register(pd, &[range], access).expect("space for a region");
        GuardedRegion { address, key, len: LEN, bytes }
    }

    /// Stores bytes, as the node's program does.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        self.bytes.write(GUARD + at, bytes).expect("the range is within the region");
    }

    /// Reads `len` bytes.
    pub fn load(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.bytes.read(GUARD + at, &mut bytes).expect("the range is within the region");
        bytes
    }

    /// Reads the region and its guards.
    pub fn whole(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len()];
        self.bytes.read(0, &mut bytes).expect("the whole buffer is accessible");
        bytes
    }

    /// Returns the region in the fabric's type.
    pub fn region(&self, node: usize) -> remora_fabric::Region {
        // The programs get the address and the key, and do not store through this value.
        remora_fabric::Region { node, key: self.key, address: self.address, bytes: self.bytes.clone() }
    }

    /// Returns a list element for a part of the region.
    pub fn sge(&self, at: usize, len: usize) -> remora_nic::Sge {
        remora_nic::Sge { addr: self.address + at as u64, len: len as u32, lkey: self.key }
    }
}

/// A managed queue pair of another protection domain, and its completion queue.
pub struct Stranger {
    pub qp: remora_wire::Qpn,
    pub cq: u32,
}

/// All memory of one input.
pub struct Layout {
    /// The server's memory that chains may read.
    pub table: GuardedRegion,
    /// Memory that no chain may reach: in the same protection domain with a key that no client has, or in
    /// another protection domain.
    pub secret: GuardedRegion,
    /// The client's memory for answers.
    pub reply: GuardedRegion,
    /// The client's own memory, for which the server has no key.
    pub own: GuardedRegion,
    /// The client's memory for its messages, and that for the answers to them.
    pub messages: GuardedRegion,
    pub answers: GuardedRegion,
    /// A managed queue of another protection domain, with its completion queue.
    pub stranger: Stranger,
    /// The addresses, keys and queue numbers of the offload.
    pub numbers: Option<Numbers>,
}

impl Layout {
    /// Allocates the server's memory on node 0 and the client's on node 1.
    pub fn new(world: &mut World, abroad: bool) -> Layout {
        let here = world.pd(0);
        let there = world.pd(1);
        let elsewhere = world.table(0).alloc_pd().expect("a second domain");
        let at = |number: u64| number << 36;
        let secret = if abroad { elsewhere } else { here };
        Layout {
            secret: GuardedRegion::new(world, 0, secret, ALL, at(1), SECRET),
            table: GuardedRegion::new(world, 0, here, Access::REMOTE_READ, at(2), SECRET),
            reply: GuardedRegion::new(world, 1, there, ALL, at(3), 0),
            own: GuardedRegion::new(world, 1, there, ALL, at(4), 0),
            messages: GuardedRegion::new(world, 1, there, ALL, at(5), 0),
            answers: GuardedRegion::new(world, 1, there, ALL, at(6), 0),
            stranger: stranger(world, elsewhere),
            numbers: None,
        }
    }

    /// Fills the table: eight buckets that are also the nodes of a list, the empty node after them, the
    /// records of others, and the values.
    pub fn fill(&self, planted: &[u8]) {
        let (table, address) = (&self.table, self.table.address);
        for at in 0..LIST as u64 {
            let value = address + VALUES + at * VALUE;
            let stored = node(1 + at, value, 1 + at * 31, address + (at + 1) * BUCKET);
            table.store((at * BUCKET) as usize, &stored);
            table.store((VALUES + at * VALUE) as usize, &[1 + at as u8; VALUE as usize]);
        }
        let end = LIST as u64 * BUCKET;
        table.store(end as usize, &node(0, 0, 0, address + end));
        table.store(PLANTED, planted);
        self.secret.store(0, &[SECRET; LEN]);
    }

    /// Returns the region that the number selects, on either node.
    pub fn any(&self, number: u8) -> &GuardedRegion {
        [&self.table, &self.secret, &self.reply, &self.own][usize::from(number) % 4]
    }

    /// Returns a key, which may be that of the offload's code.
    pub fn key(&self, number: u8) -> u64 {
        let code = self.numbers.as_ref().map_or(0, |numbers| numbers.key);
        let keys = [&self.table, &self.secret, &self.reply, &self.own].map(|region| region.key.get());
        keys.get(usize::from(number) % 5).copied().unwrap_or(code).into()
    }

    /// Returns the address of a queue of the offload.
    pub fn code(&self, number: u8) -> u64 {
        self.of_queue(number, |numbers| numbers.code)
    }

    /// Returns the number of a queue pair of the offload, or of the stranger.
    pub fn queue(&self, number: u8) -> u64 {
        if number % 4 == 0 {
            self.stranger.qp.get().into()
        } else {
            self.of_queue(number, |queue| queue.qp.into())
        }
    }

    /// Returns the number of a completion queue of the offload, or of the stranger.
    pub fn completion_queue(&self, number: u8) -> u64 {
        if number % 4 == 0 {
            self.stranger.cq.into()
        } else {
            self.of_queue(number, |queue| queue.send_cq.into())
        }
    }

    fn of_queue(&self, number: u8, of: impl Fn(&remora_chain::QueueNumbers) -> u64) -> u64 {
        let Some(numbers) = &self.numbers else { return 0 };
        of(&numbers.queues[usize::from(number) % numbers.queues.len()])
    }
}

/// Creates a queue pair of another protection domain that no work request has enabled.
fn stranger(world: &mut World, pd: Pd) -> Stranger {
    let ring = |world: &mut World| world.hand(0, Ring::heap(8).expect("memory for a queue"));
    let flags = CqFlags::default();
    let completions = ring(world);
    let cq = world.ask(0, Command::CreateCq { ring: completions, flags }).expect("space for a queue");
    let init = LoopbackInit {
        pd,
        send_ring: ring(world),
        receive_ring: ring(world),
        receive_max_sge: 1,
        send_cq: cq,
        receive_cq: cq,
        fetching: Fetching::Recycled,
    };
    Stranger { qp: world.ask(0, Command::CreateLoopback(init)).expect("space for a queue pair"), cq }
}

/// Returns the limit to which the stranger's queue may be fetched. It is 0 unless a chain has changed it.
pub fn limit(world: &mut World, stranger: remora_wire::Qpn) -> Option<u64> {
    world.with_nic(0, |nic, _| nic.send_queue_facts(stranger)).map(|facts| facts.limit)
}
