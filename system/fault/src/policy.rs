//! Applies rules to a sequence of frames. Pure: no port, no clock, no I/O.

use super::facts::Facts;
use super::rules::{Action, Direction, Rule, Rules};
use crate::Random;
use crate::occasions::Counted;

/// The decision on a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame passes unchanged.
    Pass,
    /// The frame is dropped.
    Drop,
    /// The frame is delivered twice.
    Duplicate,
    /// The frame is held until `frames` later frames of its direction have passed.
    Reorder {
        /// Number of frames that overtake it.
        frames: u32,
    },
    /// The frame is held for a time.
    Delay {
        /// Delay in nanoseconds.
        ns: u64,
    },
    /// The byte at offset `at` is XORed with `mask`, which is not 0.
    Corrupt {
        /// Offset of the byte, less than the length in the frame's facts. Counted from the BTH for a port,
        /// and from the start of the frame for the simulated fabric.
        at: usize,
        /// Bits to invert.
        mask: u8,
    },
}

/// Number of verdicts of each kind in one direction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of frames that passed.
    pub passed: u64,
    /// Number of dropped frames.
    pub dropped: u64,
    /// Number of duplicated frames.
    pub duplicated: u64,
    /// Number of reordered frames.
    pub reordered: u64,
    /// Number of delayed frames.
    pub delayed: u64,
    /// Number of corrupted frames.
    pub corrupted: u64,
}

impl Tally {
    /// Returns the number of frames with a fault.
    pub fn faults(&self) -> u64 {
        self.dropped + self.duplicated + self.reordered + self.delayed + self.corrupted
    }

    /// Adds the counts of another link or direction.
    pub fn sum(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.dropped += other.dropped;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
    }

    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Pass => &mut self.passed,
            Verdict::Drop => &mut self.dropped,
            Verdict::Duplicate => &mut self.duplicated,
            Verdict::Reorder { .. } => &mut self.reordered,
            Verdict::Delay { .. } => &mut self.delayed,
            Verdict::Corrupt { .. } => &mut self.corrupted,
        } += 1;
    }
}

/// State of one rule for one direction.
#[derive(Clone, Debug)]
struct State {
    counted: Counted,
    rail: Rail,
}

/// The state of a slow rail.
#[derive(Clone, Debug, Default)]
struct Rail {
    /// The time at which the last frame has been transmitted.
    free_ns: u64,
    /// The time at which the last frame arrives.
    arrival_ns: u64,
}

impl Rail {
    /// Returns the delay of a frame of `bits` bits that comes now.
    fn delay(&mut self, now_ns: u64, bits: u64, bits_per_s: u64, latency_ns: u64) -> u64 {
        let transmission = u128::from(bits) * 1_000_000_000 / u128::from(bits_per_s.max(1));
        self.free_ns =
            self.free_ns.max(now_ns).saturating_add(u64::try_from(transmission).unwrap_or(u64::MAX));
        self.arrival_ns = self.arrival_ns.max(self.free_ns.saturating_add(latency_ns));
        self.arrival_ns - now_ns
    }
}

/// Rules with their state. Each rule uses a separate random stream for each direction, so that the faults of
/// sent frames do not depend on the frames received between them.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    states: Vec<[State; 2]>,
    tallies: [Tally; 2],
}

impl Policy {
    /// Returns the rules in their initial state.
    pub fn new(rules: &Rules) -> Policy {
        let mut seeds = Random::new(rules.seed);
        let mut state = || State { counted: Counted::new(Random::new(seeds.bits())), rail: Rail::default() };
        Policy {
            rules: rules.rules.clone(),
            states: rules.rules.iter().map(|_| [state(), state()]).collect(),
            tallies: Default::default(),
        }
    }

    /// Returns true if a decision depends on the time.
    pub fn is_timed(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.action, Action::Slow { .. }))
    }

    /// Decides on a frame at time 0.
    pub fn judge(&mut self, direction: Direction, facts: &Facts) -> Verdict {
        self.judge_at(direction, facts, 0)
    }

    /// Decides on a frame. The first rule that applies decides, and later rules do not see the frame.
    pub fn judge_at(&mut self, direction: Direction, facts: &Facts, now_ns: u64) -> Verdict {
        let way = direction as usize;
        let mut verdict = Verdict::Pass;
        for (rule, states) in self.rules.iter().zip(&mut self.states) {
            if rule.directions.include(direction)
                && matches(rule, facts)
                && states[way].counted.fires(&rule.occasions)
            {
                verdict = draw(rule.action, facts, &mut states[way], now_ns);
                break;
            }
        }
        self.tallies[way].add(verdict);
        verdict
    }

    /// Returns true if any rule can apply to frames of this direction.
    pub fn looks(&self, direction: Direction) -> bool {
        self.rules.iter().any(|rule| rule.directions.include(direction))
    }

    /// Returns the counts of decisions so far.
    pub fn tally(&self, direction: Direction) -> Tally {
        self.tallies[direction as usize]
    }

    /// Returns the number of frames of this direction to which rule number `rule` (from 0) was applied.
    pub fn applied(&self, rule: usize, direction: Direction) -> u64 {
        self.states.get(rule).map_or(0, |states| states[direction as usize].counted.applied)
    }
}

fn matches(rule: &Rule, facts: &Facts) -> bool {
    let opcode = rule.opcodes.is_empty() || facts.opcode.is_some_and(|opcode| rule.opcodes.contains(&opcode));
    let peer = rule.peer.is_none_or(|wanted| facts.peer.is_some_and(|peer| wanted.matches(peer)));
    opcode && peer
}

fn draw(action: Action, facts: &Facts, state: &mut State, now_ns: u64) -> Verdict {
    let State { counted: Counted { random, .. }, rail } = state;
    match action {
        Action::Drop => Verdict::Drop,
        Action::Duplicate => Verdict::Duplicate,
        Action::Reorder { frames } => Verdict::Reorder { frames },
        Action::Delay { min_ns, max_ns } => {
            Verdict::Delay { ns: min_ns + random.below((max_ns - min_ns.min(max_ns)).saturating_add(1)) }
        }
        Action::Slow { bits_per_s, min_ns, max_ns } => {
            let latency = random.between(min_ns, max_ns);
            Verdict::Delay { ns: rail.delay(now_ns, facts.len as u64 * 8, bits_per_s, latency) }
        }
        Action::Corrupt => Verdict::Corrupt {
            at: random.below(facts.len as u64) as usize,
            mask: 1 + random.below(255) as u8,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(opcode: u8) -> Facts {
        Facts { opcode: Some(opcode), peer: None, len: 64 }
    }

    fn policy(text: &str) -> Policy {
        Policy::new(&Rules::parse(text).unwrap())
    }

    const MIX: &str = "
        seed = 5
        [[rule]]
        fault = 'drop'
        probability = 0.1
        [[rule]]
        fault = 'duplicate'
        probability = 0.05
        [[rule]]
        fault = 'reorder'
        by = 3
        probability = 0.05
        [[rule]]
        fault = 'delay'
        delay_us = [10, 20]
        probability = 0.05
        [[rule]]
        fault = 'corrupt'
        probability = 0.02";

    #[test]
    fn same_seed_same_decisions_however_the_directions_interleave() {
        let mut one = policy(MIX);
        let mut two = policy(MIX);
        let sent: Vec<_> = (0..5000).map(|_| one.judge(Direction::Send, &facts(4))).collect();
        let received: Vec<_> = (0..5000).map(|_| one.judge(Direction::Receive, &facts(4))).collect();
        for index in 0..5000 {
            assert_eq!(two.judge(Direction::Receive, &facts(4)), received[index]);
            assert_eq!(two.judge(Direction::Send, &facts(4)), sent[index]);
        }
        assert_ne!(sent, received, "each direction has a stream of its own");
        let mut other = policy(&MIX.replace("seed = 5", "seed = 6"));
        let others: Vec<_> = (0..5000).map(|_| other.judge(Direction::Send, &facts(4))).collect();
        assert_ne!(sent, others);
    }

    #[test]
    fn the_decisions_of_seed_5_are_what_they_always_were() {
        let mut policy = policy(MIX);
        let first: Vec<_> = (0..1000)
            .filter_map(|index| match policy.judge(Direction::Send, &facts(4)) {
                Verdict::Pass => None,
                verdict => Some((index, verdict)),
            })
            .take(9)
            .collect();
        assert_eq!(first, GOLDEN);
    }

    /// Recorded decisions; a change of these changes the meaning of every rule file.
    const GOLDEN: [(usize, Verdict); 9] = [
        (3, Verdict::Duplicate),
        (13, Verdict::Duplicate),
        (14, Verdict::Duplicate),
        (16, Verdict::Duplicate),
        (21, Verdict::Reorder { frames: 3 }),
        (22, Verdict::Corrupt { at: 48, mask: 70 }),
        (27, Verdict::Duplicate),
        (29, Verdict::Drop),
        (31, Verdict::Delay { ns: 16_063 }),
    ];

    #[test]
    fn probabilities_are_kept_and_everything_is_counted() {
        let mut policy = policy(MIX);
        let frames = 200_000;
        for _ in 0..frames {
            match policy.judge(Direction::Send, &facts(4)) {
                Verdict::Delay { ns } => assert!((10_000..=20_000).contains(&ns)),
                Verdict::Corrupt { at: offset, mask } => assert!(offset < 64 && mask != 0),
                Verdict::Reorder { frames } => assert_eq!(frames, 3),
                _ => {}
            }
        }
        let tally = policy.tally(Direction::Send);
        assert_eq!(tally.passed + tally.faults(), frames);
        // A later rule sees only the frames that earlier rules left. The bounds are six standard deviations.
        let mut left = frames as f64;
        for (count, probability) in [
            (tally.dropped, 0.1),
            (tally.duplicated, 0.05),
            (tally.reordered, 0.05),
            (tally.delayed, 0.05),
            (tally.corrupted, 0.02),
        ] {
            let deviation = (left * probability * (1.0 - probability)).sqrt();
            assert!((count as f64 - left * probability).abs() < 6.0 * deviation, "{count} of {left}");
            left -= count as f64;
        }
        assert_eq!(policy.applied(0, Direction::Send), tally.dropped);
        assert_eq!(policy.tally(Direction::Receive), Tally::default());
    }

    #[test]
    fn after_every_and_at_most_count_matching_frames() {
        let mut policy = policy(
            "[[rule]]\nfault = 'drop'\nopcodes = [10]\nafter = 4\nevery = 3\nat_most = 2\ndirection = 'in'",
        );
        assert!(!policy.looks(Direction::Send));
        let mut dropped = Vec::new();
        for number in 1..=30 {
            assert_eq!(policy.judge(Direction::Receive, &facts(11)), Verdict::Pass, "another op-code");
            if policy.judge(Direction::Receive, &facts(10)) == Verdict::Drop {
                dropped.push(number);
            }
        }
        assert_eq!(dropped, [7, 10]);
    }

    /// At 8 Mbit/s, 64 bytes take 64 µs. Frames wait for each other and arrive in order.
    #[test]
    fn a_slow_rail_has_a_rate_and_a_latency() {
        let mut policy = policy("[[rule]]\nfault = 'slow'\nrate_mbps = 8\nlatency_us = [100, 200]");
        let mut last = 0;
        for (number, now) in (1..=100).zip((0..).step_by(1000)) {
            let Verdict::Delay { ns } = policy.judge_at(Direction::Send, &facts(4), now) else { panic!() };
            let arrival = now + ns;
            let transmitted = number * 64_000;
            assert!(arrival >= last && (transmitted + 100_000..=transmitted + 200_000).contains(&arrival));
            last = arrival;
        }
        let Verdict::Delay { ns } = policy.judge_at(Direction::Send, &facts(4), 1 << 40) else { panic!() };
        assert!((164_000..=264_000).contains(&ns), "the rail is free again");
    }

    #[test]
    fn a_rule_for_a_peer_leaves_others_alone() {
        let mut policy = policy("[[rule]]\nfault = 'drop'\npeer = '10.0.0.2'");
        let peer = |text: &str| {
            let address: std::net::IpAddr = text.parse().unwrap();
            Some(remora_wire::frame::Endpoint { address: address.into(), udp_port: 4791 })
        };
        let judged = |policy: &mut Policy, peer| policy.judge(Direction::Send, &Facts { peer, ..facts(4) });
        assert_eq!(judged(&mut policy, peer("10.0.0.2")), Verdict::Drop);
        assert_eq!(judged(&mut policy, peer("10.0.0.3")), Verdict::Pass);
        assert_eq!(judged(&mut policy, None), Verdict::Pass);
    }
}
