//! The judge of linearizability of each key, based on Porcupine.

use crate::history::{Sightings, Step};
use crate::porcupine::{self, Interval, READ, REMOVE, Verdict, WRITE};
use crate::{Anomaly, History, Operation, Outcome, Violation};
use std::collections::{BTreeMap, BTreeSet};

/// Time limit of the search for one key, in milliseconds. Most keys take a few.
const MILLISECONDS: u64 = 60_000;

/// Judges whether each key is a linearizable register. Linearizability is a local property (Herlihy and
/// Wing's theorem 1), so each key is judged separately. An operation may have several steps, but on one key
/// only: a read and a write together are a swap.
///
/// # Errors
/// The first key that is not linearizable, with the operations around the point that no order can pass.
pub fn linearizable(history: &History) -> Result<(), Violation> {
    let operations = history.operations()?;
    let sightings = Sightings::of(&operations)?;
    let mut keys: BTreeMap<u64, Vec<(&Operation, u64)>> = BTreeMap::new();
    for operation in &operations {
        let Some(key) = operation.steps.first().map(Step::key) else { continue };
        if operation.steps.iter().any(|step| step.key() != key) {
            return Err(Violation::malformed(format!("more than one key in {operation:?}")));
        }
        if let Some(returned) = effective_return(operation, &sightings) {
            keys.entry(key).or_default().push((operation, returned));
        }
    }
    for (key, operations) in keys {
        let intervals = intervals(&operations);
        match porcupine::ask(1, &intervals, MILLISECONDS) {
            Verdict::Linearizable => {}
            Verdict::Unknown => {
                let says = format!("key {key}: no verdict within {MILLISECONDS} ms");
                return Err(Violation { anomaly: Anomaly::Undecided, says });
            }
            Verdict::Illegal(longest) => return Err(explain(key, &operations, &longest)),
        }
    }
    Ok(())
}

/// Returns the latest time at which the operation took effect, or `None` if the operation can be omitted.
///
/// An operation of unknown outcome has no return, so it is concurrent with all later ones, which makes the
/// search expensive. If its value was read, the operation took effect before that read returned. If its
/// value was never read, the operation can be omitted, because any order with it is also valid without it.
/// Neither holds for deletions, and for writes that a deletion may have found.
fn effective_return(operation: &Operation, sightings: &Sightings) -> Option<u64> {
    match operation.outcome {
        Outcome::Done => operation.ended,
        Outcome::Failed => None,
        Outcome::Unknown => {
            let surfaced = sightings.surfaced(operation).map(|seen| seen.max(operation.invoked));
            let hidden = operation.steps.iter().any(|step| match step {
                Step::Delete { .. } => true,
                Step::Write { key, .. } => sightings.existing.contains(key),
                Step::Read { .. } => false,
            });
            surfaced.or(hidden.then_some(u64::MAX))
        }
    }
}

/// Converts operations for Porcupine: registers, values and times are renumbered densely, and keep their
/// order.
pub(crate) fn intervals(operations: &[(&Operation, u64)]) -> Vec<Interval> {
    let mut times = BTreeSet::new();
    let mut keys = BTreeSet::new();
    let mut values = BTreeSet::new();
    for (operation, returned) in operations {
        times.extend([operation.invoked, *returned]);
        for step in &operation.steps {
            keys.insert(step.key());
            if let Step::Write { value, .. } | Step::Read { value: Some(value), .. } = *step {
                values.insert(value);
            }
        }
    }
    let number = |sorted: &BTreeSet<u64>, offset: usize| -> BTreeMap<u64, usize> {
        sorted.iter().enumerate().map(|(index, &item)| (item, index + offset)).collect()
    };
    let times = number(&times, 0);
    let keys = number(&keys, 0);
    let values = number(&values, 1);
    let value = |value: Option<u64>| value.map_or(0, |value| values[&value] as u32);
    let steps = |operation: &Operation| {
        let visible = operation.steps.iter().filter(|step| is_certain(operation, step));
        let step = |step: &Step| {
            let register = keys[&step.key()] as u32;
            match *step {
                Step::Read { value: read_value, .. } => [READ, register, value(read_value)],
                Step::Write { value: new, .. } => [WRITE, register, value(Some(new))],
                Step::Delete { found, .. } => [REMOVE, register, found.map_or(0, |flag| 1 + u32::from(flag))],
            }
        };
        visible.map(step).collect()
    };
    let interval = |(operation, returned): &(&Operation, u64)| Interval {
        call: times[&operation.invoked] as u64,
        returned: times[returned] as u64,
        steps: steps(operation),
    };
    operations.iter().map(interval).collect()
}

/// Returns false for reads of operations without a result, because they prove nothing.
fn is_certain(operation: &Operation, step: &Step) -> bool {
    operation.outcome == Outcome::Done || !matches!(step, Step::Read { .. })
}

/// Number of operations of the longest order that are shown.
const SHOWN: usize = 4;

fn explain(key: u64, operations: &[(&Operation, u64)], longest: &[usize]) -> Violation {
    let show = |index: usize| format!("\n    {}", operations[index].0);
    let before: String =
        longest.iter().skip(longest.len().saturating_sub(SHOWN)).map(|&index| show(index)).collect();
    let placed: BTreeSet<usize> = longest.iter().copied().collect();
    let left: Vec<usize> = (0..operations.len()).filter(|index| !placed.contains(index)).collect();
    // An operation that was invoked after another remaining one returned cannot be next.
    let first_return = left.iter().map(|&index| operations[index].1).min().unwrap_or(u64::MAX);
    let next = left.iter().filter(|&&index| operations[index].0.invoked <= first_return);
    let next: String = next.map(|&index| show(index)).collect();
    let says = format!(
        "key {key}: after {} of {} operations, the last of them{before}\n  none of these can be next:{next}",
        longest.len(),
        operations.len()
    );
    Violation { anomaly: Anomaly::NotLinearizable, says }
}
