//! Replayed IRN traces: the format that other programs write and read.

use crate::running::{Scratch, remora};

/// Returns the answers to a trace with these events.
fn replay(name: &str, options: &[&str], events: &[&str]) -> Vec<String> {
    let trace = Scratch::new(format!("{}\n{}\n", events.len(), events.join("\n")).as_bytes());
    let out = Scratch::new(b"");
    let mut words = vec!["bench", name, trace.path(), "--out", out.path()];
    words.extend(options);
    remora(&words).good();
    std::fs::read_to_string(out.path()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn arrivals_are_answered_queue_pair_by_queue_pair() {
    // Queue pair 3 receives PSN 1 before 0, and then a SEND Only beyond a gap. Queue pair 9 receives a
    // WRITE and a READ request in order.
    let events = ["3 1 1", "9 10 0", "3 0 0", "9 12 1", "3 4 3", "3 2 2", "3 2 2"];
    let answers = ["1 0 1 0 0", "0 1 0 1 0", "0 2 0 0 0", "0 2 1 2 0", "1 2 3 0 0", "0 4 2 2 2", "0 4 2 2 0"];
    assert_eq!(replay("irn-receiver", &[], &events), answers);
}

#[test]
fn a_psn_goes_round_the_circle() {
    // The queue pair has its first PSN elsewhere, so a PSN before 0 is a duplicate.
    assert_eq!(replay("irn-receiver", &[], &["1 4 16777215"]), ["0 0 16777215 0 0"]);
}

#[test]
fn a_sender_recovers_event_by_event() {
    let events = [
        "7 0",
        "7 0",
        "7 0",
        "7 0",
        "7 1 0 1 1",
        "7 0",
        "7 1 0 2 1",
        "7 2 1",
        "7 2 0",
        "7 0",
        "7 1 3 0 0",
        "7 0",
        "7 1 4 0 0",
    ];
    let answers = [
        "0 1 0 1 0 0 0 0 0 0",
        "0 1 1 2 0 0 0 0 0 0",
        "0 1 2 3 0 0 0 0 0 0",
        "0 0 0 3 0 0 0 0 0 0",
        "1 3 0 0 0 1 0 0",
        "0 1 0 3 0 0 2 0 1 0",
        "1 3 0 0 2 0 1 1",
        "2 0 3 0 0 2 1 1 0",
        "2 0 3 0 0 2 1 1 0",
        "0 1 0 3 0 0 2 0 1 0",
        "1 3 3 0 2 0 0 0",
        "0 1 3 4 3 0 2 0 0 0",
        "1 4 4 0 2 0 0 0",
    ];
    assert_eq!(replay("irn-sender", &["--cap", "3"], &events), answers);
}

#[test]
fn a_flow_of_so_many_packets_ends() {
    let answers = replay("irn-sender", &["--packets", "1"], &["1 0", "1 0"]);
    assert_eq!(answers, ["0 1 0 1 0 0 0 0 0 0", "0 0 0 1 0 0 0 0 0 0"]);
}

#[test]
fn a_trace_that_is_none_is_told_where() {
    for (text, words) in [
        ("", "the first line is the number of lines"),
        ("2\n1 4 0\n", "2 lines were announced"),
        ("1\n1 4 0\n1 4 1\n", "more than 1 lines"),
        ("1\n1 4 x\n", "line 2"),
        ("1\n1 4 16777216\n", "a PSN is a number from 0 to 16777215"),
        ("1\n1 4 0 0\n", "more than an event has"),
        ("1\n1 4\n", "a PSN is missing"),
    ] {
        let trace = Scratch::new(text.as_bytes());
        remora(&["bench", "irn-receiver", trace.path()]).one_line(words);
    }
    remora(&["bench", "irn-sender"]).one_line("which trace?");
    remora(&["bench", "irn-sender", "/none/such"]).one_line("/none/such");
}
