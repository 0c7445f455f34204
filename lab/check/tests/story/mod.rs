//! A short notation for histories in tests.

use remora_check::{History, Step};

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The operation returned at this time.
    Returned(u64),
    /// The operation failed at this time and had no effect.
    Failed(u64),
    /// The client gave up at this time.
    GaveUp(u64),
    /// The client was killed.
    Killed,
}
use End::{Failed, GaveUp, Killed, Returned};

/// Returns a history of operations, each given as client, time of invocation, end, and steps. `w7=1` writes
/// 1 to key 7, `r7=1` reads it, `r7=-` finds no value. `d7` deletes; `d7=1` deletes and reports that the key
/// existed.
pub(crate) fn story(operations: &[(u32, u64, End, &str)]) -> History {
    let mut history = History::default();
    for &(client, invoked, end, words) in operations {
        let steps: Vec<Step> = words.split_whitespace().map(step).collect();
        history.invoke(client, invoked, &steps);
        match end {
            Returned(time) => history.ok(client, time, &steps),
            Failed(time) => history.fail(client, time),
            GaveUp(time) => history.info(client, time),
            Killed => {}
        }
    }
    history
}

fn step(word: &str) -> Step {
    let (key, value) = word[1..].split_once('=').unwrap_or((&word[1..], "-"));
    let key = key.parse().expect("a key is a number");
    let value = (value != "-").then(|| value.parse::<u64>().expect("a value is a number or -"));
    match &word[..1] {
        "r" => Step::Read { key, value },
        "w" => Step::Write { key, value: value.expect("a write has a value") },
        "d" => Step::Delete { key, found: value.map(|flag| flag != 0) },
        other => panic!("no such step: {other}"),
    }
}
