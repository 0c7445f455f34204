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

mod arm;
mod epoch;
mod flow;
mod operation;
mod report;
pub mod rma;
mod trouble;
mod unreliable;
mod world;

pub use arm::{Arm, Buffer, Options};
pub use operation::Verb;
pub use report::Report;
pub use trouble::Trouble;
pub use unreliable::{Mishap, UnreliableReport, run_unreliable};
pub use world::{WorldArm, bad_world};

use epoch::Pair;

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
