//! The judge of serializability, based on Adya's dependencies like Elle, but with exact inference of version
//! orders.
//!
//! Each value is written once, so the writer of each read value is known (wr). The order of a key's versions
//! is unknown, and matters only where a version was read. If R read W's version, any other writer O of the
//! key precedes W (ww) or follows R (rw).
//!
//! A history is serializable exactly if one of the two alternatives can be chosen for each such triple
//! without a cycle (Papadimitriou's polygraph). Nearly all choices follow from the known edges; the rest is
//! searched.

use crate::linear::intervals;
use crate::porcupine::{self, Verdict};
use crate::precedence::{Cycle, Precedence, Reason};
use crate::transactions::{Transaction, committed, show};
use crate::{Anomaly, History, Operation, Violation};
use std::collections::{BTreeMap, BTreeSet};

/// Judges whether an order of the transactions explains all their reads. Each key initially has no value.
///
/// # Errors
/// A proof that no order exists, or [`Anomaly::Undecided`] if the search was abandoned.
pub fn serializable(history: &History) -> Result<(), Violation> {
    let operations = history.operations()?;
    let transactions = committed(&operations)?;
    // Try the order of time first, because it leaves few choices and usually succeeds.
    if order(&transactions, in_time(&transactions), GUESSES).is_ok() {
        return Ok(());
    }
    order(&transactions, unordered(&transactions), GUESSES)
}

/// Judges whether an order explains all reads and places each transaction after all that returned before its
/// invocation.
///
/// Porcupine is a second judge, for which transactions are operations on one object with all keys.
///
/// # Errors
/// A proof that no order exists, or [`Anomaly::Undecided`] if the search was abandoned.
pub fn strictly_serializable(history: &History) -> Result<(), Violation> {
    let operations = history.operations()?;
    let transactions = committed(&operations)?;
    order(&transactions, in_time(&transactions), GUESSES)?;
    second_judge(&transactions)
}

/// Returns the order in which a transaction precedes all that were invoked after it returned.
fn in_time(transactions: &[Transaction<'_>]) -> Precedence {
    let next = |transaction: &Transaction<'_>| {
        transactions.partition_point(|other| other.operation.invoked <= transaction.returned)
    };
    Precedence::new(transactions.iter().map(next).collect())
}

/// Returns the empty order.
fn unordered(transactions: &[Transaction<'_>]) -> Precedence {
    Precedence::new(vec![transactions.len(); transactions.len()])
}

/// Time limit of the second judge, in milliseconds. Its exponential search may exceed the limit, and then
/// gives no verdict.
const MILLISECONDS: u64 = 100;

fn second_judge(transactions: &[Transaction<'_>]) -> Result<(), Violation> {
    let operations: Vec<(&Operation, u64)> =
        transactions.iter().map(|transaction| (transaction.operation, transaction.returned)).collect();
    let keys = transactions.iter().flat_map(|transaction| &transaction.operation.steps);
    let keys: BTreeSet<u64> = keys.map(|step| step.key()).collect();
    match porcupine::ask(keys.len(), &intervals(&operations), MILLISECONDS) {
        Verdict::Linearizable | Verdict::Unknown => Ok(()),
        Verdict::Illegal(longest) => {
            let says = format!("Porcupine finds an order of only {} transactions", longest.len());
            Err(Violation { anomaly: Anomaly::Disagreement, says })
        }
    }
}

/// A choice: `reader` read `writer`'s version of a key that `other` also writes, so `other` precedes
/// `writer` or follows `reader`.
#[derive(Debug, Clone, Copy)]
struct Choice {
    key: u64,
    writer: usize,
    reader: usize,
    read: u64,
    other: usize,
    other_value: u64,
}

impl Choice {
    fn other_last(&self) -> (usize, usize, Reason) {
        let because = Reason::Replaced { key: self.key, read: Some(self.read), by: self.other_value };
        (self.reader, self.other, because)
    }

    fn other_first(&self) -> (usize, usize, Reason) {
        (self.other, self.writer, Reason::Overwrote { key: self.key, reader: self.reader })
    }
}

fn order(transactions: &[Transaction<'_>], mut known: Precedence, guesses: usize) -> Result<(), Violation> {
    let explain = |cycle| explain(transactions, cycle);
    let choices = dependencies(transactions, &mut known).map_err(explain)?;
    settle(transactions, known, choices, &mut { guesses })
}

/// Inserts all certain edges, and returns the open choices.
fn dependencies(transactions: &[Transaction<'_>], known: &mut Precedence) -> Result<Vec<Choice>, Cycle> {
    let mut writers: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
    for (index, transaction) in transactions.iter().enumerate() {
        for (&key, &value) in &transaction.writes {
            writers.entry(key).or_default().push((index, value));
        }
    }
    let mut choices = Vec::new();
    for (reader, transaction) in transactions.iter().enumerate() {
        for (&key, &read) in &transaction.reads {
            let of_key = writers.get(&key).map_or(&[][..], Vec::as_slice);
            let observed_writer =
                of_key.iter().find(|(_, value)| Some(*value) == read).map(|(writer, _)| *writer);
            if let (Some(writer), Some(value)) = (observed_writer, read) {
                known.insert(writer, reader, Reason::Read { key, value })?;
            }
            for &(other, other_value) in of_key.iter().filter(|(other, _)| *other != reader) {
                match (observed_writer, read) {
                    (Some(writer), Some(read)) if writer != other => {
                        choices.push(Choice { key, writer, reader, read, other, other_value });
                    }
                    (Some(_), _) => {}
                    // No value existed yet, so every writer comes later.
                    _ => known.insert(reader, other, Reason::Replaced { key, read, by: other_value })?,
                }
            }
        }
    }
    Ok(choices)
}

/// Makes every choice that has only one alternative left, repeatedly.
fn propagate(known: &mut Precedence, choices: &mut Vec<Choice>) -> Result<(), Cycle> {
    let mut before = usize::MAX;
    while choices.len() < before {
        before = choices.len();
        let mut left = Vec::with_capacity(before);
        for choice in choices.drain(..) {
            let Choice { writer, reader, other, .. } = choice;
            if known.holds(other, writer) || known.holds(reader, other) {
                continue;
            }
            let edge = match (known.holds(writer, other), known.holds(other, reader)) {
                (false, false) => {
                    left.push(choice);
                    continue;
                }
                (true, _) => choice.other_last(),
                (false, true) => choice.other_first(),
            };
            known.insert(edge.0, edge.1, edge.2)?;
        }
        *choices = left;
    }
    Ok(())
}

/// Maximum number of guesses, after which there is no verdict.
const GUESSES: usize = 20_000;

fn settle(
    transactions: &[Transaction<'_>],
    mut known: Precedence,
    mut choices: Vec<Choice>,
    guesses: &mut usize,
) -> Result<(), Violation> {
    // A cycle may depend on the opposite of a refuted guess, so one cycle may not be the whole explanation.
    let mut refuted: Option<Violation> = None;
    let against = |refuted: &Option<Violation>, cycle: Cycle| match refuted {
        None => explain(transactions, cycle),
        Some(one) => {
            let says = format!("one way {one}\nand the other way {}", explain(transactions, cycle));
            Violation { anomaly: Anomaly::NoOrder, says }
        }
    };
    loop {
        propagate(&mut known, &mut choices).map_err(|cycle| against(&refuted, cycle))?;
        let Some(choice) = choices.pop() else { return Ok(()) };
        let Some(left) = guesses.checked_sub(1) else {
            let says = format!("{} choices are open, and no guess is left", choices.len() + 1);
            return Err(Violation { anomaly: Anomaly::Undecided, says });
        };
        *guesses = left;
        // Guess the order of time first, because most stores execute operations approximately in that order.
        let late = transactions[choice.other].returned > transactions[choice.reader].returned;
        let first = choice.other_first();
        let last = choice.other_last();
        let (guess, opposite) = if late { (last, first) } else { (first, last) };
        let mut guessed = known.clone();
        // Neither alternative closes a cycle immediately, otherwise `propagate` would have made the choice.
        let inserted =
            guessed.insert(guess.0, guess.1, guess.2).map_err(|cycle| explain(transactions, cycle));
        match inserted.and_then(|()| settle(transactions, guessed, choices.clone(), guesses)) {
            Err(violation) if violation.anomaly != Anomaly::Undecided => refuted = Some(violation),
            verdict => return verdict,
        }
        known.insert(opposite.0, opposite.1, opposite.2).map_err(|cycle| against(&refuted, cycle))?;
    }
}

/// Describes and classifies a cycle.
fn explain(transactions: &[Transaction<'_>], cycle: Cycle) -> Violation {
    let names = |index: usize| format!("T{index}");
    let mut says = String::from("a cycle");
    for (place, &(index, because)) in cycle.iter().enumerate() {
        let this = names(index);
        let next = names(cycle[(place + 1) % cycle.len()].0);
        let why = match because {
            Reason::Read { key, value } => format!("{next} read what {this} wrote, {key}: {value}"),
            Reason::Replaced { key, read, by } => {
                format!("{this} read {key}: {}, which {next} replaced by {by}", show(read))
            }
            Reason::Overwrote { key, reader } => {
                format!("both wrote {key}, and {}, later than {this}, read {next}'s", names(reader))
            }
            Reason::Returned => format!("{this} had returned when {next} was invoked"),
        };
        says += &format!("\n    {this} before {next}: {why}");
    }
    let readers = cycle.iter().filter_map(|(_, because)| match because {
        Reason::Overwrote { reader, .. } => Some(*reader),
        _ => None,
    });
    let named: BTreeSet<usize> = cycle.iter().map(|(index, _)| *index).chain(readers).collect();
    for index in named {
        says += &format!("\n  {}: {}", names(index), transactions[index].operation);
    }
    let replaced = cycle.iter().filter(|(_, because)| matches!(because, Reason::Replaced { .. })).count();
    let anomaly = match replaced {
        0 => Anomaly::CircularInformation,
        1 => Anomaly::ReadSkew,
        _ => Anomaly::WriteSkew,
    };
    Violation { anomaly, says }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    /// Two transactions write a key and one reads it concurrently, so the last writer is unknown.
    fn either_way() -> History {
        let mut history = History::default();
        let steps = [Step::Write { key: 1, value: 10 }, Step::Write { key: 1, value: 11 }];
        let steps = [steps[0], steps[1], Step::Read { key: 1, value: Some(10) }];
        (0..3).for_each(|client| history.invoke(client, 10, &[steps[client as usize]]));
        (0..3).for_each(|client| history.ok(client, 20, &[steps[client as usize]]));
        history
    }

    #[test]
    fn without_a_guess_left_there_is_no_verdict() {
        let operations = either_way().operations().expect("the events form a history");
        let transactions = committed(&operations).expect("each transaction is valid alone");
        let verdict = |guesses| order(&transactions, unordered(&transactions), guesses);
        assert_eq!(verdict(0).map_err(|violation| violation.anomaly), Err(Anomaly::Undecided));
        assert_eq!(verdict(1), Ok(()));
    }
}
