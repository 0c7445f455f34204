//! A conformance test that runs random verbs on any pair of connected NICs and compares all results with a
//! model.
//!
//! Two connected NICs execute random verbs in both directions over several queue pairs. All results are
//! compared with a simple model: memory, old values of atomics, messages, and the order and status of
//! completions. An [`Arm`] provides the NICs and transfers their frames: a simulated world with bad links,
//! shared memory, or UDP.
//!
//! An *epoch* is a sequence of random work on one queue pair, with or without one planned [`Trouble`]. Read
//! `epoch.rs` first, then `flow.rs` (one direction of a queue pair and its model).

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

/// A registered memory region at one side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Number of the region, assigned by the arm.
    pub handle: usize,
    /// Side that owns the region, 0 or 1.
    pub side: usize,
    /// Local and remote key of the region.
    pub key: Key,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Two connected NICs. The sides are 0 and 1. Queue pairs are numbered in the order of their connection;
/// `pair` denotes both ends.
pub trait Arm {
    /// Creates and connects a queue pair at each side, each with a completion queue. Returns the number of
    /// the pair.
    fn connect(&mut self, settings: &Settings) -> usize;

    /// Moves both ends to RESET and back to RTS.
    fn reconnect(&mut self, pair: usize, settings: &Settings);

    /// Moves one end to ERR.
    fn fail(&mut self, side: usize, pair: usize);

    /// Registers memory at a side.
    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer;

    /// Deregisters a region.
    fn deregister(&mut self, buffer: &Buffer);

    /// Writes memory like the program that owns it.
    fn store(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]);

    /// Reads memory like the program that owns it.
    fn load(&mut self, buffer: &Buffer, offset: usize, out: &mut [u8]);

    /// Posts a send work request.
    ///
    /// # Errors
    /// The errors of `ibv_post_send`.
    fn post(&mut self, side: usize, pair: usize, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive work request.
    ///
    /// # Errors
    /// The errors of `ibv_post_recv`.
    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError>;

    /// Returns the next completion of one end.
    fn poll(&mut self, side: usize, pair: usize) -> Option<WorkCompletion>;

    /// Lets a short time pass.
    fn pass(&mut self);

    /// Starts or stops losing all frames between the sides. Returns false if this arm cannot do that.
    fn cut(&mut self, cut: bool) -> bool;

    /// Waits until no frame is in flight between the sides, on arms where repeated calls of `pass` do not
    /// ensure this.
    fn settle(&mut self) {}

    /// Returns the largest path MTU that the ports of both sides support.
    fn path_mtu(&self) -> u32 {
        4096
    }

    /// Returns true if receives come from a shared receive queue. They are then not flushed with a queue
    /// pair, and a new connection has a new queue.
    fn shares_receives(&self) -> bool {
        false
    }

    /// Moves one end from SQE back to RTS (unreliable services).
    fn resume(&mut self, _side: usize, _pair: usize) {}

    /// Returns the number of bytes before a message in its receive buffer.
    fn prefix(&self) -> usize {
        0
    }

    /// Returns the maximum message length, if the service limits it.
    fn longest(&self) -> Option<usize> {
        None
    }
}

/// The parameters of a run.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Options {
    /// Total number of verbs to execute.
    pub verbs: u64,
    /// Number of queue pairs.
    pub pairs: usize,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Share of the epochs with a planned error, 0 to 1.
    pub trouble: f64,
    /// Maximum length of WRITEs and READs in bytes.
    pub longest: usize,
    /// True for connections over IRN, where overlapping work is fenced because WRITEs may be executed in any
    /// order.
    pub irn: bool,
    /// Number of turns without progress after which the test fails.
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

/// Runs the test and returns its counts.
///
/// # Panics
/// If any result differs from the model; the message describes the difference.
pub fn run(arm: &mut impl Arm, seed: u64, options: &Options) -> Report {
    let mut random = remora_fault::Random::new(seed);
    let mut report = Report::default();
    let mut pairs: Vec<Pair> =
        (0..options.pairs).map(|index| Pair::new(arm, &mut random, options, index == 0)).collect();
    while report.verbs() < options.verbs {
        // Cutting the link affects all pairs.
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
