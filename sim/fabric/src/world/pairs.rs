//! What befalls frames on their way from one node to another: fault rules, and links that are cut.

use remora_fault::{Direction, Facts, Policy, Rules, Tally, Verdict};
use remora_wire::frame::Start;

/// Two nodes, one way.
struct Pair {
    policy: Policy,
    /// Verdicts of earlier rules.
    past: Tally,
    direction: Direction,
    cut: bool,
}

/// Every pair of nodes, each way for itself.
pub(super) struct Pairs {
    nodes: usize,
    all: Vec<Pair>,
}

/// What happens to a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// By the rules.
    pub verdict: Verdict,
    /// It is lost, by the rules or because its link is cut.
    pub is_lost: bool,
}

/// The rules of a pair, with a random stream for each.
fn policy(rules: &Rules, seed: u64, index: usize) -> Policy {
    let own = (index as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d);
    Policy::new(&Rules { seed: rules.seed ^ seed ^ own, ..rules.clone() })
}

impl Pairs {
    pub fn new(nodes: usize, rules: &Rules, seed: u64) -> Pairs {
        let pair = |index: usize| Pair {
            policy: policy(rules, seed, index),
            past: Tally::default(),
            direction: if index / nodes < index % nodes { Direction::Send } else { Direction::Receive },
            cut: false,
        };
        Pairs { nodes, all: (0..nodes * nodes).map(pair).collect() }
    }

    /// A link that is cut loses everything, without counting it as a fault.
    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        self.all[from * self.nodes + to].cut = cut;
    }

    /// Other rules from now on.
    pub fn set_rules(&mut self, rules: &Rules, seed: u64) {
        for (index, pair) in self.all.iter_mut().enumerate() {
            pair.past.sum(&pair.policy.tally(pair.direction));
            pair.policy = policy(rules, seed, index);
        }
    }

    /// What the rules did so far, all pairs together.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for pair in &self.all {
            tally.sum(&pair.past);
            tally.sum(&pair.policy.tally(pair.direction));
        }
        tally
    }

    /// A frame leaves for another node.
    pub fn judge(&mut self, from: usize, to: usize, start: Start, frame: &[u8]) -> Fate {
        let pair = &mut self.all[from * self.nodes + to];
        let (facts, _) = Facts::of(start, frame, pair.direction, None);
        // Any byte of the frame may be corrupted, those below the BTH too.
        let facts = Facts { len: frame.len(), ..facts };
        let verdict = pair.policy.judge(pair.direction, &facts);
        Fate { verdict, is_lost: pair.cut || verdict == Verdict::Drop }
    }
}
