//! Tests of the judges with long, highly concurrent histories of small models of correct and broken stores.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use remora_check::{Anomaly, History, Kind, Measures, Requirements, Step, Violation, hold};
use remora_check::{linearizable, serializable, strictly_serializable};
use std::collections::{BTreeMap, BTreeSet};

const CLIENTS: u64 = 12;
const TURNS: u64 = 50;
const KEYS: u64 = 16;
/// Number of histories per store.
const HISTORIES: u64 = 50;

/// The validation of a transaction before its commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Validation {
    /// No value that it read was replaced.
    Reads,
    /// No value that it replaces was replaced (snapshot isolation).
    Writes,
    /// Validation is skipped.
    Skipped,
}

/// The model of a store: the times at which its operations read and take effect, and its defect.
#[derive(Clone, Copy)]
struct Store {
    /// Maximum number of steps of an operation.
    steps: u64,
    /// True if operations read and commit at the same time; otherwise they read earlier and validate.
    atomic: bool,
    validation: Validation,
    /// Maximum difference between the clocks of clients, by which the store orders operations.
    skew: u64,
    /// Maximum age of the state that reads return.
    lag: u64,
    /// Percentage of acknowledged commits without effect.
    forgets: u64,
    /// Delay of the last key of a commit.
    tears: u64,
    /// True if an aborted transaction leaves its first write.
    leaks: bool,
    /// True if operations include deletions.
    deletes: bool,
}

const RIGHT: Store = Store {
    steps: 1,
    atomic: true,
    validation: Validation::Reads,
    skew: 0,
    lag: 0,
    forgets: 0,
    tears: 0,
    leaks: false,
    deletes: true,
};
const SERIAL: Store = Store { steps: 4, deletes: false, ..RIGHT };
const OPTIMISTIC: Store = Store { atomic: false, ..SERIAL };

/// The schedule of a transaction, in the store's time.
struct Turn {
    client: u32,
    begin: u64,
    end: Option<u64>,
    look: u64,
    commit: Option<u64>,
    steps: Vec<Step>,
}

/// Versions of each key, by time.
struct Table(Vec<Vec<(u64, Option<u64>)>>);

impl Table {
    fn at(&self, key: u64, time: u64) -> Option<u64> {
        let older = self.0[key as usize].iter().filter(|(since, _)| *since <= time);
        older.max_by_key(|(since, _)| *since).and_then(|(_, value)| *value)
    }

    fn put(&mut self, key: u64, time: u64, value: Option<u64>) {
        self.0[key as usize].push((time, value));
    }
}

fn below(random: &mut Xoshiro256PlusPlus, limit: u64) -> u64 {
    if limit == 0 { 0 } else { random.next_u64() % limit }
}

/// Returns random steps on different keys, most of them on few keys; half of the writes follow a read of
/// their key.
fn steps(store: &Store, random: &mut Xoshiro256PlusPlus, fresh: &mut u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut keys = BTreeSet::new();
    for _ in 0..=below(random, store.steps) {
        let hot = below(random, KEYS) + 1;
        keys.insert(below(random, hot));
    }
    for key in keys {
        let kind = below(random, 4);
        if store.deletes && below(random, 8) == 0 {
            steps.push(Step::Delete { key, found: None });
            continue;
        }
        if kind < 2 || (kind == 2 && store.steps > 1) {
            steps.push(Step::Read { key, value: None });
        }
        if kind >= 2 {
            *fresh += 1;
            steps.push(Step::Write { key, value: *fresh });
        }
    }
    steps
}

/// Returns the schedule of all clients. One in twenty turns, the client is killed and replaced by another
/// one; its requests take effect much later or never.
fn turns(store: &Store, random: &mut Xoshiro256PlusPlus) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut fresh = 0;
    let mut next_client = CLIENTS;
    for lane in 0..CLIENTS {
        let skew = below(random, store.skew + 1);
        let mut client = lane;
        let mut now = below(random, 50);
        for _ in 0..TURNS {
            let begin = now + 1 + below(random, 60);
            let middle = begin + 1 + below(random, 80);
            let commit = middle + 1 + below(random, 80);
            let end = commit + 1 + below(random, 80);
            let killed = below(random, 20) == 0;
            let late = (below(random, 2) == 0).then(|| commit + below(random, 2_000));
            turns.push(Turn {
                client: client as u32,
                begin,
                end: (!killed).then_some(end),
                look: middle + skew,
                commit: if killed { late } else { Some(commit) }.map(|commit| commit + skew),
                steps: steps(store, random, &mut fresh),
            });
            now = end;
            if killed {
                client = next_client;
                next_client += 1;
            }
        }
    }
    turns
}

/// Returns the history of one run of the store.
fn run(store: &Store, seed: u64) -> History {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut turns = turns(store, &mut random);
    turns.sort_by_key(|turn| turn.commit);
    let mut table = Table(vec![Vec::new(); KEYS as usize]);
    let mut history = History::default();
    for turn in &mut turns {
        history.invoke(turn.client, turn.begin, &turn.steps);
        let committed =
            turn.commit.is_some_and(|commit| take_effect(store, &mut random, &mut table, turn, commit));
        match turn.end {
            Some(end) if committed => history.ok(turn.client, end, &turn.steps),
            Some(end) => history.fail(turn.client, end),
            None => {}
        }
    }
    history.events.sort_by_key(|event| event.time);
    history
}

fn take_effect(
    store: &Store,
    random: &mut Xoshiro256PlusPlus,
    table: &mut Table,
    turn: &mut Turn,
    commit: u64,
) -> bool {
    let look = if store.atomic { commit } else { turn.look.min(commit) };
    let look = look.saturating_sub(below(random, store.lag));
    let changed = |key| !store.atomic && table.at(key, look) != table.at(key, commit);
    let mut valid = true;
    for step in &mut turn.steps {
        match step {
            Step::Read { key, value } => {
                *value = table.at(*key, look);
                valid &= store.validation != Validation::Reads || !changed(*key);
            }
            Step::Write { key, .. } => valid &= store.validation != Validation::Writes || !changed(*key),
            // Half of the deletions report whether the key existed.
            Step::Delete { key, found } => *found = (*key % 2 == 0).then(|| table.at(*key, look).is_some()),
        }
    }
    let writes = turn.steps.iter().filter_map(|step| match *step {
        Step::Write { key, value } => Some((key, Some(value))),
        Step::Delete { key, .. } => Some((key, None)),
        Step::Read { .. } => None,
    });
    let writes: Vec<(u64, Option<u64>)> = writes.collect();
    let forgotten = below(random, 100) < store.forgets;
    let kept = if valid { writes.len() } else { usize::from(store.leaks).min(writes.len()) };
    for (place, &(key, value)) in writes[..kept].iter().enumerate().filter(|_| !forgotten) {
        let torn = place > 0 && place + 1 == writes.len();
        table.put(key, commit + if torn { store.tears } else { 0 }, value);
    }
    valid
}

/// Returns true if the checker of another project finds the history serializable. It uses Elle's rules,
/// which infer less about the order of versions.
fn adya_accepts(mut history: History) -> bool {
    let mut lines = Vec::new();
    let mut asked = BTreeMap::new();
    for event in &mut history.events {
        match event.kind {
            Kind::Invoke => drop(asked.insert(event.client, event.steps.clone())),
            // Jepsen's format repeats the request in failures.
            Kind::Fail | Kind::Info => event.steps.clone_from(&asked[&event.client]),
            Kind::Ok => {}
        }
    }
    history.write(&mut lines).expect("memory takes everything");
    let lines = adya::History::from_json(std::str::from_utf8(&lines).expect("JSON")).expect("a history");
    let asked = adya::Opts { models: vec!["serializable".into()], wfr_keys: true, ..adya::Opts::default() };
    adya::check(&lines, adya::Workload::RwRegister, &asked).valid != adya::Valid::False
}

type Judge = fn(&History) -> Result<(), Violation>;

fn is_never_refused(name: &str, store: &Store, judge: Judge) -> Measures {
    let mut measures = Measures::default();
    for seed in 0..HISTORIES {
        let history = run(store, seed);
        hold(&format!("{name}, seed {seed}"), &history, judge);
        measures.add(&history, &["kill"]);
    }
    let asked = Requirements {
        histories: HISTORIES as usize,
        clients: 12,
        keys: 16,
        overlapping: 0.3,
        faults: &["kill"],
        fired: 1.0,
    };
    measures.hold(&asked);
    assert!(measures.surfaced > HISTORIES as usize && measures.unknown > 2 * measures.surfaced, "{measures}");
    measures
}

/// Asserts that a broken store is detected, most often with one of these anomalies.
fn is_caught(name: &str, store: &Store, judge: Judge, by: &[Anomaly]) {
    let mut verdicts = Vec::new();
    for seed in 0..HISTORIES {
        verdicts.extend(judge(&run(store, seed)).err());
    }
    let unsure = [Anomaly::Malformed, Anomaly::Undecided, Anomaly::Disagreement];
    if let Some(verdict) = verdicts.iter().find(|verdict| unsure.contains(&verdict.anomaly)) {
        panic!("{name}: {verdict}");
    }
    let expected = verdicts.iter().filter(|verdict| by.contains(&verdict.anomaly)).count();
    println!("{name}: caught in {} of {HISTORIES} runs, {expected} by {by:?}", verdicts.len());
    assert!(2 * expected > verdicts.len(), "{name}: {:?}", verdicts.first());
}

#[test]
fn right_registers_are_never_refused() {
    is_never_refused("registers", &RIGHT, linearizable);
}

#[test]
fn right_transactions_are_never_refused() {
    is_never_refused("serial, strictly", &SERIAL, strictly_serializable);
    let measures = is_never_refused("optimistic, strictly", &OPTIMISTIC, strictly_serializable);
    assert!(measures.failed > 100, "nothing was ever aborted: {measures}");
    is_never_refused("optimistic", &OPTIMISTIC, serializable);
}

#[test]
fn broken_registers_are_caught() {
    let anomalies = [Anomaly::NotLinearizable];
    is_caught("stale", &Store { lag: 300, ..RIGHT }, linearizable, &anomalies);
    is_caught("forgetful", &Store { forgets: 2, ..RIGHT }, linearizable, &anomalies);
    is_caught("skewed", &Store { skew: 300, ..RIGHT }, linearizable, &anomalies);
}

#[test]
fn broken_transactions_are_caught() {
    use Anomaly::{AbortedRead, LostUpdate, ReadSkew, WriteSkew};
    for judge in [serializable as Judge, strictly_serializable] {
        let unvalidated = Store { validation: Validation::Skipped, ..OPTIMISTIC };
        is_caught("validation skipped", &unvalidated, judge, &[LostUpdate]);
        let snapshots = Store { validation: Validation::Writes, ..OPTIMISTIC };
        is_caught("snapshot isolation", &snapshots, judge, &[WriteSkew, ReadSkew]);
        is_caught("leaking aborts", &Store { leaks: true, ..OPTIMISTIC }, judge, &[AbortedRead]);
        is_caught("torn commits", &Store { tears: 40, ..SERIAL }, judge, &[ReadSkew, WriteSkew, LostUpdate]);
        is_caught("forgetful", &Store { forgets: 5, ..SERIAL }, judge, &[LostUpdate, ReadSkew, WriteSkew]);
    }
}

#[test]
fn what_an_elle_refuses_is_refused() {
    for store in [SERIAL, OPTIMISTIC, Store { skew: 1_000, ..SERIAL }] {
        for seed in 0..HISTORIES {
            assert!(adya_accepts(run(&store, seed)), "our judge has nothing against seed {seed}");
        }
    }
    let unvalidated = Store { validation: Validation::Skipped, ..OPTIMISTIC };
    let snapshots = Store { validation: Validation::Writes, ..OPTIMISTIC };
    for store in [unvalidated, snapshots, Store { leaks: true, ..OPTIMISTIC }, Store { forgets: 1, ..SERIAL }]
    {
        let refused: Vec<u64> = (0..HISTORIES).filter(|&seed| !adya_accepts(run(&store, seed))).collect();
        println!("refused {} of {HISTORIES}", refused.len());
        assert!(!refused.is_empty(), "nothing to compare");
        assert!(refused.iter().all(|&seed| serializable(&run(&store, seed)).is_err()));
    }
}

#[test]
fn skewed_clocks_are_serializable_but_not_strictly() {
    let skewed = Store { skew: 1_000, ..SERIAL };
    is_never_refused("skewed", &skewed, serializable);
    is_caught(
        "skewed",
        &skewed,
        strictly_serializable,
        &[Anomaly::ReadSkew, Anomaly::CircularInformation, Anomaly::WriteSkew],
    );
}
