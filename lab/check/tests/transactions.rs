//! Tests of both judges of serializability with known histories of transactions and their verdicts.

mod story;

use remora_check::{Anomaly, History, serializable, strictly_serializable};
use story::End::{Failed, GaveUp, Killed, Returned};
use story::story;

fn is_fine(history: &History) {
    strictly_serializable(history).unwrap_or_else(|violation| panic!("{violation}"));
    serializable(history).unwrap_or_else(|violation| panic!("{violation}"));
}

fn is_refused(history: &History, anomaly: Anomaly, words: &[&str]) {
    for judge in [serializable, strictly_serializable] {
        let violation = judge(history).expect_err("this cannot be serializable");
        assert_eq!(violation.anomaly, anomaly, "{violation}");
        let says = violation.to_string();
        assert!(words.iter().all(|word| says.contains(word)), "{says}");
    }
}

#[test]
fn transactions_one_after_the_other_are_fine() {
    is_fine(&story(&[
        (0, 10, Returned(20), "w1=10 w2=20"),
        (1, 30, Returned(40), "r1=10 w1=11 r2=20"),
        (2, 50, Returned(60), "r1=11 r2=20 r3=-"),
    ]));
}

#[test]
fn a_stale_read_is_serializable_but_not_strictly() {
    let stale = story(&[
        (0, 10, Returned(20), "w1=10"),
        (0, 30, Returned(40), "r1=10 w1=11"),
        (1, 50, Returned(60), "r1=10"),
    ]);
    serializable(&stale).expect("the reader fits between the two");
    let violation = strictly_serializable(&stale).expect_err("it had been replaced");
    assert_eq!(violation.anomaly, Anomaly::ReadSkew);
    let says = violation.to_string();
    assert!(says.contains("T2 before T1: T2 read 1: 10, which T1 replaced by 11"), "{says}");
    assert!(says.contains("T1 before T2: T1 had returned when T2 was invoked"), "{says}");
}

#[test]
fn a_lost_update_is_refused() {
    let lost = story(&[
        (0, 10, Returned(20), "w1=10"),
        (1, 30, Returned(60), "r1=10 w1=11"),
        (2, 30, Returned(60), "r1=10 w1=12"),
    ]);
    is_refused(&lost, Anomaly::LostUpdate, &["key 1: 10", "client 1", "client 2"]);
}

#[test]
fn write_skew_is_refused() {
    let skew = story(&[
        (0, 10, Returned(20), "w1=10 w2=20"),
        (1, 30, Returned(60), "r1=10 r2=20 w1=11"),
        (2, 30, Returned(60), "r1=10 r2=20 w2=21"),
    ]);
    is_refused(
        &skew,
        Anomaly::WriteSkew,
        &["read 2: 20, which T2 replaced", "read 1: 10, which T1 replaced"],
    );
}

#[test]
fn an_aborted_read_is_refused() {
    let aborted = story(&[(0, 10, Failed(20), "w1=10"), (1, 15, Returned(40), "r1=10")]);
    is_refused(&aborted, Anomaly::AbortedRead, &["client 0", "client 1"]);
}

#[test]
fn an_intermediate_read_is_refused() {
    let half = story(&[(0, 10, Returned(20), "w1=10 w1=11"), (1, 15, Returned(40), "r1=10")]);
    is_refused(&half, Anomaly::IntermediateRead, &["client 0", "client 1"]);
}

#[test]
fn a_fractured_read_is_refused_whichever_of_the_blind_writers_came_first() {
    let fractured = story(&[
        (0, 10, Returned(60), "w1=10 w2=20"),
        (1, 10, Returned(60), "w1=11 w2=21"),
        (2, 10, Returned(60), "r1=11 r2=20"),
    ]);
    let violation = serializable(&fractured).expect_err("half of each");
    assert_ne!(violation.anomaly, Anomaly::Undecided);
    let violation = strictly_serializable(&fractured).expect_err("half of each");
    assert!(violation.to_string().contains("T2"), "{violation}");
    let new_and_nothing = story(&[(0, 10, Returned(60), "w1=10 w2=20"), (1, 10, Returned(60), "r1=10 r2=-")]);
    is_refused(&new_and_nothing, Anomaly::ReadSkew, &["T1 read 2: none, which T0 replaced by 20"]);
}

#[test]
fn information_may_not_flow_in_a_circle() {
    let circle = story(&[(0, 10, Returned(60), "w1=10 r2=20"), (1, 10, Returned(60), "w2=20 r1=10")]);
    is_refused(&circle, Anomaly::CircularInformation, &["T0 before T1", "T1 before T0"]);
}

#[test]
fn a_transaction_finds_what_it_wrote_and_one_value_under_a_key() {
    is_fine(&story(&[(0, 10, Returned(20), "r1=- w1=10 r1=10 w1=11 r1=11")]));
    for odd in ["w1=10 r1=-", "r1=10 w1=10"] {
        is_refused(&story(&[(0, 10, Returned(20), odd)]), Anomaly::Internal, &["client 0"]);
    }
    let twice = story(&[(0, 10, Returned(20), "w1=10"), (1, 15, Returned(30), "r1=- r1=10")]);
    is_refused(&twice, Anomaly::Internal, &["client 1"]);
}

#[test]
fn a_value_that_nobody_wrote_is_refused() {
    is_refused(&story(&[(0, 10, Returned(20), "r1=9")]), Anomaly::Unwritten, &["key 1, value 9"]);
}

#[test]
fn a_commit_of_unknown_outcome_may_surface_late_whole_or_never() {
    for end in [Killed, GaveUp(15)] {
        let late = |last| {
            story(&[
                (0, 10, end, "w1=10 w2=20"),
                (1, 20, Returned(30), "r1=- r2=-"),
                (2, 40, Returned(50), "w1=11"),
                (1, 60, Returned(70), "r1=11"),
                (1, 80, Returned(90), last),
            ])
        };
        is_fine(&late("r1=10 r2=20"));
        is_fine(&late("r1=11 r2=-"));
        // The transaction may have taken effect before 11 was written, but never only half of it.
        is_fine(&late("r1=11 r2=20"));
        is_refused(&late("r1=10 r2=-"), Anomaly::ReadSkew, &["T4 read 2: none", "T0"]);
    }
}

#[test]
fn what_is_no_history_is_said_to_be_none() {
    let is_malformed = |history: &History| {
        assert_eq!(serializable(history).expect_err("malformed").anomaly, Anomaly::Malformed);
    };
    is_malformed(&story(&[(0, 10, Returned(20), "w1=10"), (1, 10, Returned(20), "w1=10")]));
    is_malformed(&story(&[(0, 10, Returned(20), "d1")]));
}
