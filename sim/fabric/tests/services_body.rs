//! The conformance tests for the services other than RC, over bad links, seed by seed. XRC is exactly once
//! like RC; UC and UD deliver messages whole or not at all.
//!
//! A failure names its seed. This command runs only that one: `REMORA_SERVICE=uc REMORA_SEED=n cargo test -p
//! remora-fabric --test services_body replay -- --nocapture`.

mod seeds;

use remora_conformance::{
    Mishap, Options, Report, UnreliableReport, WorldArm, bad_world, run, run_unreliable,
};
use remora_fabric::World;
use remora_nic::Service;
use remora_transport::Counters;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The results of the seeds of a service.
#[derive(Clone, Debug, Default)]
struct Outcome {
    reliable: Report,
    unreliable: UnreliableReport,
    counters: Counters,
    faults: remora_fault::Tally,
    trace: u64,
}

fn one(service: Service, seed: u64, verbs: u64) -> Outcome {
    let mut arm = WorldArm::of(service, World::new(&bad_world(seed)));
    let options = Options { verbs, ..Options::default() };
    let mut outcome = Outcome::default();
    if service == Service::XrcInitiator {
        outcome.reliable = run(&mut arm, seed, &options);
    } else {
        outcome.unreliable = run_unreliable(&mut arm, seed, &options);
    }
    outcome.counters = arm.world.counters(0);
    outcome.counters.add(&arm.world.counters(1));
    (outcome.faults, outcome.trace) = (arm.world.faults(), arm.world.trace());
    outcome
}

/// Runs all seeds and adds up their results.
fn many(service: Service, seeds: std::ops::Range<u64>, verbs: u64) -> Outcome {
    let mut sum = Outcome::default();
    let alone = |seed| {
        catch_unwind(AssertUnwindSafe(|| one(service, seed, verbs)))
            .unwrap_or_else(|_| panic!("{service:?}: seed {seed} of {verbs} verbs failed (above)"))
    };
    seeds::each(seeds, alone, |_, outcome| {
        sum.reliable.add(&outcome.reliable);
        sum.unreliable.add(&outcome.unreliable);
        sum.counters.add(&outcome.counters);
        sum.faults.sum(&outcome.faults);
    });
    sum
}

const NOTHING: Vec<String> = Vec::new();

#[test]
fn xrc_is_exactly_once_over_a_hundred_bad_links() {
    let outcome = many(Service::XrcInitiator, 5_000..5_104, seeds::share(6_000));
    let Outcome { reliable, counters, .. } = &outcome;
    println!("{reliable:?}\n{counters:?}\n{:?}", outcome.faults);
    assert_eq!(reliable.missing(), NOTHING);
    let own = [("implied NAK", counters.implied_nak_seq_err)];
    let counted = [&seeds::reliable(counters)[..], &seeds::faults(&outcome.faults), &own].concat();
    assert_eq!(seeds::never(&counted), NOTHING);
    assert!(reliable.bad_luck * 100_000 < reliable.verbs(), "{} of {}", reliable.bad_luck, reliable.verbs());
}

fn assert_whole(outcome: &Outcome, verbs: &[&str], mishaps: &[Mishap]) {
    let Outcome { unreliable: report, counters, .. } = outcome;
    println!("{report:?}\n{counters:?}\n{:?}", outcome.faults);
    for verb in verbs {
        assert!(report.sent.contains_key(verb), "no {verb} was sent");
    }
    for verb in verbs.iter().filter(|verb| **verb != "Write") {
        assert!(report.arrived.contains_key(verb), "no {verb} arrived");
    }
    let missing: Vec<&Mishap> =
        mishaps.iter().filter(|mishap| !report.mishaps.contains_key(mishap)).collect();
    assert_eq!(missing, Vec::<&Mishap>::new());
    let counted = [
        ("dropped messages", counters.rx_dropped_messages),
        ("no receive", counters.out_of_buffer),
        ("too long", counters.resp_local_length_error),
        ("receive in error", counters.resp_cqe_error),
        ("send in error", counters.req_cqe_error),
        ("flushed sends", counters.req_cqe_flush_error),
        ("flushed receives", counters.resp_cqe_flush_error),
        ("wrong ICRC", counters.rx_icrc_encapsulated),
        ("malformed", counters.malformed_pkts),
    ];
    let counted = [&counted[..], &seeds::faults(&outcome.faults)].concat();
    assert_eq!(seeds::never(&counted), NOTHING);
    let arrived = report.arrivals();
    let sent = report.messages();
    assert!(arrived > sent / 10 && arrived < sent, "{arrived} of {sent}: lost, but not all of it");
}

#[test]
fn uc_messages_arrive_whole_or_not_at_all_over_a_hundred_bad_links() {
    let outcome = many(Service::Uc, 6_000..6_104, seeds::share(3_000));
    assert_whole(&outcome, &["Send", "SendImm", "Write", "WriteImm"], &Mishap::ALL);
    assert!(outcome.unreliable.writes.iter().all(|count| *count > 0), "whole, in part, not at all");
    assert!(outcome.counters.out_of_sequence > 0 && outcome.unreliable.long > 0);
}

#[test]
fn ud_messages_arrive_whole_or_not_at_all_over_a_hundred_bad_links() {
    let outcome = many(Service::Ud, 7_000..7_104, seeds::share(3_000));
    assert_whole(&outcome, &["Send", "SendImm"], &Mishap::OF_DATAGRAMS);
}

#[test]
fn over_a_good_link_every_message_with_a_receive_arrives() {
    for service in [Service::Uc, Service::Ud] {
        let mut arm = WorldArm::of(service, World::new(&remora_fabric::Config::default()));
        let options = Options { verbs: 3_000, trouble: 0.0, ..Options::default() };
        let report = run_unreliable(&mut arm, 1, &options);
        let mut counters = arm.world.counters(0);
        counters.add(&arm.world.counters(1));
        let silent = report.sent.get("Write").copied().unwrap_or(0);
        assert_eq!(report.arrivals() + counters.out_of_buffer + silent, report.messages(), "{service:?}");
        assert_eq!(counters.out_of_sequence, 0);
        assert_eq!(counters.rx_dropped_messages, counters.out_of_buffer);
        assert_eq!(&report.writes[1..], [0, 0]);
    }
}

/// Real NICs are faster than their program whenever it is preempted.
///
/// Regression: the test took a WRITE that arrived before its queue pair failed for bytes that nobody wrote.
#[test]
fn a_write_may_arrive_before_its_program_has_failed_the_queue_pair() {
    for service in [Service::Uc, Service::Ud] {
        let mut arm =
            WorldArm::of(service, World::new(&remora_fabric::Config::default())).quicker_by(100_000);
        let report =
            run_unreliable(&mut arm, 1, &Options { verbs: 6_000, trouble: 1.0, ..Options::default() });
        assert!(report.mishaps[&Mishap::Fail] > 3, "{service:?}: {report:?}");
    }
}

#[test]
fn one_seed_run_twice_gives_the_same_trace() {
    for service in [Service::XrcInitiator, Service::Uc, Service::Ud] {
        let first = one(service, 3, 1_000);
        let second = one(service, 3, 1_000);
        assert_eq!(first.trace, second.trace, "{service:?}");
        assert_eq!(first.unreliable, second.unreliable);
        assert_eq!((first.reliable, first.counters), (second.reliable, second.counters));
    }
}

#[test]
#[ignore = "soak: hours"]
fn soak_thousands_of_seeds() {
    many(Service::XrcInitiator, 0..5_000, 20_000);
    many(Service::Uc, 0..5_000, 20_000);
    many(Service::Ud, 0..5_000, 20_000);
}

#[test]
fn replay() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let service = match std::env::var("REMORA_SERVICE").as_deref() {
        Ok("xrc") => Service::XrcInitiator,
        Ok("ud") => Service::Ud,
        _ => Service::Uc,
    };
    if let Some(seed) = number("REMORA_SEED") {
        println!("{:?}", one(service, seed, number("REMORA_VERBS").unwrap_or(3_000)));
    }
}
