//! The mishaps of a run, drawn from its seed, and counts of the kinds that happened.

use remora_fabric::World;
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};

/// The kinds of mishaps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    Loss,
    Reordering,
    /// A client dies in the middle of an operation.
    Death,
    /// A server crashes and restarts with its memory.
    Restart,
    /// A server crashes and restarts without its memory.
    Empty,
    /// A node is cut off from all others for a while.
    Partition,
}

impl Mishap {
    pub(crate) const ALL: [Mishap; 6] =
        [Mishap::Loss, Mishap::Reordering, Mishap::Death, Mishap::Restart, Mishap::Empty, Mishap::Partition];
}

/// The mishaps of a run; each has a chance of two fifths.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    has: [bool; Mishap::ALL.len()],
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Plan {
        Plan { has: std::array::from_fn(|_| random.below(5) < 2) }
    }

    /// Returns the plan with this mishap in addition.
    pub(crate) fn with(mut self, mishap: Mishap) -> Plan {
        self.has[mishap as usize] = true;
        self
    }

    pub(crate) fn has(&self, mishap: Mishap) -> bool {
        self.has[mishap as usize]
    }

    /// Returns the fault rules of the links.
    pub(crate) fn rules(&self) -> Rules {
        let loss = self.has(Mishap::Loss).then(|| Rule::chance(Action::Drop, 0.03));
        let late = self.has(Mishap::Reordering).then(|| Rule::chance(Action::Reorder { frames: 3 }, 0.05));
        Rules::of(loss.into_iter().chain(late).collect())
    }
}

/// Counts of the mishaps that really happened, over many runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    runs: u32,
    fired: [u32; Mishap::ALL.len()],
    now: [bool; Mishap::ALL.len()],
    last: [bool; Mishap::ALL.len()],
}

impl Tally {
    /// Records a mishap in this run.
    pub(crate) fn fired(&mut self, mishap: Mishap) {
        self.now[mishap as usize] = true;
    }

    /// Ends a run; loss and reordering are taken from the counters of its links.
    pub(crate) fn run_over(&mut self, world: &World) {
        let links = world.faults();
        self.now[Mishap::Loss as usize] |= links.dropped > 0;
        self.now[Mishap::Reordering as usize] |= links.reordered > 0;
        self.runs += 1;
        let now = std::mem::take(&mut self.now);
        self.last = now;
        self.fired.iter_mut().zip(now).for_each(|(fired, now)| *fired += u32::from(now));
    }

    /// Returns true if the mishap happened in the last run.
    pub(crate) fn fired_last(&self, mishap: Mishap) -> bool {
        self.last[mishap as usize]
    }

    /// Checks that each of these mishaps happened in at least a fifth of the runs.
    pub(crate) fn check(&self, mishaps: &[Mishap]) {
        println!("{} runs, of which had {:?}: {:?}", self.runs, Mishap::ALL, self.fired);
        for mishap in mishaps {
            let fired = self.fired[*mishap as usize];
            assert!(fired * 5 >= self.runs, "{mishap:?} fired in {fired} of {} runs", self.runs);
        }
    }
}

/// Disconnects a node from all others, or reconnects it.
pub(crate) fn cut_off(world: &mut World, node: usize, nodes: usize, cut: bool) {
    for other in (0..nodes).filter(|other| *other != node) {
        world.cut(node, other, cut);
        world.cut(other, node, cut);
    }
}
