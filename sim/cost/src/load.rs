//! What clients in a closed loop reach on modelled hardware: rate and mean latency by how many they are, for
//! the paper's Figures 3, 4, 6, 7, 9 and 10.
//!
//! These are bounds, and nothing is fitted: an operation takes no less than its round trips
//! ([`CostModel::latency`]); the line of a server carries one frame after the other, each way; and operations
//! that lock the same block wait for each other. Whichever is the longest for n clients is their latency. The
//! paper says that its servers' cores suffice for the line (§6.2), so they bound nothing.

use super::prism::{BOUNDED_READ, INDIRECT_READ, PILAF_CRC, Stated, Unit};
use super::{Answers, CostModel, RACK, Trip};

/// Bytes that a line carries in a microsecond: 40 Gb/s (PRISM, §5).
pub const LINE_BYTES_PER_US: u64 = 5_000;

/// Bytes of a frame around what its op-code asks for: preamble 8, Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC
/// 4, FCS 4, gap 12 (IEEE 802.3, RoCE v2).
pub const FRAME: u64 = 82;
/// Extension headers (`docs/reference/wire/frames.md`).
const RETH: u64 = 16;
const AETH: u64 = 4;
const ATOMIC_ETH: u64 = 28;
const ATOMIC_ACK: u64 = AETH + 8;
/// A REDIRECT's address, and the head of an EXTENDED atomic's operands.
const ADDRESS: u64 = 8;
const OPERANDS: u64 = 4;

/// Keys and values of the paper's stores (§6.2).
const PAIR: u64 = 8 + 512;
/// A value, and the tag or the lock's neighbour before it (§7.2, §7.3).
const TAGGED: u64 = 8 + 512;
/// Additional bytes that the two designs keep in this implementation, because the paper gives no layout
/// (`docs/internals/stores/key-value.md`):
/// before PRISM-KV's
/// objects, a slot of its table, an entry of Pilaf's, and before a call's question or answer.
const OBJECT_HEADER: u64 = 24;
const SLOT: u64 = 32;
const ENTRY: u64 = 64;
const MESSAGE: u64 = 16;

/// An operation of a client.
#[derive(Copy, Clone, Debug)]
pub struct Operation {
    /// Round trips of the operation.
    pub trips: &'static [Trip],
    /// Work of its own beside them, nanoseconds.
    pub work_ns: u64,
    /// Frames to the server: size of each in bytes, without [`FRAME`].
    pub asked: &'static [u64],
    /// Frames from the server: size of each in bytes, without [`FRAME`].
    pub answered: &'static [u64],
}

const VERB_TRIP: Trip = Trip { by: Answers::Verb, accesses: 1 };
const CALL: Trip = Trip { by: Answers::Program, accesses: 1 };

const PRISM_GET: Operation = Operation {
    trips: BOUNDED_READ.trips,
    work_ns: 0,
    asked: &[RETH],
    answered: &[AETH + OBJECT_HEADER + PAIR],
};
/// A READ through the slot; then WRITE of the slot's other words, ALLOCATE, and CAS of the slot, of which the
/// WRITE is answered with the others.
const PRISM_PUT: Operation = Operation {
    trips: super::prism::PUT.trips,
    work_ns: 0,
    asked: &[
        RETH,
        RETH + SLOT - ADDRESS,
        RETH + ADDRESS + OBJECT_HEADER + PAIR,
        ATOMIC_ETH + OPERANDS + 3 * SLOT,
    ],
    answered: &[AETH + OBJECT_HEADER + PAIR, ATOMIC_ACK, ATOMIC_ACK + SLOT - 8],
};
const PILAF_GET: Operation = Operation {
    trips: &[VERB_TRIP, VERB_TRIP],
    work_ns: PILAF_CRC.ns,
    asked: &[RETH, RETH],
    answered: &[AETH + ENTRY, AETH + PAIR],
};
/// A call; each message is acknowledged.
const PILAF_PUT: Operation =
    Operation { trips: &[CALL], work_ns: 0, asked: &[MESSAGE + PAIR, AETH], answered: &[AETH, MESSAGE] };
/// At each replica, read or write: *all operations take two rounds* (§7.1). `remora_store::block` reads in
/// one if the quorum agrees, the value from one replica; this is the paper's design.
const PRISM_RS: Operation = Operation {
    trips: &[INDIRECT_READ.trips[0], super::prism::CHAIN.trips[0]],
    work_ns: 0,
    asked: &[RETH, RETH + 16, RETH + ADDRESS + TAGGED, ATOMIC_ETH + OPERANDS + 2 * 16],
    answered: &[AETH + TAGGED, ATOMIC_ACK, ATOMIC_ACK, ATOMIC_ACK + 8],
};
/// CAS of the lock, READ, WRITE, CAS of the lock (§7.2).
const ABDLOCK: Operation = Operation {
    trips: &[VERB_TRIP; 4],
    work_ns: 0,
    asked: &[ATOMIC_ETH, RETH, RETH + TAGGED, ATOMIC_ETH],
    answered: &[ATOMIC_ACK, AETH + TAGGED, AETH, ATOMIC_ACK],
};
/// Of ABDLOCK's round trips, those between the CAS that locks and the one that unlocks, at the replica.
const LOCKED_TRIPS: usize = 3;

/// As printed (§8.2): a READ through the slot; PR of what was read and PW of what is written by CAS, side by
/// side; the chain that puts the value in.
const PRISM_TX: Operation = Operation {
    trips: &[BOUNDED_READ.trips[0], super::prism::ENHANCED_CAS.trips[0], super::prism::CHAIN.trips[0]],
    work_ns: 0,
    asked: &[
        RETH,
        ATOMIC_ETH + OPERANDS + 2 * 16,
        ATOMIC_ETH + OPERANDS + 2 * 16,
        RETH + 16,
        RETH + ADDRESS + 8 + PAIR,
        ATOMIC_ETH + OPERANDS + 2 * 16,
    ],
    answered: &[AETH + 8 + PAIR, ATOMIC_ACK + 8, ATOMIC_ACK + 8, ATOMIC_ACK, ATOMIC_ACK, ATOMIC_ACK + 8],
};
/// READ, a call that locks, READ of the version, a call that updates and unlocks (§8.1); each message is
/// acknowledged.
const FARM: Operation = Operation {
    trips: &[VERB_TRIP, CALL, VERB_TRIP, CALL],
    work_ns: 0,
    asked: &[RETH, MESSAGE + 8, AETH, RETH, MESSAGE + PAIR, AETH],
    answered: &[AETH + 8 + PAIR, AETH, MESSAGE, AETH + 8, AETH, MESSAGE],
};

/// A store on some hardware, asked for a mix of operations in equal parts.
#[derive(Copy, Clone, Debug)]
pub struct System {
    /// Name in figures.
    pub name: &'static str,
    /// Model of the hardware.
    pub model: CostModel,
    /// Operations of the clients, in equal parts.
    pub mix: &'static [Operation],
    /// Number of round trips for which an operation excludes others of its block.
    pub locked_trips: usize,
}

const fn system(name: &'static str, model: CostModel, mix: &'static [Operation]) -> System {
    System { name, model, mix, locked_trips: 0 }
}

/// The lines of Figure 3: all reads.
pub const FIGURE_3: [System; 4] = [
    system("PRISM-KV, software", CostModel::PrismSoftware, &[PRISM_GET]),
    system("PRISM-KV, ASIC", CostModel::PrismAsic, &[PRISM_GET]),
    system("Pilaf, software", CostModel::PrismSoftware, &[PILAF_GET]),
    system("Pilaf, RDMA", CostModel::ConnectX5, &[PILAF_GET]),
];
/// Of Figure 4: half reads.
pub const FIGURE_4: [System; 4] = [
    system("PRISM-KV, software", CostModel::PrismSoftware, &[PRISM_GET, PRISM_PUT]),
    system("PRISM-KV, ASIC", CostModel::PrismAsic, &[PRISM_GET, PRISM_PUT]),
    system("Pilaf, software", CostModel::PrismSoftware, &[PILAF_GET, PILAF_PUT]),
    system("Pilaf, RDMA", CostModel::ConnectX5, &[PILAF_GET, PILAF_PUT]),
];
const fn locking(name: &'static str, model: CostModel) -> System {
    System { name, model, mix: &[ABDLOCK], locked_trips: LOCKED_TRIPS }
}
/// Of Figures 6 and 7: three replicas.
pub const FIGURE_6: [System; 4] = [
    system("PRISM-RS, software", CostModel::PrismSoftware, &[PRISM_RS]),
    system("PRISM-RS, ASIC", CostModel::PrismAsic, &[PRISM_RS]),
    locking("ABDLOCK, software", CostModel::PrismSoftware),
    locking("ABDLOCK, RDMA", CostModel::ConnectX5),
];

/// Between its reads and its commit no other transaction changes a transaction's objects.
const fn transactions(name: &'static str, model: CostModel, mix: &'static [Operation]) -> System {
    System { name, model, mix, locked_trips: mix[0].trips.len() }
}
/// Of Figures 9 and 10: read-modify-write transactions of one key.
pub const FIGURE_9: [System; 4] = [
    transactions("PRISM-TX, software", CostModel::PrismSoftware, &[PRISM_TX]),
    transactions("PRISM-TX, ASIC", CostModel::PrismAsic, &[PRISM_TX]),
    transactions("FaRM, software", CostModel::PrismSoftware, &[FARM]),
    transactions("FaRM, RDMA", CostModel::ConnectX5, &[FARM]),
];

/// Throughput and latency of all clients together.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Point {
    /// Operations per second.
    pub rate: f64,
    /// Mean latency of an operation in nanoseconds.
    pub latency: f64,
}

/// Mean costs of an operation of a system, in nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Load {
    /// Without other clients.
    pub latency: f64,
    /// Time on the server's line, in the direction with more bytes.
    pub line: f64,
    /// Time for which the most popular block is locked; 0 if nothing is locked.
    pub locked: f64,
}

fn line_ns(mix: &[Operation], frames: fn(&Operation) -> &'static [u64]) -> f64 {
    let bytes: u64 = mix.iter().flat_map(frames).map(|beside| FRAME + beside).sum();
    bytes as f64 * 1000.0 / LINE_BYTES_PER_US as f64 / mix.len() as f64
}

impl System {
    /// Returns the costs of the operations over one switch, if one block gets this part of them all. Where
    /// the hardware cannot do one of them, no client ends.
    pub fn load(&self, hottest: f64) -> Load {
        let latency_of = |operation: &Operation| {
            let trips = self.model.latency(operation.trips, RACK.ns);
            trips.map_or(f64::INFINITY, |ns| (ns + operation.work_ns) as f64)
        };
        let latency = self.mix.iter().map(latency_of).sum::<f64>() / self.mix.len() as f64;
        let line = line_ns(self.mix, |one| one.asked).max(line_ns(self.mix, |one| one.answered));
        let trips = self.mix.iter().map(|one| one.trips.len()).max().unwrap_or(1);
        let locked = latency * self.locked_trips as f64 / trips as f64 * hottest;
        Load { latency, line, locked }
    }
}

impl Load {
    /// Returns the throughput and latency of `clients` clients, each with one outstanding operation.
    pub fn with(&self, clients: u32) -> Point {
        let clients = f64::from(clients);
        let latency = self.latency.max(clients * self.line).max(clients * self.locked);
        Point { rate: clients * 1e9 / latency, latency }
    }

    /// Returns the maximum number of operations per second that the line carries.
    pub fn most(&self) -> f64 {
        1e9 / self.line
    }
}

/// The numbers of the text about these figures that [`super::prism::stated`] has not. Those of Figure 6
/// compare two systems.
pub fn stated() -> [Stated; 5] {
    let row = |section, what, unit, stated, predicted: f64| {
        let predicted = predicted.max(0.0) as u64;
        Stated { section, what, unit, stated, predicted, is_source: false }
    };
    let [prism, _, _, pilaf] = FIGURE_3.map(|system| system.load(0.0));
    let [rs, _, _, locks] = FIGURE_6.map(|system| system.load(0.0));
    let more = rs.most() - locks.most();
    let [tx, _, farm, _] = FIGURE_9.map(|system| system.load(0.0));
    let more_tx = tx.most() - farm.most();
    [
        row("6.2", "reads/s, PRISM-KV of Pilaf's", Unit::PerMille, 1_220, prism.most() * 1e3 / pilaf.most()),
        row("7.4", "PRISM-RS faster than ABDLOCK by", Unit::Nanoseconds, 2_000, locks.latency - rs.latency),
        row("7.4", "PRISM-RS more operations than ABDLOCK", Unit::PerSecond, 4_000_000, more),
        row("8.3", "PRISM-TX faster than FaRM by", Unit::Nanoseconds, 5_500, farm.latency - tx.latency),
        row("8.3", "PRISM-TX more transactions than FaRM", Unit::PerSecond, 1_000_000, more_tx),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_clients_are_bound_by_their_round_trips_and_many_by_the_line() {
        let [prism, asic, software, rdma] = FIGURE_3.map(|system| system.load(0.0));
        assert_eq!([prism, asic, software, rdma].map(|load| load.latency), [5500.0, 3700.0, 13000.0, 8200.0]);
        assert_eq!(prism.with(1), Point { rate: 1e9 / 5500.0, latency: 5500.0 });
        assert_eq!(prism.with(4).latency, 5500.0);
        // 630 bytes of an answer, five of them a nanosecond.
        assert_eq!((prism.line, prism.with(1000).latency), (126.0, 126_000.0));
        assert!((prism.with(1000).rate / prism.most() - 1.0).abs() < 1e-9);
        assert_eq!(rdma.line, 151.2);
    }

    #[test]
    fn a_mix_takes_the_mean_of_its_operations() {
        let [prism, _, software, rdma] = FIGURE_4.map(|system| system.load(0.0));
        assert_eq!(prism.latency, (5500.0 + 11_000.0) / 2.0);
        assert_eq!(software.latency, (13_000.0 + 5500.0) / 2.0);
        assert_eq!(rdma.latency, (8200.0 + 5500.0) / 2.0);
    }

    #[test]
    fn a_lock_bounds_what_asks_for_the_same_block_and_nothing_else() {
        let [prism, _, _, locks] = FIGURE_6;
        assert_eq!(prism.load(0.5), prism.load(0.0));
        let hot = locks.load(0.1);
        assert_eq!(hot.locked, 3.0 * 3100.0 * 0.1);
        assert_eq!(hot.with(100).latency, 93_000.0);
        assert_eq!(locks.load(0.0).with(30).latency, 12_400.0);
    }

    #[test]
    fn a_transaction_has_its_object_to_itself_from_its_read_to_its_commit() {
        let [prism, asic, software, rdma] = FIGURE_9.map(|system| system.load(0.5));
        assert_eq!(
            [prism, asic, software, rdma].map(|load| load.latency),
            [16_500.0, 10_500.0, 22_000.0, 17_200.0]
        );
        assert_eq!((prism.locked, software.locked), (8_250.0, 11_000.0));
        assert_eq!(FIGURE_9[0].load(0.0).line, 256.8);
    }

    #[test]
    fn what_hardware_cannot_do_never_ends() {
        let none = System { model: CostModel::ConnectX5, ..FIGURE_3[0] };
        assert_eq!(none.load(0.0).with(10).rate, 0.0);
    }

    #[test]
    fn of_what_is_stated_the_reads_are_met_and_the_quorums_are_not() {
        assert_eq!(stated().map(|number| number.residual()), [-16, -300, -1000, 0, -1000]);
    }
}
