//! Tests of administrative commands, and of statistics by class.

use super::{TestClient, config, set};
use crate::Registered;
use crate::cache::{Cache, Config, MIN_MEMORY};
use remora_memory::{Bytes, Key};
use remora_transport::Instant;

#[test]
fn all_items_are_told_some_with_each_turn() {
    let mut talk = TestClient::with(4 << 20, 10_000);
    for n in 0..5000 {
        talk.tell(format!("set key{n} 0 {} 1\r\nx\r\n", if n % 2 == 0 { 0 } else { 10 }));
    }
    talk.tell("set a%20,\u{fe} 5 100 600\r\n");
    talk.say(&[b'x'; 600]);
    talk.tell("\r\n");
    for (classes, lines) in [("all", 5001), ("hash", 5001), ("1", 5000), ("9", 0), ("10", 1), ("1,10", 5001)]
    {
        let answer = talk.tell(format!("lru_crawler metadump {classes}\r\nversion\r\n"));
        assert!(answer.ends_with("END\r\nVERSION 1.2.3\r\n"), "{classes}");
        assert_eq!(answer.lines().count(), lines + 2, "{classes}");
    }
    talk.pass(10);
    let answer = talk.tell("lru_crawler metadump all\r\n");
    assert_eq!(answer.lines().count(), 2502, "dead items are not listed");
    let line = "key=a%2520%2C%C3%BE exp=1700000100 la=1700000000 cas=5001 fetch=no cls=10 size=670";
    assert!(answer.lines().any(|other| other == line), "{answer}");
    assert!(answer.contains("key=key0 exp=-1 la=1700000000 cas=1 fetch=no cls=1 size=64\n"));
    for classes in ["x", "0", "64", "1,x", ""] {
        let answer = talk.tell(format!("lru_crawler metadump {classes},\r\n"));
        assert_eq!(answer, "BADCLASS invalid class id\r\n", "{classes}");
    }
    let answer = talk.tell("stats cachedump 1 3\r\n");
    assert_eq!(answer, "ITEM key0 [1 b; 0 s]\r\nITEM key2 [1 b; 0 s]\r\nITEM key4 [1 b; 0 s]\r\nEND\r\n");
    assert_eq!(talk.tell("stats cachedump 1\r\n"), "CLIENT_ERROR bad command line\r\n");
    assert_eq!(talk.tell("stats cachedump 200 0 0\r\n"), "CLIENT_ERROR Illegal slab id\r\n");
}

/// Regression: a `metadump` behind other commands was answered (memcached's `lru-crawler.t`).
#[test]
fn a_dump_behind_other_answers_is_refused() {
    let mut talk = TestClient::new();
    let refused = "ERROR cannot pipeline other commands before metadump\r\n";
    let answer = talk.tell("mg foo v\r\nlru_crawler metadump all\r\nlru_crawler metadump all\r\n");
    assert_eq!(answer, format!("EN\r\n{refused}{refused}"));
    assert_eq!(talk.tell("lru_crawler metadump all\r\n"), "END\r\n");
}

#[test]
fn dead_items_are_removed_when_they_are_looked_for() {
    let mut talk = TestClient::new();
    for n in 0..500 {
        talk.tell(format!("set key{n} 0 10 1\r\nx\r\n"));
    }
    talk.tell("set stays 0 0 1\r\nx\r\n");
    talk.pass(10);
    assert_eq!(
        talk.tell("lru_crawler disable\r\nlru_crawler crawl 1\r\n"),
        "OK\r\nCLIENT_ERROR lru crawler disabled\r\n"
    );
    assert_eq!(talk.tell("lru_crawler enable\r\nlru_crawler crawl all\r\n"), "OK\r\nOK\r\n");
    while talk.stat("lru_crawler_running") == 1 {}
    assert_eq!((talk.stat("curr_items"), talk.stat("crawler_reclaimed")), (1, 500));
    assert!(talk.tell("stats items\r\n").contains("STAT items:1:crawler_reclaimed 500\r\n"));
}

#[test]
fn items_are_counted_by_class() {
    let mut talk = TestClient::new();
    talk.tell("set a 0 0 1\r\nx\r\nget a\r\n");
    talk.tell(set("b", 1000));
    talk.pass(7);
    let items = talk.tell("stats items\r\n");
    assert!(
        items.starts_with("STAT items:1:number 1\r\nSTAT items:1:age 7\r\nSTAT items:1:mem_requested 61\r\n"),
        "{items}"
    );
    assert!(items.contains("STAT items:12:number 1\r\n") && items.ends_with("END\r\n"), "{items}");
    let slabs = talk.tell("stats slabs\r\n");
    assert!(slabs.contains("STAT 1:chunk_size 96\r\nSTAT 1:used_chunks 1\r\n"), "{slabs}");
    assert!(slabs.ends_with("STAT active_slabs 2\r\nSTAT total_malloced 1088\r\nEND\r\n"), "{slabs}");
    // The statistics of all classes together fit in one answer.
    for len in (0..40).map(|class| 96 * 5usize.pow(class / 4) / 4usize.pow(class / 4)) {
        talk.tell(set(&format!("k{len}"), len));
    }
    talk.tell("flush_all\r\nstats reset\r\nset a 0 0 1\r\nx\r\n");
    assert!(talk.tell("stats items\r\n").contains("STAT items:1:number 1\r\n"));
}

#[test]
fn keys_and_values_take_no_more_than_the_limit_says() {
    let mut talk = TestClient::with(16 << 20, 10_000);
    for n in 0..200 {
        talk.tell(set(&format!("k{n}"), 50_000));
    }
    assert_eq!(talk.stat("evictions"), 0);
    assert_eq!(talk.tell("cache_memlimit 4\r\nset a 0 0 1\r\nx\r\n"), "OK\r\nSTORED\r\n");
    assert_eq!(
        (talk.stat("limit_maxbytes"), talk.stat("evictions")),
        (4 << 20, 64),
        "a store frees memory step by step"
    );
    talk.tell(set("a", 1));
    talk.tell(set("a", 1));
    assert!(talk.stat("bytes") < 4 << 20, "{}", talk.stat("bytes"));
    assert_eq!(talk.tell("cache_memlimit 16 noreply\r\nmn\r\n"), "MN\r\n");
    assert_eq!(talk.stat("limit_maxbytes"), 16 << 20);
    assert_eq!(
        talk.tell("cache_memlimit 1\r\n"),
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 2m\r\n"
    );
    for beyond in ["17", "18446744073709551615"] {
        let answer = talk.tell(format!("cache_memlimit {beyond}\r\n"));
        assert_eq!(answer, "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n");
    }
}

#[test]
fn a_client_ends_the_server_only_if_it_may() {
    let mut talk = TestClient::new();
    assert_eq!(talk.tell("shutdown\r\nshutdown graceful\r\n"), "ERROR: shutdown not enabled\r\n".repeat(2));
    assert!(!talk.cache.is_ending());
    let memory = Registered { bytes: Bytes::heap(MIN_MEMORY).unwrap(), addr: 0, key: Key::new(0) };
    let mut talk = TestClient::to(Cache::new(Config { shutdown: true, ..config(10) }, memory, Instant(1)));
    assert_eq!(talk.tell("shutdown foo\r\n"), "CLIENT_ERROR invalid shutdown mode\r\n");
    assert!(!talk.cache.is_ending());
    assert_eq!(talk.tell("shutdown graceful\r\nversion\r\n"), "");
    assert!(talk.cache.is_ending() && talk.session.is_closed());
}
