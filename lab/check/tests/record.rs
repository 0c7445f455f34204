//! Tests of recording: files, several processes, and statistics of a batch.

mod story;

use remora_check::{History, Measures, Outcome, Requirements, hold, linearizable};
use std::panic::catch_unwind;
use story::End::{Failed, GaveUp, Killed, Returned};
use story::story;

fn text(history: &History) -> String {
    let mut bytes = Vec::new();
    history.write(&mut bytes).expect("writes to a Vec succeed");
    String::from_utf8(bytes).expect("JSON is text")
}

#[test]
fn lines_are_jepsens_and_come_back() {
    let history = story(&[
        (0, 10, Returned(20), "w7=1 r8=-"),
        (1, 12, Failed(30), "d7"),
        (2, 14, GaveUp(40), "d7=1"),
        (1, 50, Killed, "w7=18446744073709551614"),
    ]);
    let text = text(&history);
    assert!(text.starts_with(
        "{\"type\":\"invoke\",\"process\":0,\"time\":10,\"value\":[[\"w\",7,1],[\"r\",8,null]]}\n"
    ));
    assert_eq!(History::read(text.as_bytes()).expect("written lines can be read"), history);
}

#[test]
fn a_line_that_its_writer_was_killed_in_is_left_out() {
    let whole = text(&story(&[(0, 10, Returned(20), "w7=1"), (0, 30, Returned(40), "w7=2")]));
    for cut in 1..40 {
        let torn = &whole.as_bytes()[..whole.len() - cut];
        let history = History::read(torn).expect("the whole lines are read");
        assert_eq!(history.events.len(), 3, "{cut} bytes cut off");
        assert_eq!(history.operations().expect("the events form a history")[1].outcome, Outcome::Unknown);
    }
    assert!(History::read("no event\n".as_bytes()).is_err());
}

#[test]
fn two_processes_make_one_history() {
    let writer = story(&[(0, 10, Returned(20), "w7=1"), (0, 30, Returned(40), "w7=2")]);
    let reader = story(&[(1, 25, Returned(28), "r7=1"), (1, 50, Returned(60), "r7=1")]);
    linearizable(&writer).expect("a history of writes is linearizable");
    let mut both = reader;
    both.merge(writer);
    let times: Vec<u64> =
        both.operations().expect("the events form a history").iter().map(|one| one.invoked).collect();
    assert_eq!(times, [10, 25, 30, 50]);
    linearizable(&both).expect_err("the second read is stale");
}

#[test]
fn a_history_that_does_not_hold_is_kept_as_a_file() {
    let stale = story(&[(0, 10, Returned(20), "w7=1"), (1, 30, Returned(40), "r7=-")]);
    let panic =
        catch_unwind(|| hold("a test of hold, seed 3", &stale, linearizable)).expect_err("it is stale");
    let says = panic.downcast_ref::<String>().expect("the panic has a message");
    assert!(says.contains("a test of hold, seed 3: not linearizable: key 7"), "{says}");
    let path = says
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("the history: "))
        .expect("the last line has the path of the history");
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("the history file exists"));
    assert_eq!(History::read(file).expect("the events form a history"), stale);
    std::fs::remove_file(path).expect("the history file can be removed");
}

/// Returns 8 operations: 2 and 3 overlap on a key, 4 and 5 overlap in time only, and the client of one died.
fn mixed() -> History {
    story(&[
        (0, 10, Returned(20), "w1=1"),
        (1, 30, Returned(50), "w1=2"),
        (2, 40, Returned(60), "r1=2"),
        (0, 70, Returned(90), "w2=3"),
        (1, 75, Returned(95), "w3=4"),
        (2, 100, Killed, "w1=5"),
        (3, 110, Returned(120), "r1=5"),
        (3, 130, Failed(140), "w1=6"),
    ])
}

#[test]
fn measures_count_what_happened() {
    let mut measures = Measures::default();
    measures.add(&mixed(), &["loss", "kill", "loss"]);
    measures.add(&story(&[(0, 10, Returned(20), "w1=1"), (1, 30, Returned(40), "r1=1")]), &["loss"]);
    let got = (measures.histories, measures.operations, measures.overlapping, measures.seen);
    assert_eq!(got, (2, 10, 2, 3));
    assert_eq!((measures.failed, measures.unknown, measures.surfaced), (1, 1, 1));
    assert_eq!((measures.clients, measures.keys), (2, 3), "fewest clients, most keys");
    assert_eq!((measures.fired["loss"], measures.fired["kill"]), (2, 1), "histories, not shots");
    let mut halves = Measures::default();
    halves.merge(&Measures::default());
    halves.merge(&measures);
    assert_eq!(halves.to_string(), measures.to_string());
    halves.merge(&measures);
    assert_eq!((halves.histories, halves.clients, halves.fired["loss"]), (4, 2, 4));
}

#[test]
fn a_batch_that_shows_too_little_does_not_hold() {
    let mut measures = Measures::default();
    measures.add(&mixed(), &["loss"]);
    let enough =
        Requirements { histories: 1, clients: 4, keys: 3, overlapping: 0.25, faults: &["loss"], fired: 1.0 };
    measures.hold(&enough);
    let too_much = [
        (Requirements { histories: 2, ..enough }, "2 histories"),
        (Requirements { clients: 5, ..enough }, "5 clients"),
        (Requirements { keys: 2, ..enough }, "2 keys"),
        (Requirements { overlapping: 0.26, ..enough }, "26 % overlapping"),
        (Requirements { faults: &["loss", "crash"], ..enough }, "crash in 100 %"),
    ];
    for (asked, word) in too_much {
        let panic = catch_unwind(|| measures.hold(&asked)).expect_err("too little");
        let says = panic.downcast_ref::<String>().expect("the panic has a message");
        assert!(says.contains(word), "{says}");
    }
}

#[test]
fn reads_that_find_nothing_do_not_hold() {
    let mut measures = Measures::default();
    let blind = [(0, 10, Returned(20), "w1=1"), (1, 10, Returned(20), "r1=-")];
    measures.add(&story(&blind), &[]);
    let asked = Requirements { histories: 1, clients: 2, keys: 1, overlapping: 0.5, faults: &[], fired: 0.0 };
    assert!(catch_unwind(|| measures.hold(&asked)).is_err());
}
