//! Tests of listings of each table while it changes, and over a connection.

use super::wire::{Side, block};
use super::world::{Arm, FarmArm, PilafArm, TwoSidedArm, World};
use crate::kv::Cursor;
use crate::kv::listing::{Page, list};
use crate::kv::strom::{Config as StromConfig, StromTable};
use crate::kv::{ClientConfig, Outcome, Refusal, ServerConfig, Table};
use std::collections::BTreeSet;

/// Lists a table page by page, and calls `change` between two pages.
fn listed<T: Table>(table: &mut T, most: usize, mut change: impl FnMut(&mut T, u32)) -> BTreeSet<Vec<u8>> {
    let mut cursor = Cursor::START;
    let mut page = Vec::new();
    let mut keys = BTreeSet::new();
    for number in 0..100_000 {
        list(table, cursor, most, &mut page);
        let parsed = Page::parse(&page).expect("a page");
        assert!(page.len() <= most, "{} bytes", page.len());
        keys.extend(parsed.keys().map(<[u8]>::to_vec));
        let Some(next) = parsed.next else { return keys };
        cursor = next;
        change(table, number);
    }
    panic!("the listing does not end");
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}-{}", "x".repeat(number as usize % 150)).into_bytes()
}

/// Tests a table with a capacity of 2000 keys.
fn keys_that_stay_are_listed_while_others_come_and_go<T: Table>(mut table: T) {
    let stay: BTreeSet<Vec<u8>> = (0..1000).map(key).collect();
    stay.iter().for_each(|key| table.put(key, b"value").unwrap());
    assert_eq!(listed(&mut table, 1024, |_, _| ()), stay);
    // The number of new keys is so large that others move aside, and that tombstones are removed.
    let keys = listed(&mut table, 512, |table, number| {
        for index in 0..40 {
            let name = key(10_000 + (number * 40 + index) % 900);
            if table.delete(&name).is_err() {
                table.put(&name, b"new").unwrap();
            }
        }
        table.put(&key(number % 1000), &vec![b'v'; number as usize % 300]).unwrap();
    });
    assert!(keys.is_superset(&stay), "{} of {}", keys.intersection(&stay).count(), stay.len());
    stay.iter().for_each(|key| table.delete(key).unwrap());
    let rest = listed(&mut table, 4096, |_, _| ());
    assert!(rest.is_disjoint(&stay) && rest.len() as u64 == table.len());
}

fn table_of<A: Arm>() -> A::Table {
    let config = ClientConfig::default();
    let mut wire = super::wire::Wire::new(config.needs(), ServerConfig::default().needs(), A::ORDER, 7);
    A::table(2000, 8 << 20, &mut wire)
}

#[test]
fn keys_of_pilaf_that_stay_are_listed_while_others_come_and_go() {
    keys_that_stay_are_listed_while_others_come_and_go(table_of::<PilafArm>());
}

#[test]
fn keys_of_farm_that_stay_are_listed_while_others_come_and_go() {
    keys_that_stay_are_listed_while_others_come_and_go(table_of::<FarmArm>());
}

#[test]
fn keys_of_two_sided_that_stay_are_listed_while_others_come_and_go() {
    keys_that_stay_are_listed_while_others_come_and_go(table_of::<TwoSidedArm>());
}

#[test]
fn keys_of_strom_that_stay_are_listed_while_others_come_and_go() {
    let config = StromConfig::for_keys(2000, 3);
    let table = StromTable::new(config, block(71, config.index_len()), block(72, 8 << 20));
    keys_that_stay_are_listed_while_others_come_and_go(table);
}

#[test]
fn more_moves_than_are_noted_begin_the_listing_anew() {
    let mut table = table_of::<TwoSidedArm>();
    (0..500).for_each(|number| table.put(&key(number), b"").unwrap());
    let mut page = Vec::new();
    list(&table, Cursor::START, 1024, &mut page);
    let cursor = Page::parse(&page).unwrap().next.unwrap();
    let mut moves = crate::kv::Moves::default();
    (0..5000).for_each(|position| moves.note(position));
    assert_eq!(moves.oldest_kept(), 5000 - 4096);
    moves.note_all();
    assert_eq!(moves.oldest_kept(), 5001);
    // A cursor that no server issued ends the listing.
    let wild = Cursor::decode(&[0xee; 16]);
    list(&table, wild, 1024, &mut page);
    assert!(Page::parse(&page).unwrap().next.is_none());
    assert_ne!(cursor, Cursor::START);
}

fn a_client_lists_page_by_page<A: Arm>() {
    let config = ClientConfig { window: 2, max_value: 2048, ..ClientConfig::default() };
    let mut world = World::<A>::new(config, ServerConfig::default(), 1000, 4 << 20, 5);
    let all: BTreeSet<Vec<u8>> = (0..700).map(key).collect();
    all.iter().for_each(|key| world.server.borrow_mut().table_mut().put(key, b"value").unwrap());
    let mut keys = BTreeSet::new();
    let mut cursor = Some(Cursor::START);
    let mut pages = 0;
    while let Some(current) = cursor {
        world.client.list(current, world.wire.end(Side::Client)).unwrap();
        let ended = world.finish();
        let bytes = ended.value.unwrap_or_else(|| panic!("a page: {:?}", ended.outcome));
        let page = Page::parse(&bytes).unwrap();
        keys.extend(page.keys().map(<[u8]>::to_vec));
        (cursor, pages) = (page.next, pages + 1);
    }
    assert_eq!(keys, all);
    assert!(pages > 10, "{pages}");
    assert_eq!(world.server.borrow().counters().lists, pages);
}

#[test]
fn a_client_of_each_design_lists_page_by_page() {
    a_client_lists_page_by_page::<PilafArm>();
    a_client_lists_page_by_page::<FarmArm>();
    a_client_lists_page_by_page::<TwoSidedArm>();
}

#[test]
fn one_page_at_a_time_is_on_its_way_to_a_client() {
    let config = ClientConfig { window: 8, max_value: 2048, ..ClientConfig::default() };
    let mut world = World::<FarmArm>::new(config, ServerConfig::default(), 1000, 4 << 20, 5);
    (0..700).for_each(|number| world.server.borrow_mut().table_mut().put(&key(number), b"").unwrap());
    let mut refused = 0;
    for _ in 0..50 {
        (0..8).for_each(|_| {
            world.client.list(Cursor::START, world.wire.end(Side::Client)).unwrap();
        });
        for _ in 0..8 {
            let ended = world.finish();
            match (ended.outcome, ended.value) {
                (Outcome::Refused(Refusal::Busy), None) => refused += 1,
                (Outcome::Done, Some(page)) => assert!(Page::parse(&page).is_some()),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0 && refused < 400, "{refused}");
}

#[test]
fn pages_of_a_hostile_server_are_refused_without_a_panic() {
    assert!(Page::parse(&[0; 15]).is_none());
    assert!(Page::parse(&[0; 19]).is_none());
    let page = [&[0; 16][..], &[4, 0, 0, 0], b"abcd"].concat();
    assert_eq!(Page::parse(&page).unwrap().keys().collect::<Vec<_>>(), [b"abcd"]);
    assert!(Page::parse(&page[..23]).is_none());
    assert!(Page::parse(&[&page[..], &[0xff; 4]].concat()).is_none());
}
