//! What the models predict for PRISM's operations, and for what they replace, beside every number that the
//! text of the paper states about them (§1, §2.1, §4.3, §6.2). Its Figures 1 and 2 are drawn from these.

use super::{Answers, Constant, CostModel, INTERNAL_RDMA, PCIE_ROUND_TRIP, RACK, Trip, VERB};

/// A client operation as a sequence of round trips. Values have 512 bytes, except those of CAS.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Name in figures.
    pub name: &'static str,
    /// The round trips, one after the other.
    pub trips: &'static [Trip],
}

const VERB_TRIP: Trip = Trip { by: Answers::Verb, accesses: 1 };
const CALL: Trip = Trip { by: Answers::Program, accesses: 1 };

const fn prism(accesses: u64) -> Trip {
    Trip { by: Answers::Prism, accesses }
}

/// The plain READ.
pub const READ: Plan = Plan { name: "read", trips: &[VERB_TRIP] };
/// The plain WRITE.
pub const WRITE: Plan = Plan { name: "write", trips: &[VERB_TRIP] };
/// The plain compare-and-swap.
pub const CAS: Plan = Plan { name: "cas", trips: &[VERB_TRIP] };
/// An indirect READ: an access to the pointer, then to its target.
pub const INDIRECT_READ: Plan = Plan { name: "indirect-read", trips: &[prism(2)] };
/// Pointer and bound lie side by side: one access fetches both.
pub const BOUNDED_READ: Plan = Plan { name: "bounded-read", trips: &[prism(2)] };
/// The NIC has buffers at hand, as it has receive work requests (§4.2); so only the buffer is written.
pub const ALLOCATE: Plan = Plan { name: "allocate", trips: &[prism(1)] };
/// An enhanced CAS, whose operands are part of the request.
pub const ENHANCED_CAS: Plan = Plan { name: "enhanced-cas", trips: &[prism(1)] };
/// WRITE of the tag into memory on the NIC, ALLOCATE whose address goes there too, and, when the buffer is
/// written, CAS with what lies there (§7.3).
pub const CHAIN: Plan = Plan { name: "chain", trips: &[prism(2)] };
/// Two READs, which an indirect READ replaces.
pub const TWO_READS: Plan = Plan { name: "two-reads", trips: &[VERB_TRIP, VERB_TRIP] };
/// A WRITE and a CAS, which a chain replaces if the buffer is known.
pub const WRITE_THEN_CAS: Plan = Plan { name: "write-then-cas", trips: &[VERB_TRIP, VERB_TRIP] };
/// A call of the server's program.
pub const RPC: Plan = Plan { name: "rpc", trips: &[CALL] };
/// PRISM-KV's PUT where the slot is not known: an indirect READ, then the chain.
pub const PUT: Plan = Plan { name: "put", trips: &[prism(2), prism(2)] };

/// The bars of Figure 1.
pub const FIGURE_1: [Plan; 8] =
    [READ, WRITE, CAS, INDIRECT_READ, BOUNDED_READ, ALLOCATE, ENHANCED_CAS, CHAIN];

/// The curves of Figure 2: ways to read through a pointer.
pub const FIGURE_2: [(CostModel, Plan); 4] = [
    (CostModel::ConnectX5, TWO_READS),
    (CostModel::PrismSoftware, INDIRECT_READ),
    (CostModel::PrismAsic, INDIRECT_READ),
    (CostModel::BlueField, INDIRECT_READ),
];

/// The CRC computation with which Pilaf's GET detects torn values.
pub const PILAF_CRC: Constant =
    Constant { name: "pilaf-crc", ns: 2_000, source: "PRISM (SOSP '21) §6.2: \"the other 2 us\" of 14" };

/// The unit of a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time in nanoseconds.
    Nanoseconds,
    /// Thousandths of a whole.
    PerMille,
    /// Events per second.
    PerSecond,
}

/// A number stated in the paper's text, with the models' prediction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Section of the paper.
    pub section: &'static str,
    /// Name of the quantity.
    pub what: &'static str,
    /// Unit of both values.
    pub unit: Unit,
    /// Value stated in the paper.
    pub stated: u64,
    /// Value predicted from the primitives.
    pub predicted: u64,
    /// True if a constant was derived from this number, so that agreement is little evidence.
    pub is_source: bool,
}

/// Maximum error of a prediction, in thousandths of the stated value.
pub const MOST_OFF: u64 = 200;

impl Stated {
    /// Returns the error of the prediction in thousandths of the stated value, negative if the prediction is
    /// too low.
    pub fn residual(&self) -> i64 {
        let stated = self.stated as i64;
        let predicted = self.predicted as i64;
        (predicted - stated) * 1000 / stated
    }
}

/// Returns the time of a plan on hardware that can execute it.
fn takes(model: CostModel, plan: Plan, network: u64) -> u64 {
    model.latency(plan.trips, network).unwrap_or(u64::MAX)
}

/// Every number of the text about Figures 1 and 2, and about the two stores of §2.1 and §6.2 that do nothing
/// else than these operations over one switch. What is said of quorums (§7.4) and transactions (§8.3) is not
/// here.
pub fn stated() -> [Stated; 17] {
    use CostModel::{ConnectX5, PrismAsic, PrismSoftware};
    let row = |section, what, stated, predicted| {
        let unit = Unit::Nanoseconds;
        Stated { section, what, unit, stated, predicted, is_source: false }
    };
    let source = |stated: Stated| Stated { is_source: true, ..stated };
    let part = |stated: Stated| Stated { unit: Unit::PerMille, ..stated };
    let rack = RACK.ns;
    let read = takes(ConnectX5, READ, rack);
    let call = takes(ConnectX5, RPC, rack);
    let two_reads = takes(ConnectX5, TWO_READS, rack);
    let pilaf = [ConnectX5, PrismSoftware].map(|by| takes(by, TWO_READS, rack) + PILAF_CRC.ns);
    let get = [PrismSoftware, PrismAsic].map(|by| takes(by, INDIRECT_READ, rack));
    let added = takes(PrismSoftware, INDIRECT_READ, 0) - takes(ConnectX5, READ, 0);
    [
        row("2.1", "one-sided READ", 3_200, read),
        source(row("2.1", "two-sided RPC", 5_600, call)),
        source(part(row("2.1", "READ faster than RPC by", 430, (call - read) * 1000 / call))),
        source(row("2.1", "two READs slower than RPC by", 800, two_reads.saturating_sub(call))),
        source(row("4.3", "RDMA operation", 2_500, VERB.ns)),
        row("4.3", "software adds at least", 2_500, added),
        row("4.3", "software adds at most", 2_800, added),
        source(row("4.3", "BlueField to host memory", 3_000, INTERNAL_RDMA.ns)),
        source(row("4.3", "NFP-6000 to host memory", 600, PCIE_ROUND_TRIP.ns)),
        row("6.2", "GET, PRISM-KV", 6_000, get[0]),
        row("6.2", "GET, Pilaf in software", 14_000, pilaf[1]),
        row("6.2", "GET, Pilaf in hardware", 8_000, pilaf[0]),
        source(row("6.2", "CRCs of a GET, Pilaf", 2_000, PILAF_CRC.ns)),
        row("6.2", "PUT, Pilaf", 6_000, call),
        row("6.2", "PUT, PRISM-KV", 12_000, takes(PrismSoftware, PUT, rack)),
        row("6.2", "hardware saves PRISM-KV", 2_000, get[0] - get[1]),
        part(row("1", "GET, PRISM-KV of Pilaf's", 750, get[0] * 1000 / pilaf[0])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NETWORKS;

    #[test]
    fn every_number_that_the_text_states_is_met_within_a_fifth() {
        for number in stated() {
            assert!(number.residual().unsigned_abs() <= MOST_OFF, "{number:?}: {}", number.residual());
        }
        // Most of them have nothing to do with the numbers that constants were read from.
        assert_eq!(stated().iter().filter(|number| !number.is_source).count(), 10);
    }

    #[test]
    fn predictions_are_these() {
        let bars = |model: CostModel| FIGURE_1.map(|plan| model.latency(plan.trips, 0));
        let no = None;
        let rdma = [Some(2_500), Some(2_500), Some(2_500), no, no, no, no, no];
        assert_eq!(bars(CostModel::ConnectX5), rdma);
        assert_eq!(bars(CostModel::PrismSoftware), [Some(4_900); 8]);
        let asic = [2_500, 2_500, 2_500, 3_100, 3_100, 2_500, 2_500, 3_100];
        assert_eq!(bars(CostModel::PrismAsic), asic.map(Some));
        let blue = [7_900, 7_900, 7_900, 10_900, 10_900, 7_900, 7_900, 10_900];
        assert_eq!(bars(CostModel::BlueField), blue.map(Some));
        let lines = FIGURE_2.map(|(model, plan)| NETWORKS.map(|network| takes(model, plan, network.ns)));
        let expected = [
            [5_000, 6_200, 11_000, 53_000],
            [4_900, 5_500, 7_900, 28_900],
            [3_100, 3_700, 6_100, 27_100],
            [10_900, 11_500, 13_900, 34_900],
        ];
        assert_eq!(lines, expected);
        assert_eq!(stated().map(|number| number.residual()), RESIDUALS);
    }

    const RESIDUALS: [i64; 17] =
        [-31, -17, 13, -125, 0, -40, -142, 0, 0, -83, -71, 25, 0, -83, -83, -100, -106];

    #[test]
    fn what_the_text_says_without_numbers_holds() {
        // §4.3: BlueField is the slowest; in each network of Figure 2 the software is ahead of two READs.
        for plan in [INDIRECT_READ, ALLOCATE, ENHANCED_CAS, CHAIN] {
            let blue = takes(CostModel::BlueField, plan, 0);
            let others = [CostModel::PrismSoftware, CostModel::PrismAsic].map(|by| takes(by, plan, 0));
            assert!(others.iter().all(|other| *other < blue), "{}", plan.name);
        }
        for network in &NETWORKS[1..] {
            let [two, software, ..] = FIGURE_2.map(|(model, plan)| takes(model, plan, network.ns));
            assert!(software < two, "{}", network.name);
        }
    }
}
