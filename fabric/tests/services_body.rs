//! The conformance bodies for the services beside RC, over bad links, seed by seed: XRC as RC, exactly once.
//!
//! A failure names its seed; `REMORA_SEED=n cargo test -p remora-fabric --test services_body replay --
//! --nocapture` runs only that one.

use nic::Service;
use remora_fabric::conformance::{Options, Report, WorldArm, bad_world, run};
use remora_fabric::{World, fault};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::Counters;

/// What the seeds of one service came to.
#[derive(Clone, Debug, Default)]
struct Outcome {
    reliable: Report,
    counters: Counters,
    faults: fault::Tally,
    trace: u64,
}

fn one(service: Service, seed: u64, verbs: u64) -> Outcome {
    let mut arm = WorldArm::of(service, World::new(&bad_world(seed)));
    let options = Options { verbs, ..Options::default() };
    let reliable = run(&mut arm, seed, &options);
    let mut counters = arm.world.counters(0);
    counters.add(&arm.world.counters(1));
    Outcome { reliable, counters, faults: arm.world.faults(), trace: arm.world.trace() }
}

/// All seeds, on two threads.
fn many(service: Service, seeds: std::ops::Range<u64>, verbs: u64) -> Outcome {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new(Outcome::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| one(service, seed, verbs)))
                .unwrap_or_else(|_| panic!("{service:?}: seed {seed} of {verbs} verbs failed (above)"));
            let mut sum = sum.lock().expect("no thread panics with it");
            sum.reliable.add(&outcome.reliable);
            sum.counters.add(&outcome.counters);
            sum.faults.sum(&outcome.faults);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    sum.into_inner().expect("no thread panicked")
}

fn never(counted: &[(&str, u64)]) -> Vec<String> {
    counted.iter().filter(|(_, count)| *count == 0).map(|(name, _)| (*name).to_owned()).collect()
}

fn faults(faults: &fault::Tally) -> Vec<String> {
    never(&[
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
    ])
}

const NOTHING: Vec<String> = Vec::new();

#[test]
fn xrc_is_exactly_once_over_a_hundred_bad_links() {
    let outcome = many(Service::XrcInitiator, 5_000..5_104, 6_000);
    let Outcome { reliable, counters, .. } = &outcome;
    println!("{reliable:?}\n{counters:?}\n{:?}", outcome.faults);
    assert_eq!(reliable.missing(), NOTHING);
    let counted = [
        ("timeout", counters.local_ack_timeout_err),
        ("sequence NAK", counters.packet_seq_err),
        ("implied NAK", counters.implied_nak_seq_err),
        ("RNR", counters.rnr_nak_retry_err),
        ("RNR sent", counters.send_rnr_err),
        ("retries exhausted", counters.retry_exceeded_err),
        ("RNR retries exhausted", counters.retry_rnr_exceeded_err),
        ("remote access NAK sent", counters.resp_remote_access_errors),
        ("invalid request NAK sent", counters.resp_remote_invalid_request),
        ("remote operation NAK sent", counters.resp_remote_op_errors),
        ("remote access NAK", counters.req_remote_access_errors),
        ("invalid request NAK", counters.req_remote_invalid_request),
        ("remote operation NAK", counters.req_remote_op_errors),
        ("duplicate", counters.duplicate_request),
        ("gap", counters.out_of_sequence),
        ("wrong ICRC", counters.rx_icrc_encapsulated),
        ("malformed", counters.malformed_pkts),
    ];
    assert_eq!((never(&counted), faults(&outcome.faults)), (NOTHING, NOTHING));
    assert!(reliable.bad_luck * 100_000 < reliable.verbs(), "{} of {}", reliable.bad_luck, reliable.verbs());
}

#[test]
fn one_seed_run_twice_gives_the_same_trace() {
    let service = Service::XrcInitiator;
    let (first, second) = (one(service, 3, 1_000), one(service, 3, 1_000));
    assert_eq!(first.trace, second.trace, "{service:?}");
    assert_eq!((first.reliable, first.counters), (second.reliable, second.counters));
}

#[test]
#[ignore = "soak: hours"]
fn soak_thousands_of_seeds() {
    many(Service::XrcInitiator, 0..5_000, 20_000);
}

#[test]
fn replay() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let service = Service::XrcInitiator;
    if let Some(seed) = number("REMORA_SEED") {
        println!("{:?}", one(service, seed, number("REMORA_VERBS").unwrap_or(3_000)));
    }
}
