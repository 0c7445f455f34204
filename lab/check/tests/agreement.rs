//! Tests the judges against an exhaustive search of orders, on small random histories of every kind.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};
use remora_check::{Anomaly, History, Operation, Outcome, Step, Violation};
use remora_check::{linearizable, serializable, strictly_serializable};
use std::cell::Cell;
use std::collections::BTreeMap;

/// An operation before its reads are known: client, gap before it, length, outcome and steps.
type Plan = (u8, u64, u64, u8, Vec<(u8, u64)>);

fn plans(steps: std::ops::Range<usize>, kinds: u8) -> impl Strategy<Value = Vec<Plan>> {
    let step = (0..kinds, 0..3u64);
    let plan = (0..4u8, 1..30u64, 1..60u64, 0..10u8, prop::collection::vec(step, steps));
    prop::collection::vec(plan, 1..7)
}

/// Executes the plans one by one in the order of `turns`, and then replaces the result of the reads in
/// `lies`.
fn carry_out(plans: &[Plan], turns: &[u64], lies: &[(usize, u64)]) -> History {
    let mut order: Vec<usize> = (0..plans.len()).collect();
    order.sort_by_key(|&index| turns[index]);
    let mut state: BTreeMap<u64, u64> = BTreeMap::new();
    let mut done: BTreeMap<usize, Vec<Step>> = BTreeMap::new();
    for index in order {
        let (.., end, steps) = &plans[index];
        let happens = !matches!(end, 0 | 1);
        let mut next = state.clone();
        let act = |(place, &(kind, key)): (usize, &(u8, u64))| match kind {
            0 | 1 => Step::Read { key, value: next.get(&key).copied() },
            2 | 3 => {
                let value = (10 * index + place + 1) as u64;
                next.insert(key, value);
                Step::Write { key, value }
            }
            _ => Step::Delete { key, found: Some(next.remove(&key).is_some()) },
        };
        done.insert(index, steps.iter().enumerate().map(act).collect());
        if happens {
            state = next;
        }
    }
    for &(lie, value) in lies {
        let reads = done.values_mut().flatten().filter(|step| matches!(step, Step::Read { .. }));
        let mut reads: Vec<&mut Step> = reads.collect();
        let count = reads.len();
        if let Some(Step::Read { value: read_value, .. }) = reads.get_mut(lie % count.max(1)) {
            *read_value = (value % 10 != 0).then_some(value);
        }
    }
    record(plans, &done)
}

/// Records each operation at its time.
fn record(plans: &[Plan], done: &BTreeMap<usize, Vec<Step>>) -> History {
    let mut history = History::default();
    let mut free = [0; 4];
    for (index, (lane, gap, length, end, _)) in plans.iter().enumerate() {
        let begin = free[usize::from(*lane)] + gap;
        free[usize::from(*lane)] = begin + length;
        history.invoke(u32::from(*lane), begin, &done[&index]);
        match end {
            0 | 1 => history.fail(u32::from(*lane), begin + length),
            2 => {}
            3 => history.info(u32::from(*lane), begin + length),
            _ => history.ok(u32::from(*lane), begin + length, &done[&index]),
        }
    }
    history
}

/// Returns true if an order of the completed operations, with any of the unknown ones, explains every read.
fn some_order_fits(operations: &[Operation], strict: bool) -> bool {
    let must = operations.iter().filter(|operation| operation.outcome == Outcome::Done).count();
    try_orders(operations, strict, &mut Vec::new(), &BTreeMap::new(), must)
}

fn try_orders(
    operations: &[Operation],
    strict: bool,
    placed: &mut Vec<usize>,
    state: &BTreeMap<u64, u64>,
    must: usize,
) -> bool {
    if must == 0 {
        return true;
    }
    let left: Vec<usize> = (0..operations.len()).filter(|index| !placed.contains(index)).collect();
    for &index in left.iter().filter(|&&index| operations[index].outcome != Outcome::Failed) {
        let returned = |other: usize| {
            operations[other].outcome == Outcome::Done
                && operations[other].ended < Some(operations[index].invoked)
        };
        if strict && left.iter().any(|&other| returned(other)) {
            continue;
        }
        let Some(next) = replay(&operations[index], state) else { continue };
        placed.push(index);
        let fits = try_orders(
            operations,
            strict,
            placed,
            &next,
            must - usize::from(operations[index].outcome == Outcome::Done),
        );
        placed.pop();
        if fits {
            return true;
        }
    }
    false
}

/// Returns the state after an operation, or `None` if its results contradict the state before.
fn replay(operation: &Operation, state: &BTreeMap<u64, u64>) -> Option<BTreeMap<u64, u64>> {
    let knows = operation.outcome == Outcome::Done;
    let mut state = state.clone();
    for step in &operation.steps {
        match *step {
            Step::Read { key, value } if knows && state.get(&key).copied() != value => return None,
            Step::Read { .. } => {}
            Step::Write { key, value } => {
                state.insert(key, value);
            }
            Step::Delete { key, found } => {
                let there = state.remove(&key).is_some();
                if knows && found.is_some_and(|flag| flag != there) {
                    return None;
                }
            }
        }
    }
    Some(state)
}

type Judge = fn(&History) -> Result<(), Violation>;

/// Runs the judges on `cases` random histories, and requires that at least a tenth of them is accepted and
/// refused each.
fn agree(cases: u32, steps: std::ops::Range<usize>, kinds: u8, judges: &[(Judge, bool)]) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(Default::default()));
    let lies = prop::collection::vec((0..100usize, 0..60u64), 0..3);
    let turns = prop::collection::vec(any::<u64>(), 6);
    let fine = Cell::new(0);
    let asked = Cell::new(0);
    let run =
        runner.run(&(plans(steps, kinds), turns, any::<bool>(), lies), |(plans, turns, in_time, lies)| {
            // Half of the histories are executed in the order of their invocations, so that strict orders
            // are frequent enough.
            let turns = if in_time { (0..6).collect() } else { turns };
            let history = carry_out(&plans, &turns, &lies);
            let operations = history.operations().expect("a history");
            for (judge, strict) in judges {
                let verdict = judge(&history);
                let unsure = matches!(&verdict, Err(violation) if is_no_verdict(violation.anomaly));
                prop_assert!(!unsure, "{verdict:?} of {operations:#?}");
                let fits = some_order_fits(&operations, *strict);
                prop_assert_eq!(
                    verdict.is_ok(),
                    fits,
                    "strict: {}, {:?} of {:#?}",
                    strict,
                    verdict,
                    operations
                );
                fine.set(fine.get() + u32::from(fits));
                asked.set(asked.get() + 1);
            }
            Ok(())
        });
    run.unwrap_or_else(|error| panic!("{error}"));
    let fine = fine.get();
    let asked = asked.get();
    println!("{fine} of {asked} were fine");
    assert!(
        fine > asked / 10 && fine < asked - asked / 10,
        "{fine} of {asked} fine: one verdict is too rare"
    );
}

fn is_no_verdict(anomaly: Anomaly) -> bool {
    matches!(anomaly, Anomaly::Malformed | Anomaly::Undecided | Anomaly::Disagreement)
}

#[test]
fn of_transactions_the_judges_say_what_trying_every_order_says() {
    agree(20_000, 1..4, 4, &[(serializable, false), (strictly_serializable, true)]);
}

#[test]
fn of_registers_porcupine_says_what_trying_every_order_says() {
    // With one step per operation, keys are independent, and an order of all operations is an order for each
    // key.
    agree(5_000, 1..2, 5, &[(linearizable, true)]);
}
