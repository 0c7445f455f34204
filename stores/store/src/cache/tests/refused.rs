//! Tests of refused commands with a value: no part of the value may be executed as a command.

use super::TestClient;

/// Returns a cache in which `precious` is stored.
fn precious() -> TestClient {
    let mut talk = TestClient::new();
    assert_eq!(talk.tell("set precious 0 0 4\r\ngold\r\n"), "STORED\r\n");
    talk
}

/// Asserts, by another client, that `precious` is still stored.
#[track_caller]
fn assert_there(talk: &mut TestClient, input: &str) {
    talk.reconnect();
    assert_eq!(talk.tell("get precious\r\n"), "VALUE precious 0 4\r\ngold\r\nEND\r\n", "{input:?}");
}

/// Regression: the value behind a refused command was executed as commands.
#[test]
fn the_value_of_a_refused_command_is_not_executed() {
    // The sample of the bug report; `ms` was not implemented then.
    let mut talk = precious();
    talk.tell("ms note 9 T60\r\nflush_all\r\n");
    assert_there(&mut talk, "ms");
    let long = "k".repeat(251);
    for line in [
        "set a x 0 9",
        "set a -1 0 9",
        "set a 4294967296 0 9",
        "set a 0x10 0 9",
        "set a 0 x 9",
        "set a 0 x 9 noreply",
        "set a 0 99999999999999999999 9",
        "set K 0 0 9",
        "set K 0 0 9 noreply",
        "set a\0b 0 0 9",
        "add a x 0 9",
        "replace a x 0 9",
        "append a x 0 9",
        "prepend a x 0 9",
        "cas a 0 0 9 x",
        "cas a 0 0 9 -1 noreply",
        "cas a x 0 9 1",
        "SET a 0 0 9",
        "upsert a 0 0 9",
        "upsert a 0 0 9 noreply",
        "ms K 9",
        "ms a 9 Tx",
        "ms a 9 T1 T1",
        "ms a 9 MZ",
        "ms a 9 x",
        "ms !! 9 b",
        "ms a 9 O12345678901234567890123456789012",
        "ms a 9 c f h k l q s t u v I b C1 F1 T1 M1 O1",
        "MS a 9",
        "mx a 9",
    ] {
        let line = line.replace('K', &long);
        let mut talk = precious();
        let answer = talk.tell(format!("{line}\r\nflush_all\r\nversion\r\n"));
        let lines: Vec<&str> = answer.lines().collect();
        assert!(matches!(lines[..], ["VERSION 1.2.3"] | [_, "VERSION 1.2.3"]), "{line:?}: {answer:?}");
        assert!(lines.len() == 1 || lines[0].contains("ERROR"), "{line:?}: {answer:?}");
        assert_there(&mut talk, &line);
    }
}

#[test]
fn a_value_whose_length_cannot_be_read_ends_the_connection() {
    for line in [
        "set a 0 0 -1",
        "set a 0 0 -1 noreply",
        "set a 0 0 x",
        "set a 0 0 2147483646",
        "set a 0 0 4294967305",
        "set a 0 0 18446744073709551616",
        "set a 0 0",
        "set a 9",
        "set a",
        "set",
        "set my key 0 0 9",
        "set a 0 0 9 1 2 3",
        "add a 0 0",
        "append",
        "prepend a 0 0 9 1 2",
        "replace a b c d",
        "cas a 0 0",
        "cas a 0 0 9 1 2 3",
        "CAS a 0 0",
        "ms a",
        "ms",
        "ms a S9",
        "ms a -1",
        "ms my 1 9 T60",
    ] {
        let mut talk = precious();
        let answer = talk.tell(format!("{line}\r\nflush_all\r\nversion\r\n"));
        assert!(
            answer.is_empty() || answer.contains("ERROR") && answer.lines().count() == 1,
            "{line:?}: {answer:?}"
        );
        assert!(talk.session.is_closed(), "{line:?}");
        assert_there(&mut talk, line);
        // A client that sends no value, but waits for the answer, can continue.
        let mut talk = precious();
        assert_eq!(talk.tell(format!("{line}\r\n")), answer);
        assert_eq!(talk.tell("version\r\n"), "VERSION 1.2.3\r\n", "{line:?}");
        // A client that shuts down its sending side after its commands still gets all answers.
        let mut out = Vec::with_capacity(crate::cache::OUTPUT);
        talk.session.run(&mut talk.cache, talk.now, format!("{line}\r\n").as_bytes(), &mut out);
        assert!(out.is_empty() && talk.session.wakes().is_some());
        talk.session.end(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), answer, "{line:?}");
    }
}

/// Regression: a `cas` without its number ended the connection; memcached answers both the line and the
/// value (its `cas.t`).
#[test]
fn a_cas_without_a_number_is_answered_as_often_as_memcached_does() {
    let mut talk = precious();
    let input = "cas precious 0 0 9 \r\nflush_all\r\nversion\r\n";
    assert_eq!(talk.tell(input), "ERROR\r\nERROR\r\nVERSION 1.2.3\r\n");
    assert_there(&mut talk, input);
    // A client that waits for the answer can continue.
    assert_eq!(talk.tell("cas precious 0 0 9\r\n"), "ERROR\r\n");
    assert_eq!(talk.tell("version\r\n"), "VERSION 1.2.3\r\n");
}

#[test]
fn what_is_longer_or_shorter_than_was_said_is_not_executed() {
    for input in [
        "set a 0 0 3\r\nabc__flush_all\r\n",
        "set a 0 0 3\r\nabcde\r\nflush_all\r\n",
        "set a 0 0 3\r\nabc\nflush_all\r\n",
        "set a 0 0 3 noreply\r\nabcdefg\r\nflush_all\r\n",
        "set a 0 0 30\r\nabc\r\nflush_all\r\nflush_all\r\nflush_all\r\n",
        "ms a 3\r\nabc__flush_all\r\n",
        "append precious 0 0 0\r\nflush_all\r\nflush_all\r\n",
    ] {
        let mut talk = precious();
        let answer = talk.tell(input);
        assert!(["", "CLIENT_ERROR bad data chunk\r\n"].contains(&answer.as_str()), "{input:?}: {answer:?}");
        assert!(talk.session.is_closed(), "{input:?}");
        assert_there(&mut talk, input);
    }
}

#[test]
fn a_value_that_is_too_large_or_has_no_room_is_not_executed() {
    for line in ["set a 0 0 1048577", "ms a 1048577 q", "append a 0 0 1048577"] {
        let mut talk = precious();
        let value = format!("{:11}", "\r\nflush_all").repeat(1 << 17);
        let input = format!("{line}\r\n{}\r\nversion\r\n", &value[..1_048_577]);
        assert_eq!(talk.tell(input), "SERVER_ERROR object too large for cache\r\nVERSION 1.2.3\r\n");
        assert_there(&mut talk, line);
    }
}

/// Regression: the POST request of a browser wrote into the cache.
///
/// Regression: a browser's request with the method `gets` was executed before it was recognised.
#[test]
fn a_browser_writes_nothing() {
    for line in [
        "POST / HTTP/1.1",
        "GET / HTTP/1.0",
        "PUT /asdf/asd/fasdfasdf/sadf HTTP/1.1",
        "DELETE HTTP/1.1",
        "OPTIONS * HTTP/2",
        "HTTP/1.1",
        "touch / HTTP/1.1",
        "set / HTTP/1.1",
        "ms / HTTP/1.1",
        "incr / HTTP/1.1",
        "mg / HTTP/1.1",
        "get / HTTP/1.1",
        "gets /index.html HTTP/1.1",
        "gat / HTTP/1.1",
        "stats / HTTP/1.1",
    ] {
        let mut talk = precious();
        let body =
            "Host: cache\r\nContent-Type: text/plain\r\n\r\nset precious 0 0 4\r\nlead\r\nflush_all\r\n";
        assert_eq!(talk.tell(format!("{line}\r\n{body}")), "", "{line:?}");
        assert!(talk.session.is_closed(), "{line:?}");
        assert_there(&mut talk, line);
        assert_eq!(talk.stat("rejected_http"), 1);
    }
    // Valid commands are not taken for a browser's request.
    assert_eq!(precious().tell("get a HTTP/1.1\r\nget /a /b HTTP/1.1\r\n"), "END\r\nEND\r\n");
    assert_eq!(precious().tell("get HTTP/1.1\r\ndelete HTTP/1.1\r\n"), "END\r\nNOT_FOUND\r\n");
}

#[test]
fn a_line_that_is_too_long_ends_the_connection_with_its_value() {
    let mut talk = precious();
    let answer = talk.tell(format!("set {} 0 0 9\r\nflush_all\r\n", "k".repeat(2048)));
    assert_eq!(answer, "CLIENT_ERROR line too long\r\n");
    assert!(talk.session.is_closed());
    assert_there(&mut talk, "a long line");
}
