//! Tests of evictions when memory is full.

use super::{TestClient, set};
use crate::cache::MAX_VALUE;

fn has(talk: &mut TestClient, key: &str) -> bool {
    talk.tell(format!("get {key}\r\n")).starts_with("VALUE")
}

#[test]
fn the_item_not_used_for_longest_goes_first_for_memory() {
    let mut talk = TestClient::new();
    // About twenty of these items fit.
    let mut stored = 0;
    while talk.stat("evictions") == 0 {
        talk.tell(set(&format!("k{stored}"), 100_000));
        stored += 1;
        // This item is used continuously.
        assert!(has(&mut talk, "k0"));
    }
    assert!(stored > 15, "{stored}");
    assert_eq!(talk.stat("curr_items"), stored - 1);
    for n in 0..stored {
        let key = format!("k{n}");
        // The item is looked up without being used.
        let there = talk.tell(format!("get {key}\r\n")).starts_with("VALUE");
        assert_eq!(there, n != 1, "{key}");
    }
}

#[test]
fn the_item_not_used_for_longest_goes_first_for_a_node() {
    let mut talk = TestClient::with(super::MIN_MEMORY, 10);
    for n in 0..10 {
        assert_eq!(talk.tell(set(&format!("k{n}"), 1)), "STORED\r\n");
    }
    assert_eq!((talk.stat("curr_items"), talk.stat("evictions")), (10, 0));
    // Every way of using an item.
    talk.tell("touch k0 0\r\nget k1\r\ngat 0 k2\r\nadd k3 0 0 1\r\nx\r\nappend k4 0 0 1\r\nx\r\nset k5 0 0 1\r\n5\r\nincr k5 1\r\n");
    for n in 10..14 {
        assert_eq!(talk.tell(set(&format!("k{n}"), 1)), "STORED\r\n");
    }
    assert_eq!((talk.stat("curr_items"), talk.stat("evictions")), (10, 4));
    for n in 0..14 {
        assert_eq!(has(&mut talk, &format!("k{n}")), !(6..10).contains(&n), "k{n}");
    }
    // A key that exists needs no further node.
    assert_eq!(talk.tell(set("k0", 2)), "STORED\r\n");
    assert_eq!(talk.stat("evictions"), 4);
}

#[test]
fn a_long_value_among_many_short_ones_drops_what_lies_in_its_way_and_not_the_rest() {
    let mut talk = TestClient::with(8 << 20, 100_000);
    let mut random = crate::random::Random::new(3);
    // Short items all over the memory, used in random order.
    for n in 0..90_000 {
        talk.tell(set(&format!("k{n}"), 20));
    }
    for _ in 0..90_000 {
        let n = random.below(90_000);
        talk.tell(format!("touch k{n} 0\r\n"));
    }
    let before = talk.stat("curr_items");
    let evicted = talk.stat("evictions");
    assert_eq!(talk.tell(set("long", 7 << 17)), "STORED\r\n");
    let after = talk.stat("curr_items");
    let long = 7 << 17;
    let dropped = talk.stat("evictions") - evicted;
    assert_eq!(before + 1 - after, dropped);
    assert!(dropped <= long / 64 * 9 / 8 + 20, "{dropped} went for a value of {} lines", long / 64);
    assert!(has(&mut talk, "long"));
}

#[test]
fn a_value_that_needs_the_room_of_the_one_it_replaces_replaces_it() {
    let mut talk = TestClient::new();
    for _ in 0..3 {
        assert_eq!(talk.tell(set("a", MAX_VALUE)), "STORED\r\n");
        assert_eq!(talk.stat("curr_items"), 1);
    }
    // The old and the joined value are in memory at the same time; the piece is not.
    talk.tell(set("a", 700_000));
    let mut piece = set("a", 300_000);
    piece.splice(..3, *b"append");
    assert_eq!(talk.tell(&piece), "STORED\r\n");
    assert_eq!(talk.tell("mg a s\r\n"), "HD s1000000\r\n");
}
