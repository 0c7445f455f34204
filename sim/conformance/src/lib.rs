//! The conformance body: one body of random verbs, many arms.
//!
//! Two connected NICs execute random verbs in both directions over several queue pairs. All results are
//! compared with a plain model: memory, old values of atomics, messages, the order and the status of
//! completions. The [`Arm`] exchanges the NICs' frames: a simulated world with a bad link, shared memory,
//! UDP.
//!
//! Heads up: an *epoch* is a stretch of random work on one queue pair, with or without one planned
//! [`Trouble`]. Read `epoch.rs` first, then `flow.rs` (one direction of a queue pair and its model).

mod epoch;
mod flow;
mod operation;
mod report;
pub mod rma;
mod trouble;
mod unreliable;
mod world;

pub use operation::Verb;
pub use report::Report;
pub use trouble::Trouble;
pub use unreliable::{Mishap, UnreliableReport, run_unreliable};
pub use world::{WorldArm, bad_world};

use remora_memory::{Access, Key};
use remora_nic::{PostError, ReceiveRequest, WorkCompletion, WorkRequest};

use epoch::Pair;
use remora_fabric::program::Settings;

/// A registered stretch of memory at one side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The arm's name for it.
    pub handle: usize,
    /// Side that owns it, 0 or 1.
    pub side: usize,
    /// Its local and remote key.
    pub key: Key,
    /// Address of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Two connected NICs. Sides are 0 and 1; queue pairs are numbered as they were connected, and `pair` names
/// both of its ends.
pub trait Arm {
    /// Makes a queue pair at each side, with a completion queue for each, and connects them. Its number.
    fn connect(&mut self, settings: &Settings) -> usize;

    /// Brings both ends through RESET back to RTS.
    fn reconnect(&mut self, pair: usize, settings: &Settings);

    /// Brings one end to ERR.
    fn fail(&mut self, side: usize, pair: usize);

    /// Registers memory at a side.
    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer;

    /// Ends a region.
    fn deregister(&mut self, buffer: &Buffer);

    /// The program writes its own memory.
    fn store(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]);

    /// The program reads its own memory.
    fn load(&mut self, buffer: &Buffer, offset: usize, out: &mut [u8]);

    /// Posts a send work request.
    ///
    /// # Errors
    /// Those of `ibv_post_send`.
    fn post(&mut self, side: usize, pair: usize, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive work request.
    ///
    /// # Errors
    /// Those of `ibv_post_recv`.
    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError>;

    /// The next completion of one end.
    fn poll(&mut self, side: usize, pair: usize) -> Option<WorkCompletion>;

    /// Lets a little time pass.
    fn pass(&mut self);

    /// Loses everything between the sides from now on, or no longer. Returns false if this arm cannot.
    fn cut(&mut self, cut: bool) -> bool;

    /// Lets so much time pass that nothing is on its way between the sides any more, where passing by turns
    /// does not.
    fn settle(&mut self) {}

    /// The longest path MTU that its ports have in common.
    fn path_mtu(&self) -> u32 {
        4096
    }

    /// Receives come from a shared receive queue: they are not flushed with a queue pair, and a new
    /// connection has a new queue.
    fn shares_receives(&self) -> bool {
        false
    }

    /// Brings one end from SQE back to RTS (unreliable services).
    fn resume(&mut self, _side: usize, _pair: usize) {}

    /// Bytes in front of a message in its receive buffer.
    fn prefix(&self) -> usize {
        0
    }

    /// The longest message, if there is a limit beside the verbs' own.
    fn longest(&self) -> Option<usize> {
        None
    }
}

/// The size of a run.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Options {
    /// Verbs to execute, in all.
    pub verbs: u64,
    /// Number of queue pairs.
    pub pairs: usize,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Part of the epochs that end in trouble.
    pub trouble: f64,
    /// Longest WRITE and READ, bytes.
    pub longest: usize,
    /// Over IRN: overlapping work is then fenced, since WRITEs are placed in any order.
    pub irn: bool,
    /// Turns without any progress after which the body gives up: the arm hangs.
    pub patience: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            verbs: 20_000,
            pairs: 3,
            timeout: 9,
            trouble: 0.3,
            longest: 1 << 20,
            irn: false,
            patience: 2_000_000,
        }
    }
}

/// Runs the body, and returns its counts.
///
/// # Panics
/// When anything differs from the model; the message describes the difference.
pub fn run(arm: &mut impl Arm, seed: u64, options: &Options) -> Report {
    let mut random = remora_fault::Random::new(seed);
    let mut report = Report::default();
    let mut pairs: Vec<Pair> =
        (0..options.pairs).map(|index| Pair::new(arm, &mut random, options, index == 0)).collect();
    while report.verbs() < options.verbs {
        // A cut link is the trouble of all pairs.
        let trouble = (random.chance(options.trouble * 0.1) && arm.cut(false)).then_some(Trouble::Cut);
        for pair in &mut pairs {
            pair.begin(arm, options, trouble);
        }
        let mut waited = 0;
        while !pairs.iter().all(Pair::is_over) {
            let mut progress = false;
            for pair in pairs.iter_mut().filter(|pair| !pair.is_over()) {
                progress |= pair.turn(arm, &mut report);
            }
            arm.pass();
            waited = if progress { 0 } else { waited + 1 };
            if waited > options.patience {
                let states: Vec<String> = pairs.iter().map(Pair::describe).collect();
                panic!("no progress for {waited} turns: {}", states.join("; "));
            }
        }
        arm.cut(false);
        for pair in &mut pairs {
            pair.end(arm, &mut report);
        }
    }
    report
}
