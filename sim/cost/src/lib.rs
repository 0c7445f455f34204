//! Cost models: the time that operations would take on hardware that is not present, computed in addition to
//! the real time that a clock measures.
//!
//! Only *primitives* have a cost, for example a verb's round trip, the work of a polling CPU, or an access to
//! host memory. Each cost is a published measurement with its source. The cost of an operation is the sum of
//! its primitives (`prism.rs`); no constant was adjusted to match a result. `load.rs` computes the throughput
//! of many clients. Chains have their own primitives (`connectx5.rs`), and `timeline.rs` computes the times
//! of the work requests that a NIC executed. `chains.rs` and `kernels.rs` run the experiments of RedN and
//! StRoM by the NIC's own code, and assign the time of the papers' hardware to what it executed.

pub mod chains;
pub mod connectx5;
pub mod kernels;
pub mod load;
mod meter;
pub mod number;
pub mod prism;
pub mod strom;
pub mod timeline;

/// A published duration of a primitive, with its source.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name of the primitive.
    pub name: &'static str,
    /// Duration in nanoseconds.
    pub ns: u64,
    /// Publication, section and measured system.
    pub source: &'static str,
}

/// A published bandwidth, with its source.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Name of the link.
    pub name: &'static str,
    /// Bytes per microsecond.
    pub bytes_per_us: u64,
    /// Publication, section and measured system.
    pub source: &'static str,
}

impl Rate {
    /// Returns the transfer time of `bytes` bytes in nanoseconds.
    pub fn ns(&self, bytes: u64) -> u64 {
        bytes * 1000 / self.bytes_per_us
    }
}

/// A one-sided verb of 512 bytes between two hosts connected by one cable, including one access to the
/// server's memory.
pub const VERB: Constant = Constant {
    name: "verb",
    ns: 2_500,
    source: "PRISM (SOSP '21) §4.3: RDMA operations of two ConnectX-5 25 GbE without a switch",
};

/// Additional time of a message to a polling thread and its answer, compared with a one-sided verb: the CPU
/// time of both ends.
pub const CPU: Constant = Constant {
    name: "cpu",
    ns: 2_400,
    source: "PRISM (SOSP '21) §2.1: an RPC by eRPC, 5.6 us, less a one-sided READ over the same 40 GbE, 3.2 us",
};

/// A read of host memory by a NIC over PCIe.
pub const PCIE_ROUND_TRIP: Constant = Constant {
    name: "pcie-round-trip",
    ns: 600,
    source: "PRISM (SOSP '21) §4.3, footnote 1: a Netronome NFP-6000, measured by Neugebauer et al. (SIGCOMM '18)",
};

/// An access of BlueField's ARM cores to host memory: an RDMA request through the internal switch.
pub const INTERNAL_RDMA: Constant =
    Constant { name: "internal-rdma", ns: 3_000, source: "PRISM (SOSP '21) §4.3: BlueField, about 3 us" };

/// Networks between two hosts, with the time that each adds to a round trip.
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

/// The network with one top-of-rack switch.
pub const RACK: Constant = NETWORKS[1];

/// The hardware that a model describes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CostModel {
    /// Remora itself: no model time is charged, because a clock measures the real time.
    Software,
    /// An RDMA NIC with plain verbs.
    ConnectX5,
    /// PRISM executed by a polling thread of the server, the prototype of the paper.
    PrismSoftware,
    /// PRISM in a future NIC: everything beyond a plain verb costs round trips over PCIe.
    PrismAsic,
    /// PRISM on the ARM cores of a NIC that are off the path to host memory. The cores are charged like the
    /// host's CPU because no measurement says how much slower they are, so the result is a lower bound.
    BlueField,
}

/// A round trip of a client, with the server's work before the answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The component that answers.
    pub by: Answers,
    /// Number of dependent accesses to host memory, at least one: each waits for the previous one.
    pub accesses: u64,
}

/// The component of the server that answers a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// A NIC with plain RDMA verbs.
    Verb,
    /// A NIC with PRISM.
    Prism,
    /// The program of the server.
    Program,
}

impl CostModel {
    /// All models except `Software`.
    pub const MODELS: [CostModel; 4] =
        [CostModel::ConnectX5, CostModel::PrismSoftware, CostModel::PrismAsic, CostModel::BlueField];

    /// Returns the name that figures use.
    pub fn name(self) -> &'static str {
        match self {
            CostModel::Software => "Software",
            CostModel::ConnectX5 => "ConnectX5",
            CostModel::PrismSoftware => "PrismSoftware",
            CostModel::PrismAsic => "PrismAsic",
            CostModel::BlueField => "BlueField",
        }
    }

    /// Returns the time in nanoseconds of these round trips, one after the other, over a network that adds
    /// `network_ns` to each. `None` if the hardware cannot execute one of them.
    pub fn latency(self, trips: &[Trip], network_ns: u64) -> Option<u64> {
        trips.iter().map(|trip| self.trip(*trip).map(|ns| ns + network_ns)).sum()
    }

    fn trip(self, trip: Trip) -> Option<u64> {
        let beyond_first = trip.accesses.saturating_sub(1);
        let charges: &[(Constant, u64)] = match (self, trip.by) {
            (CostModel::Software, _) => return Some(0),
            (CostModel::ConnectX5, Answers::Prism) => return None,
            // The program's memory accesses are cache misses, which are part of the measured CPU time.
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
        let latency = |model: CostModel, trip| model.latency(&[trip], 0);
        assert_eq!(latency(CostModel::ConnectX5, READ), Some(2_500));
        assert_eq!(latency(CostModel::PrismSoftware, INDIRECT), Some(2_500 + 2_400));
        assert_eq!(latency(CostModel::PrismAsic, READ), Some(2_500));
        assert_eq!(latency(CostModel::PrismAsic, INDIRECT), Some(2_500 + 600));
        assert_eq!(latency(CostModel::BlueField, INDIRECT), Some(2_500 + 2_400 + 2 * 3_000));
        let called = Trip { by: Answers::Program, accesses: 1 };
        assert_eq!(latency(CostModel::ConnectX5, called), Some(2_500 + 2_400));
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
