//! Statistics of a batch of histories, to assert that the histories contain enough concurrency and faults.

use crate::{History, Operation, Outcome, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Counts over many histories, to be printed and asserted.
#[derive(Debug, Clone, Default)]
pub struct Measures {
    /// Number of histories added.
    pub histories: usize,
    /// Number of operations in these histories.
    pub operations: usize,
    /// Number of operations that overlap in time and key with one of another client. An operation of unknown
    /// outcome counts for as long as its client waited.
    pub overlapping: usize,
    /// Number of operations without effect.
    pub failed: usize,
    /// Number of operations of unknown outcome.
    pub unknown: usize,
    /// Number of operations of unknown outcome that took effect, because their values were read.
    pub surfaced: usize,
    /// Number of reads that returned another client's value.
    pub seen: usize,
    /// Smallest number of clients in a history.
    pub clients: usize,
    /// Largest number of keys in a history.
    pub keys: usize,
    /// Number of histories in which each fault fired, by the caller's name of the fault.
    pub fired: BTreeMap<String, usize>,
}

/// The requirements on a batch of histories.
#[derive(Debug, Clone, Copy)]
pub struct Requirements<'a> {
    /// Minimum number of histories.
    pub histories: usize,
    /// Minimum number of clients in each history.
    pub clients: usize,
    /// Maximum number of keys in each history.
    pub keys: usize,
    /// Minimum share of operations that overlap, 0 to 1.
    pub overlapping: f64,
    /// Faults that must have fired in a share `fired` of the histories each.
    pub faults: &'a [&'a str],
    /// Minimum share of histories in which each fault fired, 0 to 1.
    pub fired: f64,
}

impl Measures {
    /// Adds a history and the names of the faults that fired in it, in which repetitions are ignored.
    ///
    /// # Panics
    /// If the history is malformed.
    pub fn add(&mut self, history: &History, faults: &[&str]) {
        let operations = history.operations().unwrap_or_else(|violation| panic!("{violation}"));
        let clients: BTreeSet<u32> = operations.iter().map(|operation| operation.client).collect();
        let keys: BTreeSet<u64> = steps(&operations).map(|(_, step)| step.key()).collect();
        self.clients = if self.histories == 0 { clients.len() } else { self.clients.min(clients.len()) };
        self.keys = self.keys.max(keys.len());
        self.histories += 1;
        self.operations += operations.len();
        self.overlapping += overlapping(&operations);
        self.failed += operations.iter().filter(|operation| operation.outcome == Outcome::Failed).count();
        self.look_at_reads(&operations);
        for fault in faults.iter().collect::<BTreeSet<_>>() {
            *self.fired.entry((*fault).to_owned()).or_default() += 1;
        }
    }

    fn look_at_reads(&mut self, operations: &[Operation]) {
        let written = operations.iter().enumerate();
        let written =
            written.flat_map(|(index, operation)| operation.writes().map(move |write| (write, index)));
        let written: BTreeMap<(u64, u64), usize> = written.collect();
        let mut surfaced = BTreeSet::new();
        for (reader, step) in steps(operations).filter(|(reader, _)| reader.outcome == Outcome::Done) {
            let Step::Read { key, value: Some(value) } = *step else { continue };
            let Some(&writer) = written.get(&(key, value)) else { continue };
            self.seen += usize::from(operations[writer].client != reader.client);
            if operations[writer].outcome == Outcome::Unknown {
                surfaced.insert(writer);
            }
        }
        self.unknown += operations.iter().filter(|operation| operation.outcome == Outcome::Unknown).count();
        self.surfaced += surfaced.len();
    }

    /// Adds the counts of another batch, such as another thread's.
    pub fn merge(&mut self, other: &Self) {
        if other.histories == 0 {
            return;
        }
        self.clients = if self.histories == 0 { other.clients } else { self.clients.min(other.clients) };
        self.keys = self.keys.max(other.keys);
        self.histories += other.histories;
        self.operations += other.operations;
        self.overlapping += other.overlapping;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.surfaced += other.surfaced;
        self.seen += other.seen;
        for (fault, histories) in &other.fired {
            *self.fired.entry(fault.clone()).or_default() += histories;
        }
    }

    /// Prints the counts and asserts the requirements.
    ///
    /// # Panics
    /// If any requirement is not met; the message lists all of them.
    pub fn hold(&self, asked: &Requirements<'_>) {
        println!("{self}");
        let mut missing = Vec::new();
        let mut need = |holds: bool, says: String| {
            if !holds {
                missing.push(says);
            }
        };
        need(self.histories >= asked.histories, format!("at least {} histories", asked.histories));
        need(self.clients >= asked.clients, format!("at least {} clients in each", asked.clients));
        need(self.keys <= asked.keys, format!("at most {} keys in each", asked.keys));
        let overlap = share(self.overlapping, self.operations);
        need(overlap >= asked.overlapping, format!("{:.0} % overlapping", 100.0 * asked.overlapping));
        need(self.seen > 0, "a read that found what another client wrote".to_owned());
        for fault in asked.faults {
            let fired = self.fired.get(*fault).copied().unwrap_or(0);
            let enough = share(fired, self.histories) >= asked.fired;
            need(enough, format!("{fault} in {:.0} % of the histories", 100.0 * asked.fired));
        }
        assert!(
            missing.is_empty(),
            "these histories do not meet the requirements: {}\n{self}",
            missing.join(", ")
        );
    }
}

impl fmt::Display for Measures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} histories, each of {} clients or more and {} keys or fewer; {} operations: {:.1} % overlapping, {} \
             failed, {} of unknown outcome ({} of them surfaced); {} reads found another client's value; faults fired:",
            self.histories,
            self.clients,
            self.keys,
            self.operations,
            100.0 * share(self.overlapping, self.operations),
            self.failed,
            self.unknown,
            self.surfaced,
            self.seen,
        )?;
        let mut fired = self.fired.iter();
        fired.try_for_each(|(fault, runs)| {
            write!(formatter, " {fault} {:.1} %", 100.0 * share(*runs, self.histories))
        })
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn steps(operations: &[Operation]) -> impl Iterator<Item = (&Operation, &Step)> {
    operations.iter().flat_map(|operation| operation.steps.iter().map(move |step| (operation, step)))
}

/// Returns the number of operations that overlap in time and key with one of another client. The operations
/// must be in the order of their invocations.
fn overlapping(operations: &[Operation]) -> usize {
    let mut overlaps = vec![false; operations.len()];
    let mut running: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, operation) in operations.iter().enumerate() {
        for step in &operation.steps {
            let on_key = running.entry(step.key()).or_default();
            on_key.retain(|&other| waited_until(&operations[other]) > operation.invoked);
            for &other in on_key.iter().filter(|&&other| operations[other].client != operation.client) {
                overlaps[other] = true;
                overlaps[index] = true;
            }
            on_key.push(index);
        }
    }
    overlaps.into_iter().filter(|overlaps| *overlaps).count()
}

fn waited_until(operation: &Operation) -> u64 {
    operation.ended.unwrap_or(operation.invoked)
}
