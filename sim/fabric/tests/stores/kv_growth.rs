//! PRISM-KV's tables while they grow, one operation at a time: the cost of operations, and the bounds.

use remora_nic::prism::WorkRequest;
use remora_nic::{PostError, ReceiveRequest};
use remora_store::kv::prism::MovePolicy;
use remora_store::kv::{Outcome, Refusal};
use remora_store::{Post, PostPrism};

use crate::growth::Growth;
use crate::kv_alone::{ABSENT, Alone, DONE, Program, found};

const FULL: Result<Vec<u8>, Outcome<'static>> = Err(Outcome::Refused(Refusal::TableFull));

fn name(key: u32) -> [u8; 4] {
    key.to_le_bytes()
}

/// A queue pair that fails.
struct Failing;

impl Post for Failing {
    fn post_send(&mut self, _: &remora_nic::WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }

    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }
}

impl PostPrism for Failing {
    fn post_prism(&mut self, _: &WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }
}

/// Runs until nothing is left to move, or there is no space to move it to.
fn settle(alone: &mut Alone, growth: &mut Growth) {
    for _ in 0..10_000 {
        if !growth.turn(&mut alone.world) {
            return;
        }
        alone.world.run_for(1_000);
    }
    panic!("a move without an end");
}

fn open(slots: u64, tables: u32, buffers: u32) -> (Alone, Growth, Program) {
    let mut alone = Alone::growing(slots, tables, vec![(64, buffers)]);
    let growth = Growth::new(&mut alone.world, &alone.host, MovePolicy::Proved);
    let program = alone.join(0);
    (alone, growth, program)
}

#[test]
fn a_table_for_four_keys_takes_four_hundred_and_the_deleted_ones_are_left_behind() {
    let (mut alone, mut growth, mut program) = open(16, 9, 500);
    for key in 0..400 {
        assert_eq!(alone.put(&mut program, &name(key), &name(!key)).0, DONE, "{key}");
        if key % 3 == 0 {
            assert_eq!(alone.delete(&mut program, &name(key)).0, DONE, "{key}");
        }
        growth.turn(&mut alone.world);
    }
    settle(&mut alone, &mut growth);
    let (count, base) = alone.host.table.tables();
    assert!(count == base + 1 && (5..8).contains(&count), "{count} tables, of which {base} are given up");
    let mut others = [alone.join(0), alone.join(1)];
    for key in 0..400 {
        let value = if key % 3 == 0 { ABSENT } else { found(&name(!key)) };
        assert_eq!(alone.get(&mut program, &name(key)).0, value, "{key}");
        assert_eq!(alone.get(&mut others[0], &name(key)).0, value, "{key}");
    }
    assert_eq!(alone.host.live(), 266);
    let bound = (0..16 << 8).filter(|entry| alone.host.table.words(*entry).generation & 1 == 1);
    assert_eq!(bound.count(), 266, "no key is in two tables");
}

#[test]
fn a_get_looks_into_two_tables_once_and_then_into_the_new_one_alone() {
    let (mut alone, mut growth, mut program) = open(64, 2, 80);
    (0..32).for_each(|key| assert_eq!(alone.put(&mut program, &name(key), b"value").0, DONE));
    let trips = |alone: &mut Alone, reader: &mut Program, key| {
        let (end, trips) = alone.get(reader, &name(key));
        assert_eq!(end, found(b"value"));
        trips
    };
    let mut knows = alone.join(0);
    let mut stranger = alone.join(1);
    let mut follows = alone.join(0);
    trips(&mut alone, &mut knows, 5);
    assert_eq!(trips(&mut alone, &mut knows, 5), 1, "a place that is known");
    trips(&mut alone, &mut follows, 5);
    while trips(&mut alone, &mut follows, 5) == 1 {
        assert!(growth.turn(&mut alone.world), "it was moved");
        alone.world.run_for(1_000);
    }
    assert_eq!(alone.host.table.tables(), (2, 0), "the old table is still looked into");
    assert_eq!(trips(&mut alone, &mut follows, 5), 1, "but not for what is known to have left it");
    settle(&mut alone, &mut growth);
    assert_eq!(alone.host.table.tables(), (2, 1));
    let mut fresh = alone.join(0);
    let new: Vec<u32> = (0..32).map(|key| trips(&mut alone, &mut fresh, key)).collect();
    assert!(new.iter().sum::<u32>() < 48, "a quarter full: {new:?}");
    // In the old table, whose slot and home it knew; and in the new one.
    assert_eq!(trips(&mut alone, &mut knows, 5), 1 + new[5]);
    assert_eq!(trips(&mut alone, &mut knows, 5), 1, "known again");
    assert!(trips(&mut alone, &mut stranger, 6) > new[6]);
    (7..32).for_each(|key| assert_eq!(trips(&mut alone, &mut stranger, key), new[key as usize], "{key}"));
    assert_eq!(alone.put(&mut stranger, &name(7), b"other").1, 1, "a PUT to a known place");
}

#[test]
fn at_its_bound_a_table_refuses_new_keys_and_the_others_go_on() {
    let (mut alone, mut growth, mut program) = open(2, 2, 40);
    let mut stored = Vec::new();
    for key in 0..12 {
        match alone.put(&mut program, &name(key), b"one").0 {
            end if end == DONE => stored.push(key),
            end => assert_eq!(end, FULL),
        }
        settle(&mut alone, &mut growth);
    }
    assert_eq!((stored.len(), alone.host.table.tables()), (4, (2, 1)));
    assert_eq!(alone.delete(&mut program, &name(stored[0])).0, DONE);
    assert_eq!(alone.put(&mut program, &name(99), b"one").0, FULL, "the slot is still another's");
    for key in stored {
        assert_eq!(alone.put(&mut program, &name(key), b"two").0, DONE);
        assert_eq!(alone.get(&mut program, &name(key)).0, found(b"two"));
    }
}

#[test]
fn what_has_no_place_in_the_next_table_stays_where_it_is_and_can_be_used() {
    let (mut alone, mut growth, mut program) = open(4, 2, 40);
    (0..4).for_each(|key| assert_eq!(alone.put(&mut program, &name(key), b"one").0, DONE));
    // The new table exists and fills before anything is moved.
    growth.mover.work(&mut Failing).unwrap_err();
    assert_eq!(alone.host.table.tables(), (2, 0));
    let mut growth = Growth::new(&mut alone.world, &alone.host, MovePolicy::Proved);
    (4..12).for_each(|key| assert_eq!(alone.put(&mut program, &name(key), b"one").0, DONE));
    assert_eq!(alone.put(&mut program, &name(12), b"one").0, FULL);
    settle(&mut alone, &mut growth);
    assert!(growth.mover.is_busy(), "it could not be moved");
    let mut other = alone.join(1);
    for (key, value) in (0..12).zip([b"two", b"six"].into_iter().cycle()) {
        assert_eq!(alone.put(&mut program, &name(key), value).0, DONE);
        assert_eq!(alone.get(&mut other, &name(key)).0, found(value));
    }
    assert_eq!(alone.delete(&mut other, &name(0)).0, DONE);
    settle(&mut alone, &mut growth);
    assert_eq!(alone.get(&mut program, &name(0)).0, ABSENT);
    assert_eq!(alone.host.live(), 11);
}
