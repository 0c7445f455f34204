//! Histories of many runs by many seeds are judged, and deliberately broken stores are detected.

use remora_check::{Measures, Requirements};
use remora_fault::Random;
use remora_store::txn::{ClientConfig, Rules, ShardConfig, farm};

use super::protocol::{Farm, PrismTx, Protocol};
use super::run::{CLIENTS, Ended, Run, VALUE, WINDOW};
use crate::mishaps::{Mishap, Plan, Tally};
use crate::seeds;

const MAX_KEYS: u32 = 4;
/// Connections of a shard at the same time, including those of dead clients that it has not noticed yet.
const PEERS: u32 = 64;

const PRISM_TX: PrismTx = PrismTx {
    shard: ShardConfig { slots: 32, reach: 32, sessions: 2048, window: WINDOW },
    client: ClientConfig {
        window: WINDOW,
        max_keys: MAX_KEYS,
        max_key: 16,
        max_value: VALUE as u32,
        patience: 12,
        one_step: true,
        rules: Rules::Proved,
    },
    buffers: (1280, 160),
    peers: PEERS,
};

const FARM: Farm = Farm {
    shard: farm::ShardConfig {
        keys: 32,
        homes: 32,
        reach: 32,
        max_pair: 16 + VALUE as u32,
        clients: PEERS,
        window: WINDOW,
        max_keys: MAX_KEYS,
    },
    client: farm::ClientConfig {
        window: WINDOW,
        max_keys: MAX_KEYS,
        max_key: 16,
        max_value: VALUE as u32,
        patience: 12,
        seed: 0,
        rules: farm::Rules::Proved,
    },
};

const MISHAPS: [Mishap; 5] =
    [Mishap::Loss, Mishap::Reordering, Mishap::Death, Mishap::Restart, Mishap::Partition];

/// Runs the correct rules for many seeds. Returns the counts of the transactions.
fn histories<P: Protocol>(protocol: P, seeds: std::ops::Range<u64>) -> Ended {
    let mut tally = Tally::default();
    let mut measures = Measures::default();
    let mut ended = Ended::default();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut run = Run::new(protocol, seed, None);
        run.run(&mut tally);
        run.rest();
        run.account(seed);
        remora_check::hold(&format!("txn seed {seed}"), &run.history, P::judge);
        measures.add(&run.history, &[]);
        tally.run_over(&run.world);
        ended.add(&run.ended);
    }
    println!("{ended:?}");
    tally.check(&MISHAPS);
    measures.hold(&Requirements {
        histories: count as usize,
        clients: CLIENTS,
        keys: 16,
        overlapping: 0.3,
        faults: &[],
        fired: 0.2,
    });
    assert!(ended.committed * 2 > ended.aborted, "however crowded the keys, some commit");
    ended
}

fn of_prism_tx(seeds: std::ops::Range<u64>) {
    assert!(histories(PRISM_TX, seeds).resolved > 0, "nobody met what a dead client had left");
}

fn of_farm(seeds: std::ops::Range<u64>) {
    assert!(histories(FARM, seeds).broken > 0, "nobody died with locks in his hands");
}

/// Eight or more clients on twelve keys and two shards, with clocks up to four seconds apart; loss,
/// reordering, deaths, partitions and a shard that restarts with its memory. No key stays blocked and no
/// buffer is lost.
#[test]
fn histories_are_serializable_whoever_dies_and_whatever_the_clocks_say() {
    of_prism_tx(0..seeds::share(1000));
}

#[test]
#[ignore = "soak: ten thousand histories, half an hour"]
fn soak_ten_thousand_histories_are_serializable() {
    of_prism_tx(1_000_000..1_010_000);
}

/// Runs the mishaps of PRISM-TX's histories. Every value that is read is whole, and no lock remains.
#[test]
fn histories_of_farm_are_strictly_serializable_whoever_dies() {
    of_farm(0..seeds::share(1000));
}

#[test]
#[ignore = "soak: ten thousand histories, half an hour"]
fn soak_ten_thousand_histories_of_farm_are_strictly_serializable() {
    of_farm(1_000_000..1_010_000);
}

/// Returns true if a seed below 100 gives a history that is not serializable, under deliberately broken
/// rules.
fn caught<P: Protocol>(protocol: P) -> bool {
    let quiet = Plan::draw(&mut Random::new(0));
    (0..100).any(|seed| {
        let mut run = Run::new(protocol, seed, Some(quiet));
        run.world.set_rules(&remora_fault::Rules::of(Vec::new()), 0);
        for _ in 0..2000 {
            run.step();
        }
        let says = remora_check::serializable(&run.history).err();
        says.is_some_and(|violation| violation.to_string().contains("a cycle"))
    })
}

#[test]
fn reads_that_are_not_validated_are_caught() {
    assert!(caught(PRISM_TX.with(Rules::ReadsUnchecked)), "PRISM-TX");
    assert!(caught(FARM.with(farm::Rules::ReadsUnchecked)), "FaRM");
}

#[test]
fn the_papers_abort_rule_is_caught() {
    assert!(caught(PRISM_TX.with(Rules::PrintedAbort)));
}

#[test]
fn as_printed_nobody_who_writes_what_he_has_read_commits() {
    let changed = |rules| {
        let mut run = Run::new(PRISM_TX.with(rules), 7, Some(Plan::draw(&mut Random::new(0))));
        (0..2000).for_each(|_| run.step());
        run.ended.changed
    };
    assert!(changed(Rules::Proved) > 0);
    assert_eq!(changed(Rules::PrintedStrict), 0);
}
