//! The mishaps of a run, drawn from its seed, and how often each kind happened.

use remora_fabric::World;
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};

/// Kinds of mishaps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mishap {
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
    pub const ALL: [Mishap; 6] =
        [Mishap::Loss, Mishap::Reordering, Mishap::Death, Mishap::Restart, Mishap::Empty, Mishap::Partition];
}

/// Which of them a run has; each has a chance of two fifths.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    has: [bool; Mishap::ALL.len()],
}

impl Plan {
    pub fn draw(random: &mut Random) -> Plan {
        Plan { has: std::array::from_fn(|_| random.below(5) < 2) }
    }

    /// The same, and this.
    pub fn with(mut self, mishap: Mishap) -> Plan {
        self.has[mishap as usize] = true;
        self
    }

    pub fn has(&self, mishap: Mishap) -> bool {
        self.has[mishap as usize]
    }

    /// The rules of the links.
    pub fn rules(&self) -> Rules {
        let loss = self.has(Mishap::Loss).then(|| Rule::chance(Action::Drop, 0.03));
        let late = self.has(Mishap::Reordering).then(|| Rule::chance(Action::Reorder { frames: 3 }, 0.05));
        Rules::of(loss.into_iter().chain(late).collect())
    }
}

/// Mishaps that really came, over many runs.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    runs: u32,
    fired: [u32; Mishap::ALL.len()],
    now: [bool; Mishap::ALL.len()],
    last: [bool; Mishap::ALL.len()],
}

impl Tally {
    /// One came, in this run.
    pub fn fired(&mut self, mishap: Mishap) {
        self.now[mishap as usize] = true;
    }

    /// The run is over; loss and reordering are counted by its links.
    pub fn run_over(&mut self, world: &World) {
        let links = world.faults();
        self.now[Mishap::Loss as usize] |= links.dropped > 0;
        self.now[Mishap::Reordering as usize] |= links.reordered > 0;
        self.runs += 1;
        let now = std::mem::take(&mut self.now);
        self.last = now;
        self.fired.iter_mut().zip(now).for_each(|(fired, now)| *fired += u32::from(now));
    }

    /// Did it come in the run that ended last?
    pub fn fired_last(&self, mishap: Mishap) -> bool {
        self.last[mishap as usize]
    }

    /// Each of these fired in a fifth of the runs at least.
    pub fn check(&self, mishaps: &[Mishap]) {
        println!("{} runs, of which had {:?}: {:?}", self.runs, Mishap::ALL, self.fired);
        for mishap in mishaps {
            let fired = self.fired[*mishap as usize];
            assert!(fired * 5 >= self.runs, "{mishap:?} fired in {fired} of {} runs", self.runs);
        }
    }
}

/// Cuts a node off from all others, or reconnects it.
pub fn cut_off(world: &mut World, node: usize, nodes: usize, cut: bool) {
    for other in (0..nodes).filter(|other| *other != node) {
        world.cut(node, other, cut);
        world.cut(other, node, cut);
    }
}
