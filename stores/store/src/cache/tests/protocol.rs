//! Tests of requests and their answers.

use super::TestClient;
use crate::cache::{MAX_KEY, MAX_LINE};

/// Compares each exchange, with a cache of its own.
#[track_caller]
fn exchanges(cases: &[(&str, &str)]) {
    for (input, expected) in cases {
        assert_eq!(TestClient::new().tell(input), *expected, "{input:?}");
    }
}

#[test]
fn values_are_stored_as_the_verb_says() {
    exchanges(&[
        ("set a 7 0 2\r\nxy\r\nget a\r\n", "STORED\r\nVALUE a 7 2\r\nxy\r\nEND\r\n"),
        ("set a 4294967295 0 0\r\n\r\nget a\r\n", "STORED\r\nVALUE a 4294967295 0\r\n\r\nEND\r\n"),
        ("set a 0 0 4\r\n\r\n\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 4\r\n\r\n\r\n\r\nEND\r\n"),
        (
            "add a 0 0 1\r\nx\r\nadd a 0 0 1\r\ny\r\nget a\r\n",
            "STORED\r\nNOT_STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
        ),
        ("replace a 0 0 1\r\nx\r\nget a\r\n", "NOT_STORED\r\nEND\r\n"),
        ("append a 0 0 1\r\nx\r\nprepend a 0 0 1\r\nx\r\nget a\r\n", "NOT_STORED\r\nNOT_STORED\r\nEND\r\n"),
        (
            "set a 3 0 1\r\nm\r\nappend a 9 9 2\r\nrs\r\nprepend a 8 8 2\r\nkl\r\nget a\r\nreplace a 1 0 1\r\nq\r\nget a\r\n",
            "STORED\r\nSTORED\r\nSTORED\r\nVALUE a 3 5\r\nklmrs\r\nEND\r\nSTORED\r\nVALUE a 1 1\r\nq\r\nEND\r\n",
        ),
        ("set  a  0  0  1 \r\nx\r\n  get   a  \r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
        ("set a +1 +5 +1\r\nx\r\nget a\n", "STORED\r\nVALUE a 1 1\r\nx\r\nEND\r\n"),
        (
            "set \t\r\u{1}\u{7f} 0 0 1\r\nx\r\nget \t\r\u{1}\u{7f}\r\n",
            "STORED\r\nVALUE \t\r\u{1}\u{7f} 0 1\r\nx\r\nEND\r\n",
        ),
        ("set noreply 0 0 1\r\nx\r\ndelete noreply\r\n", "STORED\r\nDELETED\r\n"),
    ]);
}

#[test]
fn retrievals_bring_what_is_there() {
    exchanges(&[
        ("get a\r\n", "END\r\n"),
        (
            "set a 1 0 1\r\nx\r\nset b 2 0 1\r\ny\r\nget b none a b\r\n",
            "STORED\r\nSTORED\r\nVALUE b 2 1\r\ny\r\nVALUE a 1 1\r\nx\r\nVALUE b 2 1\r\ny\r\nEND\r\n",
        ),
        ("set a 0 0 1\r\nx\r\ngets a\r\n", "STORED\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n"),
        (
            "set a 0 0 1\r\nx\r\ngat 9 a b\r\ngats 9 a\r\n",
            "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n",
        ),
        ("get\r\nget \r\ngets\r\ngat\r\ngat 1\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nEND\r\n"),
        ("gat x a b\r\nversion\r\n", "CLIENT_ERROR invalid exptime argument\r\nVERSION 1.2.3\r\n"),
    ]);
}

/// Regression: a `get` with one invalid key was answered with the values before it and the error last,
/// so clients took one for the other (memcached's `issue_152.t`).
#[test]
fn a_key_that_is_none_is_told_before_any_value() {
    let none = "k".repeat(MAX_KEY + 1);
    let mut talk = TestClient::new();
    talk.tell("set a 0 0 1\r\nx\r\n");
    for line in [format!("get a {none}"), format!("gets a {none} a"), format!("gat 9 a {none}")] {
        let expected = "CLIENT_ERROR bad command line format\r\nVERSION 1.2.3\r\n";
        assert_eq!(talk.tell(format!("{line}\r\nversion\r\n")), expected, "{line}");
    }
    assert_eq!(talk.stat("get_hits"), 0, "nothing was looked for");
    // In a line longer than the limit, everything before the invalid key is answered.
    let many = " a".repeat(MAX_LINE / 2);
    let answer = talk.tell(format!("get{many} {none}\r\nversion\r\n"));
    assert_eq!(answer.matches("VALUE a 0 1\r\nx\r\n").count(), MAX_LINE / 2);
    assert!(answer.ends_with("x\r\nCLIENT_ERROR bad command line format\r\nVERSION 1.2.3\r\n"), "{answer}");
}

#[test]
fn cas_stores_if_nobody_did_meanwhile() {
    let mut talk = TestClient::new();
    assert_eq!(talk.tell("cas a 0 0 1 1\r\nx\r\n"), "NOT_FOUND\r\n");
    assert_eq!(talk.tell("set a 0 0 1\r\nx\r\ngets a\r\n"), "STORED\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n");
    assert_eq!(talk.tell("cas a 5 0 1 1\r\ny\r\ngets a\r\n"), "STORED\r\nVALUE a 5 1 2\r\ny\r\nEND\r\n");
    assert_eq!(talk.tell("cas a 0 0 1 1\r\nz\r\nget a\r\n"), "EXISTS\r\nVALUE a 5 1\r\ny\r\nEND\r\n");
    for change in ["append a 0 0 0\r\n\r\n", "set a 0 0 1\r\n1\r\n", "incr a 1\r\n", "decr a 1\r\n"] {
        let before = talk.tell("gets a\r\n");
        talk.tell(change);
        assert_ne!(talk.tell("gets a\r\n"), before, "{change:?} changes the number");
    }
    let before = talk.tell("gets a\r\n");
    talk.tell("touch a 100\r\nadd a 0 0 1\r\nx\r\n");
    assert_eq!(talk.tell("gets a\r\n"), before, "what changes no value changes no number");
}

#[test]
fn numbers_are_counted_as_memcached_counts_them() {
    const BAD: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    let value = |value: &str, command: &str, expected: &str| {
        let mut talk = TestClient::new();
        talk.tell(format!("set n 5 0 {}\r\n{value}\r\n", value.len()));
        assert_eq!(talk.tell(format!("{command}\r\n")), expected, "{value:?} {command:?}");
        talk.tell("get n\r\n")
    };
    assert_eq!(value("10", "incr n 5", "15\r\n"), "VALUE n 5 2\r\n15\r\nEND\r\n");
    assert_eq!(value("10", "decr n 1", "9\r\n"), "VALUE n 5 2\r\n9 \r\nEND\r\n");
    assert_eq!(value("10", "decr n 11", "0\r\n"), "VALUE n 5 2\r\n0 \r\nEND\r\n");
    assert_eq!(value("99", "incr n 1", "100\r\n"), "VALUE n 5 3\r\n100\r\nEND\r\n");
    assert_eq!(value("099", "incr n 1", "100\r\n"), "VALUE n 5 3\r\n100\r\nEND\r\n");
    assert_eq!(value("1 x", "incr n 1", "2\r\n"), "VALUE n 5 3\r\n2  \r\nEND\r\n");
    value("18446744073709551615", "incr n 2", "1\r\n");
    value("1", "incr n 18446744073709551615", "0\r\n");
    for text in ["", "x", "-1", " ", "1x", "18446744073709551616"] {
        value(text, "incr n 1", BAD);
    }
    // The padding keeps its length, up to half of the longest value.
    for spaces in [63, 64, 83, 84, 1000, (1 << 19) - 1] {
        let long = value(&format!("1{}", " ".repeat(spaces)), "incr n 9", "10\r\n");
        let expected = format!("VALUE n 5 {}\r\n10{}\r\nEND\r\n", spaces + 1, " ".repeat(spaces - 1));
        assert!(long == expected, "{spaces} spaces");
    }
    value(&format!("1{}", " ".repeat(1 << 19)), "incr n 1", BAD);
    value(&format!("{}1", "0".repeat(63)), "incr n 1", "2\r\n");
    value(&format!("{}1", "0".repeat(64)), "incr n 1", BAD);
    for delta in ["-1", "x", "18446744073709551616"] {
        value("1", &format!("incr n {delta}"), "CLIENT_ERROR invalid numeric delta argument\r\n");
    }
    value("1", "incr none 1", "NOT_FOUND\r\n");
}

#[test]
fn lines_of_the_wrong_form_are_told_so() {
    const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
    const DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    for line in [
        "",
        " ",
        "GET a",
        "foo",
        "set",
        "set a",
        "set a 0 0",
        "set a 0 0 1 2 3",
        "cas a 0 0 1",
        "cas a 0 0 1 5 6 7",
        "incr a",
        "incr a 1 2 3",
        "touch a",
        "touch a 1 2 3",
        "delete",
        "delete a 0 0 0",
        "verbosity",
        "verbosity 1 2 3",
        "flush_all 1 2 3",
        "stats foo",
        "\r",
        "mx a",
        "MG a",
        "lru_crawler",
        "lru_crawler enable all",
        "cache_memlimit",
        "cache_memlimit x",
    ] {
        exchanges(&[(&format!("{line}\r\n"), "ERROR\r\n")]);
    }
    for line in ["verbosity x", "incr a\u{0}b 1", "get a\u{0}b c"] {
        exchanges(&[(&format!("{line}\r\nversion\r\n"), &format!("{FORMAT}VERSION 1.2.3\r\n"))]);
    }
    exchanges(&[
        ("delete a 1\r\n", DELETE),
        ("delete a x\r\n", DELETE),
        ("touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    ]);
}

#[test]
fn a_value_without_its_end_is_refused_and_the_old_one_stays() {
    let mut talk = TestClient::new();
    talk.tell("set a 0 0 1\r\no\r\n");
    assert_eq!(talk.tell("set a 0 0 1\r\nxyz\r\nversion\r\n"), "CLIENT_ERROR bad data chunk\r\n");
    assert!(talk.session.is_closed(), "what follows is a part of the value, of which nobody knows the end");
    talk.reconnect();
    assert_eq!(talk.tell("set a 0 0 3\r\nx\r\nversion\r\n"), "CLIENT_ERROR bad data chunk\r\n");
    talk.reconnect();
    assert_eq!(talk.tell("set a 0 0 1\r\nxyz"), "CLIENT_ERROR bad data chunk\r\n");
    assert_eq!(talk.tell("get a\r\n"), "VALUE a 0 1\r\no\r\nEND\r\n", "who sends nothing meanwhile goes on");
}

#[test]
fn noreply_silences_everything_but_a_line_that_is_no_command() {
    exchanges(&[(
        "set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\nx\r\nreplace a 0 0 1 noreply\r\n2\r\nappend a 0 0 1 noreply\r\n3\r\n\
         prepend a 0 0 1 noreply\r\n4\r\ncas a 0 0 1 77 noreply\r\nx\r\nincr a 1 noreply\r\ndecr a 1 noreply\r\n\
         touch a 0 noreply\r\nget a\r\ndelete a noreply\r\ndelete a 0 noreply\r\nincr a 1 noreply\r\nverbosity 1 noreply\r\n\
         flush_all noreply\r\nflush_all 0 noreply\r\ntouch b x noreply\r\nincr noreply\r\ndelete\r\nset a x 0 1 noreply\r\nx\r\nset b 0 0 1 noreply\r\nxyz\r\n",
        "VALUE a 0 3\r\n423\r\nEND\r\nERROR\r\nERROR\r\n",
    )]);
}

/// Regression: a TLS hello was taken for lines of commands, and its session ticket stored a value.
#[test]
fn the_rest_of_the_commands() {
    exchanges(&[
        ("version\r\nversion x\r\n", "VERSION 1.2.3\r\nVERSION 1.2.3\r\n"),
        ("verbosity 1\r\n", "OK\r\n"),
        (
            "delete a\r\nset a 0 0 1\r\nx\r\ndelete a 0\r\nget a\r\n",
            "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\n",
        ),
        (
            "stats items\r\nstats slabs\r\nstats reset\r\nstats sizes\r\n",
            "END\r\nSTAT active_slabs 0\r\nSTAT total_malloced 0\r\nEND\r\nRESET\r\nSTAT sizes_status disabled\r\nEND\r\n",
        ),
        ("quit\r\nversion\r\n", ""),
    ]);
    let mut talk = TestClient::new();
    talk.tell("quit now\r\n");
    assert!(talk.session.is_closed());
    // A browser's TLS hello with a session ticket that another server chose.
    let mut talk = TestClient::new();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\nset evil 0 0 5\r\nowned\r\n";
    assert_eq!(talk.say(hello), b"");
    assert!(talk.session.is_closed());
    talk.reconnect();
    assert_eq!((talk.stat("rejected_tls"), talk.tell("get evil\r\n")), (1, "END\r\n".to_owned()));
    let mut talk = TestClient::new();
    assert_eq!(talk.say(b"\x80\x07"), b"");
    assert!(talk.session.is_closed());
    talk.reconnect();
    assert_eq!(talk.stat("rejected_binary"), 1);
    assert_eq!(
        talk.say(b"\x80\x07\r\nversion\r\n"),
        b"ERROR\r\nVERSION 1.2.3\r\n",
        "later it is one word of many"
    );
}

#[test]
fn figures_count_what_happened() {
    let mut talk = TestClient::new();
    talk.tell("set a 0 0 3\r\nabc\r\nget a b\r\nincr b 1\r\ndelete b\r\ntouch a 0\r\ncas a 0 0 1 9\r\nx\r\nflush_all\r\nget a\r\n");
    for (name, count) in [
        ("cmd_get", 3),
        ("get_hits", 1),
        ("get_misses", 2),
        ("cmd_set", 2),
        ("cmd_touch", 1),
        ("touch_hits", 1),
        ("incr_misses", 1),
        ("delete_misses", 1),
        ("cas_badval", 1),
        ("cmd_flush", 1),
        ("curr_items", 0),
        ("bytes", 0),
        ("total_items", 1),
        ("reclaimed", 1),
        ("evictions", 0),
        ("curr_connections", 1),
        ("pid", 7),
        ("max_connections", 10),
    ] {
        assert_eq!(talk.stat(name), count, "{name}");
    }
    assert!(talk.stat("bytes_read") > 100 && talk.stat("bytes_written") > 100);
    talk.tell("stats reset\r\n");
    assert_eq!((talk.stat("cmd_get"), talk.stat("reclaimed")), (0, 0));
    assert!(talk.tell("stats settings\r\n").contains("STAT item_size_max 1048576\r\n"));
}
