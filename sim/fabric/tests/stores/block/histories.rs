//! Histories of many seeds are linearizable, and deliberate bugs are detected.

use remora_check::{Measures, Requirements, hold, linearizable};
use remora_store::block::{Canary, abdlock, prism_rs};

use super::design::Design;
use super::run::Run;
use crate::mishaps::{Mishap, Tally};
use crate::seeds;

const FAULTS: [(Mishap, &str); 6] = [
    (Mishap::Loss, "loss"),
    (Mishap::Reordering, "reordering"),
    (Mishap::Death, "death"),
    (Mishap::Restart, "restart"),
    (Mishap::Empty, "empty"),
    (Mishap::Partition, "partition"),
];

fn histories<D: Design>(name: &str) {
    let mut tally = Tally::default();
    let mut measures = Measures::default();
    let seeds = seeds::share(1000);
    for seed in 0..seeds {
        let mut run: Run<D> = Run::new(seed, Canary::Sound);
        run.run(&mut tally);
        hold(&format!("{name} seed {seed}"), &run.history, linearizable);
        let fired: Vec<&str> =
            FAULTS.iter().filter(|(mishap, _)| tally.fired_last(*mishap)).map(|(_, name)| *name).collect();
        measures.add(&run.history, &fired);
    }
    let faults = FAULTS.map(|(_, name)| name);
    measures.hold(&Requirements {
        histories: seeds as usize,
        clients: 8,
        keys: 16,
        overlapping: 0.3,
        faults: &faults,
        fired: 0.2,
    });
}

/// Returns the first seed whose history the checker rejects.
fn found<D: Design>(canary: Canary) -> Option<u64> {
    (0..100).find(|seed| {
        let mut run: Run<D> = Run::new(*seed, canary);
        run.run(&mut Tally::default());
        linearizable(&run.history).is_err()
    })
}

/// Eight clients per history. Loss, reordering, deaths, restarts with and without memory, and partitions each
/// occur in at least a fifth of the runs. At the end, all buffers of each replica but the live ones are free.
#[test]
fn every_history_of_prism_rs_is_linearizable() {
    histories::<prism_rs::Client>("prism-rs");
}

#[test]
fn a_prism_rs_that_lets_the_older_overwrite_the_newer_is_found() {
    let seed = found::<prism_rs::Client>(Canary::NoTagCheck).expect("a history that is refused");
    println!("found by seed {seed}");
}

#[test]
fn a_prism_rs_whose_readers_do_not_write_back_is_found() {
    let seed = found::<prism_rs::Client>(Canary::NoWriteBack).expect("a history that is refused");
    println!("found by seed {seed}");
}

/// Runs the histories of ABDLOCK, with back-off and recovery of locks.
#[test]
fn every_history_of_abdlock_is_linearizable() {
    histories::<abdlock::Client>("abdlock");
}

#[test]
fn an_abdlock_whose_readers_do_not_write_back_is_found() {
    let seed = found::<abdlock::Client>(Canary::NoWriteBack).expect("a history that is refused");
    println!("found by seed {seed}");
}
