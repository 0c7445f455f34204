//! Tests of incomplete values: they take memory as they are received, from a bounded share.

use super::{NOON, Session, TestClient, say, set};
use crate::cache::{MAX_VALUE, MIN_MEMORY};

/// Regression: 64 clients that announced values and sent none evicted all items.
#[test]
fn values_that_are_announced_and_never_come_evict_nothing() {
    let mut talk = TestClient::with(64 << 20, 60_000);
    for n in 0..50_000 {
        talk.tell(format!("set k{n} 0 0 9 noreply\r\nsome_text\r\n"));
    }
    assert_eq!(talk.stat("curr_items"), 50_000);
    let begun: Vec<Session> = (0..64)
        .map(|n| {
            let mut session = Session::new(&mut talk.cache);
            let line = format!("set pin{n} 0 0 1048000\r\n");
            assert_eq!(say(&mut talk.cache, &mut session, talk.now, line.as_bytes()), b"");
            session
        })
        .collect();
    assert_eq!(talk.cache.arrivals.taken(), 0, "nothing has come");
    assert_eq!((talk.stat("curr_items"), talk.stat("evictions")), (50_000, 0));
    assert_eq!(talk.tell(set("long", MAX_VALUE)), "STORED\r\n");
    assert_eq!(talk.stat("evictions"), 0);
    begun.into_iter().for_each(|session| session.close(&mut talk.cache));
}

#[test]
fn values_that_stop_on_their_way_give_way_to_one_that_comes() {
    let mut talk = TestClient::with(64 << 20, 60_000);
    talk.tell("set a 0 0 1\r\nx\r\n");
    let part = [&b"set pin 0 0 1048000\r\n"[..], &[b'p'; 1_000_000]].concat();
    let mut stopped: Vec<Session> = (0..64)
        .map(|_| {
            let mut session = Session::new(&mut talk.cache);
            assert_eq!(say(&mut talk.cache, &mut session, talk.now, &part), b"");
            session
        })
        .collect();
    assert!(talk.cache.arrivals.taken() <= 8 << 20, "they have an eighth of the memory");
    // A value in pieces fits, because the value that stopped first is dropped.
    let long = set("long", MAX_VALUE);
    let mut comes = Session::new(&mut talk.cache);
    let mut all = Vec::new();
    long.chunks(1000).for_each(|piece| all.extend(say(&mut talk.cache, &mut comes, talk.now, piece)));
    assert_eq!(all, b"STORED\r\n");
    assert_eq!((talk.stat("evictions"), talk.stat("store_no_memory")), (0, 0));
    // The client of the dropped value gets an error when it continues, and its value is not executed as
    // commands.
    let rest = [&[b'p'; 48_000][..], b"\r\nversion\r\n"].concat();
    let answer = say(&mut talk.cache, &mut stopped[0], talk.now, &rest);
    assert_eq!(answer, b"SERVER_ERROR out of memory storing object\r\nVERSION 1.2.3\r\n");
    let answer = say(&mut talk.cache, stopped.last_mut().expect("some"), talk.now, &rest);
    assert_eq!(answer, b"STORED\r\nVERSION 1.2.3\r\n", "the last ones still have theirs");
    assert_eq!(talk.stat("store_no_memory"), 1);
    stopped.into_iter().chain([comes]).for_each(|session| session.close(&mut talk.cache));
    assert_eq!(talk.cache.arrivals.taken(), 0, "all of it comes back");
}

#[test]
fn a_value_that_gave_way_when_it_was_whole_but_for_its_end_is_refused() {
    let mut talk = TestClient::new();
    talk.tell("set a 0 0 3\r\nold\r\n");
    let mut stopped = Session::new(&mut talk.cache);
    let part = [&b"set a 0 0 600000\r\n"[..], &[b'p'; 600_000]].concat();
    assert_eq!(say(&mut talk.cache, &mut stopped, talk.now, &part), b"");
    for n in 0..4 {
        let part = [format!("set b{n} 0 0 1048000\r\n").as_bytes(), &[b'p'; 1_000_000]].concat();
        let mut other = Session::new(&mut talk.cache);
        say(&mut talk.cache, &mut other, talk.now, &part);
        other.close(&mut talk.cache);
    }
    let mut others: Vec<Session> = (0..2).map(|_| Session::new(&mut talk.cache)).collect();
    for other in &mut others {
        let part = [&b"set b 0 0 1048000\r\n"[..], &[b'p'; 1_000_000]].concat();
        say(&mut talk.cache, other, talk.now, &part);
    }
    let answer = say(&mut talk.cache, &mut stopped, talk.now, b"\r\nget a\r\n");
    assert_eq!(
        answer, b"SERVER_ERROR out of memory storing object\r\nEND\r\n",
        "and the old value is out of date"
    );
    others.into_iter().chain([stopped]).for_each(|session| session.close(&mut talk.cache));
}

#[test]
fn a_value_that_is_only_held_by_readers_is_told_that_there_is_no_room() {
    let mut talk = TestClient::with(MIN_MEMORY, 1000);
    talk.tell(set("a", MAX_VALUE));
    // All memory belongs to a value that is being sent to a client that does not read.
    let mut reader = Session::new(&mut talk.cache);
    let mut out = Vec::with_capacity(crate::cache::OUTPUT);
    reader.run(&mut talk.cache, talk.now, b"get a\r\n", &mut out);
    assert_eq!(talk.tell(set("a", MAX_VALUE)), "SERVER_ERROR out of memory storing object\r\n");
    assert_eq!((talk.stat("curr_items"), talk.stat("store_no_memory")), (0, 1));
    assert_eq!(talk.tell(set("a", 1000)), "STORED\r\n", "shorter ones fit");
    assert!(talk.now.0 > NOON);
    reader.close(&mut talk.cache);
    assert_eq!(talk.tell(set("a", MAX_VALUE)), "STORED\r\n");
}
