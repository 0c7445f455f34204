//! Tests of expiry and flushes.

use super::{NOON, TestClient};

const HIT: &str = "VALUE a 0 1\r\nx\r\nEND\r\n";
const MISS: &str = "END\r\n";
const MONTH: u64 = 30 * 24 * 60 * 60;

/// Asserts that an item with this expiry exists after `seconds` seconds, and no longer one second later.
#[track_caller]
fn lives(expires: impl std::fmt::Display, seconds: u64) {
    let mut talk = TestClient::new();
    talk.tell(format!("set a 0 {expires} 1\r\nx\r\n"));
    talk.pass(seconds);
    assert_eq!(talk.tell("get a\r\n"), HIT, "{expires} after {seconds}");
    talk.pass(1);
    assert_eq!(talk.tell("get a\r\n"), MISS, "{expires} after {seconds} and one");
    assert_eq!(talk.stat("curr_items"), 0);
}

#[test]
fn an_expiry_is_relative_up_to_thirty_days_and_a_time_beyond() {
    lives(1, 0);
    lives(100, 99);
    lives(MONTH, MONTH - 1);
    lives(NOON + 10, 9);
    // Beyond 2038, where 32 bits end.
    lives(1u64 << 32, (1 << 32) - NOON - 1);
}

#[test]
fn a_negative_expiry_and_a_time_gone_by_are_at_once_and_0_is_never() {
    for expires in ["-1", &(MONTH + 1).to_string(), &NOON.to_string(), "-9223372036854775808"] {
        let mut talk = TestClient::new();
        let input = format!("set a 0 {expires} 1\r\nx\r\nget a\r\nadd a 0 0 1\r\ny\r\n");
        assert_eq!(talk.tell(input), "STORED\r\nEND\r\nSTORED\r\n", "{expires}");
    }
    for expires in ["0", "9223372036854775807"] {
        let mut talk = TestClient::new();
        talk.tell(format!("set a 0 {expires} 1\r\nx\r\n"));
        talk.pass(100 * 12 * MONTH);
        assert_eq!(talk.tell("get a\r\n"), HIT, "{expires}");
    }
}

#[test]
fn touch_gat_and_gats_give_another_expiry() {
    for (touch, answer) in
        [("touch a 50", "TOUCHED\r\n"), ("gat 50 a", HIT), ("gats 50 a", "VALUE a 0 1 1\r\nx\r\nEND\r\n")]
    {
        let mut talk = TestClient::new();
        talk.tell("set a 0 10 1\r\nx\r\n");
        talk.pass(9);
        assert_eq!(talk.tell(format!("{touch}\r\n")), answer);
        talk.pass(49);
        assert_eq!(talk.tell("get a\r\n"), HIT, "{touch}");
        talk.pass(1);
        assert_eq!(talk.tell("get a\r\ntouch a 1\r\n"), "END\r\nNOT_FOUND\r\n", "{touch}");
    }
    // The value is returned one last time.
    let mut talk = TestClient::new();
    assert_eq!(talk.tell("set a 0 0 1\r\nx\r\ngat -1 a\r\nget a\r\n"), format!("STORED\r\n{HIT}{MISS}"));
}

#[test]
fn dead_items_are_as_if_they_were_not_there() {
    let mut talk = TestClient::new();
    for (command, answer) in [
        ("append a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("cas a 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
        ("incr a 1\r\n", "NOT_FOUND\r\n"),
        ("delete a\r\n", "NOT_FOUND\r\n"),
        ("add a 0 0 1\r\nx\r\n", "STORED\r\n"),
    ] {
        talk.tell("set a 0 5 1\r\n1\r\n");
        talk.pass(5);
        assert_eq!(talk.tell(command), answer);
    }
}

#[test]
fn flush_all_removes_what_was_stored_before_and_nothing_after() {
    let mut talk = TestClient::new();
    talk.tell("set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
    assert_eq!(
        talk.tell("flush_all\r\nset a 0 0 1\r\nx\r\nget b\r\nget a\r\n"),
        format!("OK\r\nSTORED\r\n{MISS}{HIT}")
    );
    // A `touch` of a dead item does not revive it.
    assert_eq!(talk.tell("flush_all 0\r\ntouch a 0\r\nget a\r\n"), format!("OK\r\nNOT_FOUND\r\n{MISS}"));
}

#[test]
fn a_delayed_flush_takes_all_that_is_there_when_its_time_comes() {
    for delay in ["10".to_owned(), (NOON + 10).to_string()] {
        let mut talk = TestClient::new();
        talk.tell(format!("set a 0 0 1\r\nx\r\nflush_all {delay}\r\n"));
        talk.pass(9);
        assert_eq!(talk.tell("get a\r\nset b 0 0 1\r\nx\r\n"), format!("{HIT}STORED\r\n"));
        talk.pass(1);
        assert_eq!(talk.tell("get a b\r\nset a 0 0 1\r\nx\r\n"), "END\r\nSTORED\r\n");
        talk.pass(1000);
        assert_eq!(talk.tell("get a\r\n"), HIT, "it happens once");
    }
    // The last command counts.
    let mut talk = TestClient::new();
    talk.tell("flush_all 10\r\nflush_all 20\r\nset a 0 0 1\r\nx\r\n");
    talk.pass(19);
    assert_eq!(talk.tell("get a\r\n"), HIT);
    talk.pass(1);
    assert_eq!(talk.tell("get a\r\n"), MISS);
}

#[test]
fn memory_of_dead_items_comes_back_though_nobody_asks_for_them() {
    let mut talk = TestClient::new();
    let free = talk.cache.items.free_lines();
    for n in 0..500 {
        talk.tell(format!("set short{n} 0 5 1\r\nx\r\n"));
    }
    talk.pass(5);
    for _ in 0..500 {
        talk.tell("set a 0 0 1\r\nx\r\n");
    }
    assert_eq!(talk.stat("curr_items"), 1);
    assert_eq!((talk.stat("reclaimed"), talk.stat("evictions")), (500, 0));
    assert_eq!(talk.cache.items.free_lines(), free - 1);
}
