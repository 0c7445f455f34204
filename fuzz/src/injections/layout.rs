//! The memory of an offload, and other memory beside it.

use remora_chain::Numbers;
use remora_chain::offload::{BUCKET, LIST, node};
use remora_fabric::{ALL, World};
use remora_memory::{Access, Bytes, Key, Pd, Range};
use remora_nic::chain::LoopbackInit;
use remora_nic::{Fetching, Ring};

use crate::node_memory::SECRET;

/// Bytes of each region.
pub const LEN: usize = 4096;
/// Bytes around it that belong to none.
const GUARD: usize = 64;
/// Offset of the buckets of another client. Values have their own.
pub const PLANTED: usize = 1024;
/// Number of those records.
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
    /// So much memory of a node at an address, with `around` before and behind it.
    fn new(world: &World, node: usize, pd: Pd, access: Access, address: u64, around: u8) -> GuardedRegion {
        let bytes = Bytes::heap(LEN + 2 * GUARD).expect("memory for a region");
        bytes.write(0, &[around; LEN + 2 * GUARD]).expect("its own bytes");
        bytes.write(GUARD, &[0; LEN]).expect("its own bytes");
        let range = Range { bytes: bytes.clone(), offset: GUARD, len: LEN, iova: address };
        let key = world.table(node).register(pd, &[range], access).expect("space for a region");
        GuardedRegion { address, key, len: LEN, bytes }
    }

    /// Stores bytes, as the program does.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        self.bytes.write(GUARD + at, bytes).expect("within it");
    }

    /// So many of its bytes.
    pub fn load(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.bytes.read(GUARD + at, &mut bytes).expect("within it");
        bytes
    }

    /// All of its bytes, and the guards.
    pub fn whole(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len()];
        self.bytes.read(0, &mut bytes).expect("its own bytes");
        bytes
    }

    /// The same as a region of the fabric.
    pub fn region(&self, node: usize) -> remora_fabric::Region {
        // Programs get address and key, and do not store through it.
        remora_fabric::Region { node, key: self.key, address: self.address, bytes: self.bytes.clone() }
    }

    /// An element of a list.
    pub fn sge(&self, at: usize, len: usize) -> remora_nic::Sge {
        remora_nic::Sge { addr: self.address + at as u64, len: len as u32, lkey: self.key }
    }
}

/// A managed queue pair and its completion queue.
pub struct Stranger {
    pub qp: remora_wire::Qpn,
    pub cq: u32,
}

/// All memory of an input.
pub struct Layout {
    /// The server's: chains may read it.
    pub table: GuardedRegion,
    /// Memory that no chain may reach: of the same domain, with a key that no client holds; or of another
    /// one.
    pub secret: GuardedRegion,
    /// The client's, for answers.
    pub reply: GuardedRegion,
    /// The client's own, to which the server has no key.
    pub own: GuardedRegion,
    /// The client's messages, and its answers.
    pub messages: GuardedRegion,
    pub answers: GuardedRegion,
    /// A managed queue of another domain, and its completion queue.
    pub stranger: Stranger,
    /// The offload's addresses, keys and numbers.
    pub numbers: Option<Numbers>,
}

impl Layout {
    /// On node 0 the server's, on node 1 the client's.
    pub fn new(world: &mut World, abroad: bool) -> Layout {
        let (here, there) = (world.pd(0), world.pd(1));
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

    /// Fills it: buckets of eight keys, which are also nodes of a list, the empty node behind them, records
    /// of others, values.
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

    /// Some region of either node.
    pub fn any(&self, number: u8) -> &GuardedRegion {
        [&self.table, &self.secret, &self.reply, &self.own][usize::from(number) % 4]
    }

    /// A key, also the offload's own.
    pub fn key(&self, number: u8) -> u64 {
        let code = self.numbers.as_ref().map_or(0, |numbers| numbers.key);
        let keys = [&self.table, &self.secret, &self.reply, &self.own].map(|region| region.key.get());
        keys.get(usize::from(number) % 5).copied().unwrap_or(code).into()
    }

    /// The address of a queue of the offload's.
    pub fn code(&self, number: u8) -> u64 {
        self.of_queue(number, |numbers| numbers.code)
    }

    /// The number of a queue: the offload's, or the stranger's.
    pub fn queue(&self, number: u8) -> u64 {
        if number % 4 == 0 {
            self.stranger.qp.get().into()
        } else {
            self.of_queue(number, |queue| queue.qp.into())
        }
    }

    /// The number of a completion queue: the offload's, or the stranger's.
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

/// A queue of another domain that no work request has enabled.
fn stranger(world: &mut World, pd: Pd) -> Stranger {
    let ring = || Ring::new(Bytes::heap(Ring::size(8)).expect("memory for a queue")).expect("a ring");
    world.with_nic(0, |nic, _| {
        let cq = nic.create_cq(ring()).expect("space for a queue");
        let fetching = Fetching::Recycled;
        let init = LoopbackInit {
            pd,
            send_ring: ring(),
            receive_ring: ring(),
            receive_max_sge: 1,
            send_cq: cq,
            receive_cq: cq,
            fetching,
        };
        Stranger { qp: nic.create_loopback(init).expect("space for a queue pair"), cq }
    })
}

/// How far the stranger's queue may be fetched: 0, unless a chain has changed it.
pub fn limit(world: &mut World, stranger: remora_wire::Qpn) -> Option<u64> {
    world.with_nic(0, |nic, _| nic.send_queue_facts(stranger)).map(|facts| facts.limit)
}
