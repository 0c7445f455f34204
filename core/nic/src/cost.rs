//! What a step costs on hardware that is not here: model time, beside the real time that a clock measures.
//!
//! Only *primitives* have a cost: a verb's round trip, a CPU that polls and answers, an access to the memory
//! of the host. Each is a measured number with its source. The cost of an operation is counted from them
//! (`prism.rs`), and so is a prediction; no constant was chosen to make one come true. `load.rs` has the
//! throughput of many clients. Chains have primitives of their own (`connectx5.rs`), and `timeline.rs` plays
//! what a NIC executed by them.

pub mod connectx5;
pub mod load;
pub mod number;
pub mod prism;
pub mod strom;
pub mod timeline;

/// A measured number, and where it was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// What it is of.
    pub name: &'static str,
    /// Nanoseconds.
    pub ns: u64,
    /// Who measured it, and where it is published.
    pub source: &'static str,
}

/// A measured bandwidth, and where it was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What it is of.
    pub name: &'static str,
    /// Bytes in a microsecond.
    pub bytes_per_us: u64,
    /// Who measured it, and where it is published.
    pub source: &'static str,
}

impl Rate {
    /// What so many bytes take, nanoseconds.
    pub fn ns(&self, bytes: u64) -> u64 {
        bytes * 1000 / self.bytes_per_us
    }
}

/// A one-sided verb of 512 bytes between two hosts on one cable; one access to the server's memory is in it.
pub const VERB: Constant = Constant {
    name: "verb",
    ns: 2_500,
    source: "PRISM (SOSP '21) §4.3: RDMA operations of two ConnectX-5 25 GbE without a switch",
};

/// A message to a thread that polls, and its answer, beyond a one-sided verb: the CPUs of both ends.
pub const CPU: Constant = Constant {
    name: "cpu",
    ns: 2_400,
    source: "PRISM (SOSP '21) §2.1: an RPC by eRPC, 5.6 us, less a one-sided READ over the same 40 GbE, 3.2 us",
};

/// A READ of host memory by a NIC on PCIe.
pub const PCIE_ROUND_TRIP: Constant = Constant {
    name: "pcie-round-trip",
    ns: 600,
    source: "PRISM (SOSP '21) §4.3, footnote 1: a Netronome NFP-6000, measured by Neugebauer et al. (SIGCOMM '18)",
};

/// An access of BlueField's ARM cores to the memory of its host: an RDMA request through the switch inside.
pub const INTERNAL_RDMA: Constant =
    Constant { name: "internal-rdma", ns: 3_000, source: "PRISM (SOSP '21) §4.3: BlueField, about 3 us" };

/// What the network between two hosts adds to each round trip.
pub const NETWORKS: [Constant; 4] = [
    Constant { name: "direct", ns: 0, source: "PRISM (SOSP '21) §4.3: one cable" },
    Constant {
        name: "rack", ns: 600, source: "PRISM (SOSP '21) Figure 2: one top-of-rack switch (also §5)"
    },
    Constant {
        name: "cluster",
        ns: 3_000,
        source: "PRISM (SOSP '21) Figure 2: a three-tier cluster network",
    },
    Constant {
        name: "datacenter",
        ns: 24_000,
        source: "PRISM (SOSP '21) Figure 2: RDMA in Microsoft's data centers, from Guo's keynote (APNet '17)",
    },
];

/// The network with one switch.
pub const RACK: Constant = NETWORKS[1];

/// Whose time it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CostModel {
    /// This NIC, here: nothing is charged, a clock measures it.
    Software,
    /// An RDMA NIC: the plain verbs.
    ConnectX5,
    /// PRISM by a thread of the server that polls: the paper's prototype.
    PrismSoftware,
    /// PRISM in a NIC of the future: what is beyond a plain verb costs round trips over PCIe.
    PrismAsic,
    /// PRISM on the ARM cores of a NIC, which are not on the path to the host's memory. They are charged as
    /// the host's CPU is; no number says how much slower they are, so its times are the least that it can
    /// take.
    BlueField,
}

/// One round trip of a client, and what its server does before it answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Who answers.
    pub by: Answers,
    /// Accesses to the memory of the host of which each waits for the one before; at least one.
    pub accesses: u64,
}

/// Who answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Any RDMA NIC.
    Verb,
    /// One that has PRISM.
    Prism,
    /// The server's program.
    Program,
}

impl CostModel {
    /// All that charge something.
    pub const MODELS: [CostModel; 4] =
        [CostModel::ConnectX5, CostModel::PrismSoftware, CostModel::PrismAsic, CostModel::BlueField];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            CostModel::Software => "Software",
            CostModel::ConnectX5 => "ConnectX5",
            CostModel::PrismSoftware => "PrismSoftware",
            CostModel::PrismAsic => "PrismAsic",
            CostModel::BlueField => "BlueField",
        }
    }

    /// What these round trips take, one after the other over a network that adds `network_ns` to each; `None`
    /// if the hardware cannot do one of them.
    pub fn latency(self, trips: &[Trip], network_ns: u64) -> Option<u64> {
        trips.iter().map(|trip| self.trip(*trip).map(|ns| ns + network_ns)).sum()
    }

    fn trip(self, trip: Trip) -> Option<u64> {
        let beyond_first = trip.accesses.saturating_sub(1);
        let charges: &[(Constant, u64)] = match (self, trip.by) {
            (CostModel::Software, _) => return Some(0),
            (CostModel::ConnectX5, Answers::Prism) => return None,
            // Its own accesses are misses of a cache, which none of its numbers tells apart.
            (_, Answers::Program) | (CostModel::PrismSoftware, _) => &[(VERB, 1), (CPU, 1)],
            (CostModel::ConnectX5 | CostModel::PrismAsic, _) => &[(VERB, 1), (PCIE_ROUND_TRIP, beyond_first)],
            (CostModel::BlueField, _) => &[(VERB, 1), (CPU, 1), (INTERNAL_RDMA, trip.accesses)],
        };
        Some(charges.iter().map(|(constant, times)| constant.ns * times).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Trip = Trip { by: Answers::Verb, accesses: 1 };
    const INDIRECT: Trip = Trip { by: Answers::Prism, accesses: 2 };

    #[test]
    fn a_trip_costs_its_primitives() {
        let of = |model: CostModel, trip| model.latency(&[trip], 0);
        assert_eq!(of(CostModel::ConnectX5, READ), Some(2_500));
        assert_eq!(of(CostModel::PrismSoftware, INDIRECT), Some(2_500 + 2_400));
        assert_eq!(of(CostModel::PrismAsic, READ), Some(2_500));
        assert_eq!(of(CostModel::PrismAsic, INDIRECT), Some(2_500 + 600));
        assert_eq!(of(CostModel::BlueField, INDIRECT), Some(2_500 + 2_400 + 2 * 3_000));
        let called = Trip { by: Answers::Program, accesses: 1 };
        assert_eq!(of(CostModel::ConnectX5, called), Some(2_500 + 2_400));
    }

    #[test]
    fn the_network_is_paid_once_a_round_trip() {
        assert_eq!(CostModel::ConnectX5.latency(&[READ, READ], 3_000), Some(2 * 5_500));
        assert_eq!(CostModel::PrismAsic.latency(&[INDIRECT], 3_000), Some(6_100));
    }

    #[test]
    fn software_is_measured_and_never_charged_and_plain_hardware_has_no_prism() {
        assert_eq!(CostModel::Software.latency(&[READ, INDIRECT], 0), Some(0));
        assert_eq!(CostModel::ConnectX5.latency(&[READ, INDIRECT], 0), None);
    }
}
