//! The transactions of a history, and the checks of single transactions before the search for an order.

use crate::history::Sightings;
use crate::{Anomaly, Operation, Outcome, Step, Violation};
use std::collections::BTreeMap;

/// A transaction that took effect.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    /// Recorded operation of the transaction.
    pub operation: &'a Operation,
    /// Latest time at which the transaction took effect.
    pub returned: u64,
    /// Value that the transaction read from other transactions, by key.
    pub reads: BTreeMap<u64, Option<u64>>,
    /// Last value that the transaction wrote, by key.
    pub writes: BTreeMap<u64, u64>,
}

/// Returns all transactions that took effect, in the order of their invocations: the successful ones, and
/// those of unknown outcome whose values were read. Other transactions of unknown outcome left no trace and
/// are omitted.
///
/// # Errors
/// A transaction that contradicts itself or reads an impossible value.
pub(crate) fn committed(operations: &[Operation]) -> Result<Vec<Transaction<'_>>, Violation> {
    let sightings = Sightings::of(operations)?;
    let mut transactions = Vec::new();
    for operation in operations {
        let returned = match operation.outcome {
            Outcome::Done => operation.ended,
            Outcome::Failed => None,
            Outcome::Unknown => sightings.surfaced(operation).map(|seen| seen.max(operation.invoked)),
        };
        if let Some(returned) = returned {
            let transaction = Transaction::of(operation, returned)?;
            for (&key, &value) in &transaction.reads {
                can_be_read(operations, &sightings, operation, key, value)?;
            }
            transactions.push(transaction);
        }
    }
    no_lost_update(&transactions)?;
    Ok(transactions)
}

impl<'a> Transaction<'a> {
    fn of(operation: &'a Operation, returned: u64) -> Result<Self, Violation> {
        let mut this = Self { operation, returned, reads: BTreeMap::new(), writes: BTreeMap::new() };
        for step in &operation.steps {
            match *step {
                // Reads of operations without a result prove nothing.
                Step::Read { key, value } if operation.outcome == Outcome::Done => {
                    let own = this.writes.get(&key).copied();
                    let expected = own.map_or_else(|| *this.reads.entry(key).or_insert(value), Some);
                    if expected != value {
                        let says = format!("key {key} held {} before in\n    {operation}", show(expected));
                        return Err(Violation { anomaly: Anomaly::Internal, says });
                    }
                }
                Step::Read { .. } => {}
                Step::Write { key, value } => {
                    this.writes.insert(key, value);
                }
                Step::Delete { .. } => {
                    let says =
                        format!("a transaction deletes, so a read of nothing is ambiguous: {operation}");
                    return Err(Violation::malformed(says));
                }
            }
        }
        Ok(this)
    }
}

fn can_be_read(
    operations: &[Operation],
    sightings: &Sightings,
    reader: &Operation,
    key: u64,
    read_value: Option<u64>,
) -> Result<(), Violation> {
    let Some(value) = read_value else { return Ok(()) };
    let against = |anomaly, why: String| {
        let says = format!("key {key}, value {value}, {why}\n    read by {reader}");
        Err(Violation { anomaly, says })
    };
    let Some(&writer) = sightings.writers.get(&(key, value)) else {
        return against(Anomaly::Unwritten, "was never written".to_owned());
    };
    let writer = &operations[writer];
    if std::ptr::eq(writer, reader) {
        return against(Anomaly::Internal, "was read before it was written".to_owned());
    }
    if writer.outcome == Outcome::Failed {
        return against(Anomaly::AbortedRead, format!("was written by\n    {writer}"));
    }
    if writer.writes().filter(|(written, _)| *written == key).last() != Some((key, value)) {
        return against(Anomaly::IntermediateRead, format!("was overwritten by its own\n    {writer}"));
    }
    Ok(())
}

/// Checks for lost updates: cycles of two transactions, which are frequent enough to have a name.
fn no_lost_update(transactions: &[Transaction<'_>]) -> Result<(), Violation> {
    let mut updated: BTreeMap<(u64, Option<u64>), &Transaction<'_>> = BTreeMap::new();
    for transaction in transactions {
        let both = transaction.reads.iter().filter(|(key, _)| transaction.writes.contains_key(key));
        for (&key, &value) in both {
            if let Some(other) = updated.insert((key, value), transaction) {
                let says = format!(
                    "both read key {key}: {} and replaced it\n    {}\n    {}",
                    show(value),
                    other.operation,
                    transaction.operation
                );
                return Err(Violation { anomaly: Anomaly::LostUpdate, says });
            }
        }
    }
    Ok(())
}

/// Returns the text of a value, or "none".
pub(crate) fn show(value: Option<u64>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
