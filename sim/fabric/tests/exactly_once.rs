//! Exactly-once execution under faults: random verbs over bad links, seed by seed, compared with a plain
//! model.
//!
//! A failure prints its seed. `REMORA_SEED=n cargo test -p remora-fabric --test exactly_once replay --
//! --nocapture` runs only this seed.

mod seeds;

use remora_conformance::{Options, Report, WorldArm, bad_world, run};
use remora_fabric::World;
use remora_transport::Counters;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a seed.
#[derive(Clone, Debug, Default)]
struct Outcome {
    report: Report,
    counters: Counters,
    faults: remora_fault::Tally,
    trace: u64,
}

fn one(seed: u64, verbs: u64, irn: bool) -> Outcome {
    let mut arm = WorldArm::new(World::new(&bad_world(seed)));
    let options = Options { verbs, irn, ..Options::default() };
    let report = catch_unwind(AssertUnwindSafe(|| run(&mut arm, seed, &options))).unwrap_or_else(|panic| {
        println!("left {:?}\nright {:?}", arm.world.counters(0), arm.world.counters(1));
        println!("{:?} at {:?}", arm.world.faults(), arm.world.now());
        std::panic::resume_unwind(panic);
    });
    let mut counters = arm.world.counters(0);
    counters.add(&arm.world.counters(1));
    Outcome { report, counters, faults: arm.world.faults(), trace: arm.world.trace() }
}

/// Verbs per link in a whole run: two million in total.
const VERBS: u64 = 20_000;

/// Number of seeds between two progress messages of a long run.
const SHOWN: u64 = 500;

/// Runs all seeds and adds up their results.
fn many(seeds: std::ops::Range<u64>, verbs: u64, irn: bool) -> Outcome {
    let mut sum = Outcome::default();
    let alone = |seed| {
        catch_unwind(AssertUnwindSafe(|| one(seed, verbs, irn))).unwrap_or_else(|_| {
            panic!(
                "seed {seed} failed (above); again, alone: REMORA_SEED={seed} REMORA_VERBS={verbs} REMORA_IRN={} cargo test -p \
                 remora-fabric --test exactly_once replay -- --nocapture",
                u8::from(irn)
            )
        })
    };
    seeds::each(seeds.clone(), alone, |seed, outcome| {
        sum.report.add(&outcome.report);
        sum.counters.add(&outcome.counters);
        sum.faults.sum(&outcome.faults);
        if (seed + 1).is_multiple_of(SHOWN) {
            println!("{} of {} seeds begun", seed + 1 - seeds.start, seeds.end - seeds.start);
        }
    });
    sum
}

/// Checks that everything that should have happened did happen.
fn assert_complete(outcome: &Outcome) {
    let counters = &outcome.counters;
    // Only go-back-N has this event: a response shows that an earlier one was lost.
    assert_counted(outcome, &[("implied NAK", counters.implied_nak_seq_err)]);
}

/// Checks the same over IRN, including the events that only IRN has.
fn assert_complete_with_irn(outcome: &Outcome) {
    let counters = &outcome.counters;
    let own = [
        ("taken ahead of a gap", counters.irn_ahead_pkts),
        ("recovery", counters.irn_recoveries),
        ("RTO_low", counters.irn_short_timeouts),
        ("timeout of responses", counters.irn_response_timeouts),
        ("response sent again", counters.irn_responses_repeated),
    ];
    assert_counted(outcome, &own);
    assert_eq!(counters.irn_beyond_pkts, 0, "no peer has more in flight than is remembered");
}

fn assert_counted(outcome: &Outcome, own: &[(&str, u64)]) {
    let Outcome { report, counters, faults, .. } = outcome;
    println!("{report:?}\n{counters:?}\n{faults:?}");
    assert_eq!(report.missing(), Vec::<String>::new());
    let counted = [&seeds::reliable(counters)[..], &seeds::faults(faults), own].concat();
    assert_eq!(seeds::never(&counted), Vec::<String>::new());
    // Seven retries over links this bad nearly always suffice.
    assert!(report.bad_luck * 100_000 < report.verbs(), "{} of {}", report.bad_luck, report.verbs());
}

/// Runs random verbs over more than a hundred links that lose, duplicate, reorder, delay and corrupt
/// frames, and compares memory and completions with a plain model. Over all seeds each verb, NAK code,
/// retry cause and kind of fault occurs.
#[test]
fn random_verbs_over_a_hundred_bad_links() {
    let outcome = many(0..104, seeds::share(VERBS), false);
    assert!(outcome.report.verbs() >= 100 * seeds::share(VERBS));
    assert_complete(&outcome);
}

#[test]
fn random_verbs_over_a_hundred_bad_links_with_irn() {
    let outcome = many(1000..1104, seeds::share(VERBS), true);
    assert!(outcome.report.verbs() >= 100 * seeds::share(VERBS));
    assert_complete_with_irn(&outcome);
}

#[test]
fn one_seed_run_twice_gives_the_same_trace() {
    for (seed, irn) in [(3, false), (1001, false), (4, true), (1002, true)] {
        let first = one(seed, 3_000, irn);
        let second = one(seed, 3_000, irn);
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!((first.report, first.counters), (second.report, second.counters), "seed {seed}");
    }
    assert_ne!(one(1, 500, false).trace, one(2, 500, false).trace);
}

#[test]
#[ignore = "soak: hours"]
fn soak_ten_thousand_seeds_with_irn() {
    assert_complete_with_irn(&many(0..10_000, 20_000, true));
}

#[test]
#[ignore = "soak: hours"]
fn soak_ten_thousand_seeds() {
    assert_complete(&many(0..10_000, 20_000, false));
}

#[test]
fn replay() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = number("REMORA_SEED") {
        println!(
            "{:?}",
            one(seed, number("REMORA_VERBS").unwrap_or(20_000), number("REMORA_IRN") == Some(1))
        );
    }
}
