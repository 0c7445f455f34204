//! Tests of each limit: at the limit and one beyond.

use super::{Session, TestClient, say, set};
use crate::cache::{MAX_KEY, MAX_LINE, MAX_VALUE, OUTPUT};

#[test]
fn a_key_has_at_most_250_bytes() {
    let longest = "k".repeat(MAX_KEY);
    let longer = "k".repeat(MAX_KEY + 1);
    let mut talk = TestClient::new();
    assert_eq!(talk.tell(set(&longest, 1)), "STORED\r\n");
    let hit = format!("VALUE {longest} 0 1\r\nv\r\nEND\r\n");
    for end in ["\r\n", "\n", " \r\n"] {
        assert_eq!(talk.tell(format!("get {longest}{end}")), hit);
    }
    assert_eq!(talk.tell(format!("touch {longest} 0\r\ndelete {longest}\r\n")), "TOUCHED\r\nDELETED\r\n");
    for line in [
        "get K",
        "get K none",
        "gat 0 K",
        "delete K",
        "incr K 1",
        "touch K 1",
        "set K 0 0 1\r\nx",
        "mg K",
        "me K",
    ] {
        let input = format!("{}\r\nversion\r\n", line.replace('K', &longer));
        assert_eq!(talk.tell(input), "CLIENT_ERROR bad command line format\r\nVERSION 1.2.3\r\n", "{line}");
    }
}

#[test]
fn a_value_has_at_most_a_mebibyte() {
    let mut talk = TestClient::new();
    assert_eq!(talk.tell(set("a", MAX_VALUE)), "STORED\r\n");
    let got = talk.say(b"get a\r\n");
    assert_eq!(got.len(), "VALUE a 0 1048576\r\n".len() + MAX_VALUE + "\r\nEND\r\n".len());
    assert!(got.ends_with(b"vv\r\nEND\r\n"));
    assert_eq!(talk.tell("append a 0 0 1\r\nx\r\n"), "NOT_STORED\r\n", "nor one that grew");
    let mut longer = set("a", MAX_VALUE + 1);
    longer.extend_from_slice(b"version\r\n");
    assert_eq!(talk.tell(&longer), "SERVER_ERROR object too large for cache\r\nVERSION 1.2.3\r\n");
    assert_eq!(talk.tell("get a\r\n"), "END\r\n", "what was to be overwritten is out of date");
    assert_eq!(talk.stat("store_too_large"), 1);
}

#[test]
fn a_line_has_at_most_2048_bytes() {
    for end in ["\r\n", "\n"] {
        let mut talk = TestClient::new();
        let line = |len: usize| format!("{}{end}version\r\n", "x".repeat(len));
        assert_eq!(talk.tell(line(MAX_LINE)), "ERROR\r\nVERSION 1.2.3\r\n");
        assert_eq!(talk.tell(line(MAX_LINE + 1)), "CLIENT_ERROR line too long\r\n");
        assert!(talk.session.is_closed());
    }
    let mut talk = TestClient::new();
    assert_eq!(talk.tell("x".repeat(MAX_LINE + 1)), "");
    assert_eq!(talk.tell("x".repeat(MAX_LINE + 2)), "CLIENT_ERROR line too long\r\n");
}

#[test]
fn a_get_may_name_any_number_of_keys_and_its_answers_wait_for_room() {
    let mut talk = TestClient::new();
    talk.tell(set("a", 1000));
    let input = format!("get{}\r\n", " a".repeat(10_000));
    let got = talk.tell(input);
    assert_eq!(got.matches("VALUE a 0 1000\r\n").count(), 10_000);
    assert!(got.ends_with("v\r\nEND\r\n"));
}

#[test]
fn a_value_on_its_way_out_stays_though_it_is_overwritten_removed_or_pushed_out() {
    for change in ["set a 0 0 1\r\nx\r\n", "delete a\r\n", "flush_all\r\nset b 0 0 1\r\nx\r\n"] {
        let mut talk = TestClient::new();
        let free = talk.cache.items.free_lines();
        talk.tell(set("a", 100_000));
        let mut out = Vec::with_capacity(OUTPUT);
        let input = b"get a\r\n";
        let taken = talk.session.run(&mut talk.cache, talk.now, input, &mut out);
        assert!(out.len() > OUTPUT - 2, "it is sent as far as there is space");
        let mut other = Session::new(&mut talk.cache);
        say(&mut talk.cache, &mut other, talk.now, change.as_bytes());
        // If the memory were taken at once, none would be left.
        for n in 0..30 {
            say(
                &mut talk.cache,
                &mut other,
                talk.now,
                &set(&format!("b{n}"), 100_000)
                    .iter()
                    .map(|b| if *b == b'v' { b'w' } else { *b })
                    .collect::<Vec<_>>(),
            );
        }
        let mut all = out;
        all.extend(talk.say(&input[taken..]));
        assert_eq!(all.iter().filter(|byte| **byte == b'v').count(), 100_000, "{change:?}");
        assert!(all.ends_with(b"v\r\nEND\r\n"));
        other.close(&mut talk.cache);
        talk.tell("flush_all\r\n");
        (0..100).for_each(|_| drop(talk.tell("set c 0 0 1\r\nx\r\ndelete c\r\n")));
        assert_eq!(talk.cache.items.free_lines(), free, "all of it comes back");
    }
}

#[test]
fn nothing_is_allocated_once_it_stands() {
    let mut talk = TestClient::new();
    let mut out = Vec::with_capacity(OUTPUT);
    let mut input = set("a", 3000);
    input.extend_from_slice(
        b"get a\r\nappend a 0 0 1\r\nx\r\nset n 0 0 1\r\n1\r\nincr n 1\r\ndecr n 1\r\ncas a 0 0 1 1\r\nx\r\n",
    );
    input.extend_from_slice(
        b"mg a v t k\r\nms YQ== 1 b k c\r\nx\r\nma n v\r\nmd n I\r\nme n\r\nmn\r\nlru_crawler metadump all\r\nstats items\r\n",
    );
    input.extend_from_slice(
        b"touch a 0\r\ngat 0 a\r\nadd a 0 0 1\r\nx\r\nfoo\r\nstats\r\nflush_all\r\ndelete a\r\nversion\r\n",
    );
    for n in 0..100 {
        input.extend(set(&format!("b{n}"), 40_000));
    }
    let counted = allocation_counter::measure(|| {
        for _ in 0..20 {
            let mut offset = 0;
            while offset < input.len() {
                offset += talk.session.run(&mut talk.cache, talk.now, &input[offset..], &mut out);
                out.clear();
            }
        }
    });
    assert_eq!(counted.count_total, 0);
    assert!(talk.stat("evictions") > 100);
}
