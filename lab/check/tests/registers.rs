//! Tests of `linearizable` with known histories of registers and their verdicts.

mod story;

use remora_check::{Anomaly, History, linearizable};
use story::End::{Failed, GaveUp, Killed, Returned};
use story::story;

fn is_fine(history: &History) {
    linearizable(history).unwrap_or_else(|violation| panic!("{violation}"));
}

fn is_refused(history: &History, words: &[&str]) {
    let violation = linearizable(history).expect_err("this cannot be linearizable");
    assert_eq!(violation.anomaly, Anomaly::NotLinearizable, "{violation}");
    let says = violation.to_string();
    assert!(words.iter().all(|word| says.contains(word)), "{says}");
}

#[test]
fn overlapping_operations_may_take_either_order() {
    for seen in ["r7=1", "r7=2"] {
        is_fine(&story(&[
            (0, 10, Returned(40), "w7=1"),
            (1, 20, Returned(30), "w7=2"),
            (2, 50, Returned(60), seen),
        ]));
    }
}

#[test]
fn a_stale_read_is_refused_and_its_key_and_reader_are_named() {
    let stale = [
        (0, 10, Returned(20), "w7=1"),
        (0, 30, Returned(40), "w7=2"),
        (1, 50, Returned(60), "r7=1"),
        (1, 70, Returned(80), "r7=2"),
        (2, 5, Returned(15), "w8=3"),
    ];
    is_refused(&story(&stale), &["key 7", "client 1 [50, 60] read 7: 1"]);
}

#[test]
fn a_value_that_was_seen_may_not_be_gone_again() {
    // The write lasts for the whole history; the reads are sequential.
    is_refused(
        &story(&[
            (0, 10, Returned(100), "w7=1"),
            (1, 20, Returned(30), "r7=1"),
            (2, 40, Returned(50), "r7=-"),
        ]),
        &["key 7"],
    );
}

#[test]
fn an_acknowledged_write_may_not_be_lost() {
    is_refused(&story(&[(0, 10, Returned(20), "w7=1"), (1, 30, Returned(40), "r7=-")]), &["read 7: none"]);
}

#[test]
fn a_value_that_nobody_wrote_is_refused() {
    is_refused(&story(&[(0, 10, Returned(20), "r7=5")]), &["read 7: 5"]);
    is_refused(
        &story(&[(0, 10, Returned(20), "w7=1"), (0, 30, Returned(40), &format!("r7={}", u64::MAX))]),
        &["torn bytes"],
    );
}

#[test]
fn a_write_that_failed_may_not_be_seen() {
    is_fine(&story(&[(0, 10, Failed(20), "w7=1"), (1, 30, Returned(40), "r7=-")]));
    is_refused(&story(&[(0, 10, Failed(20), "w7=1"), (1, 30, Returned(40), "r7=1")]), &["read 7: 1"]);
}

#[test]
fn a_write_of_unknown_outcome_may_surface_late_or_never() {
    for end in [Killed, GaveUp(15)] {
        let late = [
            (0, 10, end, "w7=1"),
            (1, 20, Returned(30), "r7=-"),
            (2, 40, Returned(50), "w7=2"),
            (1, 60, Returned(70), "r7=2"),
            (1, 80, Returned(90), "r7=1"),
        ];
        is_fine(&story(&late));
        is_fine(&story(&late[..4]));
        // After the value was read, the value that it replaced may not be read any more.
        let back = [&late[..], &[(2, 100, Returned(110), "r7=2")]].concat();
        is_refused(&story(&back), &["client 2 [100, 110]"]);
    }
}

#[test]
fn a_write_may_not_be_seen_before_it_was_invoked() {
    for end in [Killed, Returned(60)] {
        is_refused(&story(&[(1, 10, Returned(20), "r7=1"), (0, 50, end, "w7=1")]), &["read 7: 1"]);
    }
}

#[test]
fn deletions_count_and_tell_what_they_found() {
    let ending_with = |second| {
        story(&[
            (0, 10, Returned(20), "w7=1"),
            (0, 30, Returned(40), "d7=1"),
            (1, 50, Returned(60), "r7=-"),
            (1, 70, Returned(80), second),
        ])
    };
    is_fine(&ending_with("d7=0"));
    is_fine(&ending_with("d7"));
    is_refused(&ending_with("d7=1"), &["delete 7: found true"]);
    is_refused(&ending_with("r7=1"), &["read 7: 1"]);
}

#[test]
fn a_deletion_may_be_the_only_one_who_found_a_value() {
    is_fine(&story(&[(0, 10, Killed, "w7=1"), (1, 20, Returned(30), "d7=1"), (1, 40, Returned(50), "r7=-")]));
    is_refused(&story(&[(0, 25, Failed(30), "w7=1"), (1, 20, Returned(30), "d7=1")]), &["found true"]);
}

#[test]
fn a_deletion_of_unknown_outcome_may_surface_once() {
    let late = [
        (0, 10, Returned(20), "w7=1"),
        (0, 30, Killed, "d7"),
        (1, 40, Returned(50), "r7=1"),
        (1, 60, Returned(70), "r7=-"),
        (2, 80, Returned(90), "w7=2"),
        (1, 100, Returned(110), "r7=2"),
    ];
    is_fine(&story(&late));
    is_refused(&story(&[&late[..], &[(1, 120, Returned(130), "r7=-")]].concat()), &["client 1 [120, 130]"]);
}

#[test]
fn a_swap_reads_and_writes_at_one_moment() {
    let swaps = |second| {
        story(&[
            (0, 10, Returned(20), "w7=1"),
            (0, 30, Returned(60), "r7=1 w7=2"),
            (1, 30, Returned(60), second),
        ])
    };
    is_fine(&swaps("r7=2 w7=3"));
    is_refused(&swaps("r7=1 w7=3"), &["key 7"]);
}

#[test]
fn what_is_no_history_is_said_to_be_none() {
    let is_malformed = |history: &History| {
        assert_eq!(linearizable(history).expect_err("malformed").anomaly, Anomaly::Malformed);
    };
    is_malformed(&story(&[(0, 10, Returned(5), "w7=1")]));
    is_malformed(&story(&[(0, 10, Returned(20), "w7=1"), (1, 10, Returned(20), "w7=1")]));
    is_malformed(&story(&[(0, 10, Returned(20), "w7=1 w8=2")]));
    let mut answer = History::default();
    answer.ok(0, 10, &[]);
    is_malformed(&answer);
}
