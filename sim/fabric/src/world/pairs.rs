//! Faults between nodes: fault rules, and cut links.

use remora_fault::{Direction, Facts, Policy, Rules, Tally, Verdict};
use remora_wire::frame::Start;

/// The state of one direction between two nodes.
struct Pair {
    policy: Policy,
    /// Counters of earlier rules.
    past: Tally,
    direction: Direction,
    cut: bool,
}

/// The directions between all nodes.
pub(super) struct Pairs {
    nodes: usize,
    all: Vec<Pair>,
}

/// The fate of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// Verdict of the fault rules.
    pub verdict: Verdict,
    /// True if the frame is lost, by the rules or because the link is cut.
    pub is_lost: bool,
}

/// Returns the rules for a direction, with a random stream of its own.
fn policy(rules: &Rules, seed: u64, index: usize) -> Policy {
    let own = (index as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d);
    Policy::new(&Rules { seed: rules.seed ^ seed ^ own, ..rules.clone() })
}

impl Pairs {
    pub(crate) fn new(nodes: usize, rules: &Rules, seed: u64) -> Pairs {
        let pair = |index: usize| Pair {
            policy: policy(rules, seed, index),
            past: Tally::default(),
            direction: if index / nodes < index % nodes { Direction::Send } else { Direction::Receive },
            cut: false,
        };
        Pairs { nodes, all: (0..nodes * nodes).map(pair).collect() }
    }

    /// Cuts or restores a direction. A cut direction loses all frames, which are not counted as faults.
    pub(crate) fn cut(&mut self, sender: usize, receiver: usize, cut: bool) {
        self.all[sender * self.nodes + receiver].cut = cut;
    }

    /// Replaces the rules from now on.
    pub(crate) fn set_rules(&mut self, rules: &Rules, seed: u64) {
        for (index, pair) in self.all.iter_mut().enumerate() {
            pair.past.sum(&pair.policy.tally(pair.direction));
            pair.policy = policy(rules, seed, index);
        }
    }

    /// Returns the effects of the rules so far, summed over all directions.
    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for pair in &self.all {
            tally.sum(&pair.past);
            tally.sum(&pair.policy.tally(pair.direction));
        }
        tally
    }

    /// Decides about a frame from one node to another.
    pub(crate) fn judge(
        &mut self,
        sender: usize,
        receiver: usize,
        start: Start,
        frame: &[u8],
        now_ns: u64,
    ) -> Fate {
        let pair = &mut self.all[sender * self.nodes + receiver];
        let (facts, _) = Facts::of(start, frame, pair.direction, None);
        // Any byte of the frame may be corrupted, including those below the BTH.
        let facts = Facts { len: frame.len(), ..facts };
        let verdict = pair.policy.judge_at(pair.direction, &facts, now_ns);
        Fate { verdict, is_lost: pair.cut || verdict == Verdict::Drop }
    }
}
