//! The exhaustive search, applied to the rules and to deliberately faulty rules.

use super::small_world::{Found, Plan, World, search};
use crate::txn::{ClientConfig, Rules};

const fn plan(reads: &'static [usize], writes: &'static [usize], clock: u64) -> Plan {
    Plan { reads, writes, clock }
}

const CONFIG: ClientConfig = ClientConfig {
    window: 1,
    max_keys: 2,
    max_key: 8,
    max_value: 8,
    patience: 0,
    one_step: false,
    rules: Rules::Proved,
};

fn world(clients: &[&[Plan]]) -> World {
    let clients = clients.iter().map(|plans| plans.to_vec()).collect();
    World { config: CONFIG, shards: 2, slots: 4, clients, deaths: false, loaded: true }
}

/// Asserts that the world is correct in every order, and returns the statistics of the search.
fn holds(world: &World) -> Found {
    let result = search(world);
    println!("{:?}: {result:?}", world.clients);
    assert_eq!(result.broken, None, "{world:?}");
    result
}

/// Pairs of clock readings, in either order.
const SKEWS: [(u64, u64); 2] = [(10, 20), (20, 10)];

#[test]
fn of_two_who_read_and_write_a_key_each_sees_the_other_or_aborts() {
    for one_step in [false, true] {
        for (first, second) in SKEWS {
            let plans = [plan(&[0], &[0], first), plan(&[0], &[0], second)];
            let mut world = world(&[&plans[..1], &plans[1..]]);
            world.config.one_step = one_step;
            let result = holds(&world);
            assert_eq!(result.committed.1, 2, "one after the other, both commit");
        }
    }
}

#[test]
fn nobody_writes_what_another_has_read_and_the_other_way_round() {
    for (first, second) in SKEWS {
        for shards in [1, 2] {
            let plans = [plan(&[0], &[1], first), plan(&[1], &[0], second)];
            holds(&World { shards, ..world(&[&plans[..1], &plans[1..]]) });
        }
    }
}

/// Checks a transaction that writes two keys against another transaction that reads both, writes both, or
/// reads the first and writes the second.
fn two_keys_change_together(shards: usize) {
    for (first, second) in SKEWS {
        let writer = [plan(&[], &[0, 1], first)];
        for other in [plan(&[0, 1], &[], second), plan(&[], &[0, 1], second), plan(&[1], &[0], second)] {
            holds(&World { shards, ..world(&[&writer, &[other]]) });
        }
    }
}

fn a_death_anywhere(shards: usize) {
    for (first, second) in SKEWS {
        let plans = [plan(&[], &[0, 1], first), plan(&[0], &[1], second)];
        holds(&World { deaths: true, shards, ..world(&[&plans[..1], &plans[1..]]) });
    }
}

#[test]
fn two_keys_change_together_or_not_at_all() {
    two_keys_change_together(1);
    let plans = [plan(&[], &[0, 1], 10), plan(&[0, 1], &[], 20)];
    holds(&world(&[&plans[..1], &plans[1..]]));
}

#[test]
fn a_client_that_dies_anywhere_blocks_nobody_and_leaves_all_or_nothing() {
    a_death_anywhere(1);
}

#[test]
#[ignore = "soak: ten million states"]
fn soak_on_two_shards_every_order_and_every_death() {
    two_keys_change_together(2);
    a_death_anywhere(2);
}

#[test]
#[ignore = "soak: three clients"]
fn soak_three_who_read_and_write_a_key() {
    let plans = [plan(&[0], &[0], 10), plan(&[0], &[0], 30), plan(&[0], &[0], 20)];
    let three = world(&[&plans[..1], &plans[1..2], &plans[2..]]);
    holds(&three);
    let mut one_step = World { deaths: true, ..three };
    one_step.config.one_step = true;
    holds(&one_step);
}

#[test]
fn a_version_that_was_written_alone_is_found_by_who_writes_two() {
    for (first, second) in SKEWS {
        let alone = [plan(&[0], &[0], first)];
        for other in [plan(&[], &[0, 1], second), plan(&[1], &[0], second)] {
            let mut mixed = World { deaths: true, shards: 1, ..world(&[&alone, &[other]]) };
            mixed.config.one_step = true;
            let result = holds(&mixed);
            assert_eq!(result.committed.1, 2, "one after the other, both commit");
        }
    }
}

#[test]
fn new_keys_that_meet_in_a_slot_keep_apart() {
    for slots in [2, 3] {
        let plans = [plan(&[0], &[1], 10), plan(&[1], &[0], 20)];
        let new = World { shards: 1, slots, loaded: false, ..world(&[&plans[..1], &plans[1..]]) };
        holds(&new);
        let mut one_step = new.clone();
        one_step.config.one_step = true;
        let result = holds(&one_step);
        // With two slots, both keys need the same one.
        assert!(slots == 3 || result.committed.0 > 0, "nobody stands in his own way");
        let both = [plan(&[], &[0, 1], 20), plan(&[0], &[1], 10)];
        holds(&World { clients: vec![both[..1].to_vec(), both[1..].to_vec()], deaths: true, ..new });
    }
}

#[test]
fn the_search_finds_reads_that_are_not_validated() {
    let plans = [plan(&[0], &[1], 10), plan(&[1], &[0], 20)];
    let mut world = world(&[&plans[..1], &plans[1..]]);
    world.config.rules = Rules::ReadsUnchecked;
    let broken = search(&world).broken.expect("two transactions that did not see each other");
    assert!(broken.contains("a cycle"), "{broken}");
}

#[test]
fn the_search_finds_the_printed_abort() {
    let plans = [plan(&[], &[0, 1], 10), plan(&[1], &[0], 20)];
    let mut world = world(&[&plans[..1], &plans[1..]]);
    world.config.rules = Rules::PrintedAbort;
    world.config.patience = 1;
    let broken = search(&world).broken.expect("half a transaction");
    assert!(broken.contains("a cycle"), "{broken}");
}

#[test]
fn as_printed_nobody_who_writes_what_he_read_ever_commits() {
    let mut world = world(&[&[plan(&[0], &[0], 10), plan(&[0], &[0], 30)]]);
    let fine = search(&world);
    assert_eq!((fine.broken, fine.committed), (None, (2, 2)));
    world.config.rules = Rules::PrintedStrict;
    assert_eq!(search(&world).committed, (0, 0));
}
