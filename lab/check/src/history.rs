//! Histories: the operations of clients with their results and times, which are the only input of a judge.

use crate::{TORN, Violation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufRead, Write};

/// An access to one key. Keys and values are numbers. A test numbers its keys, derives the bytes of a value
/// from its number (`stamp`), and writes each value at most once under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub enum Step {
    /// A read. The value is `None` if the key did not exist; in an invocation the result is unknown and
    /// `None` too.
    Read {
        /// Number of the key.
        key: u64,
        /// Value that was read.
        value: Option<u64>,
    },
    /// Write of a value.
    Write {
        /// Number of the key.
        key: u64,
        /// Value that was written.
        value: u64,
    },
    /// Deletion of the value.
    Delete {
        /// Number of the key.
        key: u64,
        /// True if the key existed, if the store reports it.
        found: Option<bool>,
    },
}

/// A step in Jepsen's notation: `["r", key, value or null]`, `["w", key, value]`, or `["d", key, 0, 1 or
/// null]`.
#[derive(Serialize, Deserialize)]
struct Wire(Letter, u64, Option<u64>);

#[derive(Serialize, Deserialize)]
enum Letter {
    #[serde(rename = "r")]
    Read,
    #[serde(rename = "w")]
    Write,
    #[serde(rename = "d")]
    Delete,
}

impl From<Wire> for Step {
    fn from(Wire(letter, key, value): Wire) -> Self {
        match letter {
            Letter::Read => Self::Read { key, value },
            Letter::Write => Self::Write { key, value: value.unwrap_or(TORN) },
            Letter::Delete => Self::Delete { key, found: value.map(|flag| flag != 0) },
        }
    }
}

impl From<Step> for Wire {
    fn from(step: Step) -> Self {
        match step {
            Step::Read { key, value } => Self(Letter::Read, key, value),
            Step::Write { key, value } => Self(Letter::Write, key, Some(value)),
            Step::Delete { key, found } => Self(Letter::Delete, key, found.map(u64::from)),
        }
    }
}

impl Step {
    /// Returns the key that the step accesses.
    pub fn key(&self) -> u64 {
        match *self {
            Self::Read { key, .. } | Self::Write { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// Returns the step as it is known at its invocation, without a result.
    fn unanswered(&self) -> Self {
        match *self {
            Self::Read { key, .. } => Self::Read { key, value: None },
            Self::Write { .. } => *self,
            Self::Delete { key, .. } => Self::Delete { key, found: None },
        }
    }
}

/// The state of an operation that an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The operation starts. The steps contain all writes that it may make.
    Invoke,
    /// The operation succeeded, and the event has its results.
    Ok,
    /// The operation failed and has no effect.
    Fail,
    /// The client stopped waiting: the operation may take effect at any later time, or never.
    Info,
}

/// An event, which is one line of a history file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// State of the operation.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Number of the client. A client has one operation at a time; a program with concurrent operations
    /// counts as several clients.
    #[serde(rename = "process")]
    pub client: u32,
    /// Time of the event, on a clock that all clients share.
    pub time: u64,
    /// Steps of the operation, with their results once these are known.
    #[serde(rename = "value")]
    pub steps: Vec<Step>,
}

/// All events of a run. The events of each client are in the order in which they were recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Events in the order of the file.
    pub events: Vec<Event>,
}

/// Outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The operation took effect between its invocation and its return.
    Done,
    /// The operation had no effect.
    Failed,
    /// The operation took effect at any time after its invocation, possibly after the client gave up or
    /// died, or never.
    Unknown,
}

/// An operation: a pair of events, or an invocation without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Number of the client.
    pub client: u32,
    /// Time of the invocation.
    pub invoked: u64,
    /// Time at which the client stopped waiting; `None` if the client died or the run ended before.
    pub ended: Option<u64>,
    /// Outcome of the operation.
    pub outcome: Outcome,
    /// Steps that took effect, or that may have if the outcome is unknown.
    pub steps: Vec<Step>,
}

impl History {
    /// Records the invocation of an operation with these steps, before its first packet is sent. The writes
    /// of a transaction must be known here; an interactive transaction is recorded when it requests the
    /// commit, with the time of its start.
    pub fn invoke(&mut self, client: u32, time: u64, steps: &[Step]) {
        self.push(Kind::Invoke, client, time, steps);
    }

    /// Records the success of the client's operation; `steps` contain the results.
    pub fn ok(&mut self, client: u32, time: u64, steps: &[Step]) {
        self.push(Kind::Ok, client, time, steps);
    }

    /// Records that the client's operation had no effect, because it was refused or aborted.
    pub fn fail(&mut self, client: u32, time: u64) {
        self.push(Kind::Fail, client, time, &[]);
    }

    /// Records that the client gave up without a result. A client that is killed records nothing, with the
    /// same meaning.
    pub fn info(&mut self, client: u32, time: u64) {
        self.push(Kind::Info, client, time, &[]);
    }

    fn push(&mut self, kind: Kind, client: u32, time: u64, steps: &[Step]) {
        self.events.push(Event { kind, client, time, steps: steps.to_vec() });
    }

    /// Adds the events that another process recorded with the same clock.
    pub fn merge(&mut self, other: Self) {
        self.events.extend(other.events);
    }

    /// Reads lines of JSON. An incomplete last line is skipped, because its writer was killed while writing.
    ///
    /// # Errors
    /// The errors of the reader, and `InvalidData` for a line that is not an event.
    pub fn read(mut input: impl BufRead) -> io::Result<Self> {
        let mut history = Self::default();
        let mut line = String::new();
        while input.read_line(&mut line)? > 0 && line.ends_with('\n') {
            history.events.push(serde_json::from_str(&line)?);
            line.clear();
        }
        Ok(history)
    }

    /// Writes the events as lines of JSON.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        self.events.iter().try_for_each(|event| output.write_all(event.line().as_bytes()))
    }

    /// Returns the operations in the order of their invocations.
    ///
    /// # Errors
    /// [`Anomaly::Malformed`](crate::Anomaly::Malformed) if a result has no invocation or precedes it.
    pub fn operations(&self) -> Result<Vec<Operation>, Violation> {
        let mut operations: Vec<Operation> = Vec::with_capacity(self.events.len() / 2 + 1);
        let mut running: BTreeMap<u32, usize> = BTreeMap::new();
        for event in &self.events {
            if event.kind == Kind::Invoke {
                running.insert(event.client, operations.len());
                operations.push(Operation::begin(event));
                continue;
            }
            let Some(number) = running.remove(&event.client) else {
                return Err(Violation::malformed(format!("{event:?} answers nothing")));
            };
            if event.time < operations[number].invoked {
                return Err(Violation::malformed(format!("{event:?} comes before its invocation")));
            }
            operations[number].end(event);
        }
        operations.sort_by_key(|operation| operation.invoked);
        Ok(operations)
    }
}

impl Event {
    /// Returns the event as a line with a newline. A caller that writes the line by one call before it acts
    /// keeps the event even if the process dies.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("events can be encoded as JSON");
        line.push('\n');
        line
    }
}

impl Operation {
    fn begin(event: &Event) -> Self {
        let steps = event.steps.iter().map(Step::unanswered).collect();
        Self { client: event.client, invoked: event.time, ended: None, outcome: Outcome::Unknown, steps }
    }

    fn end(&mut self, event: &Event) {
        self.ended = Some(event.time);
        match event.kind {
            Kind::Ok => (self.outcome, self.steps) = (Outcome::Done, event.steps.clone()),
            Kind::Fail => self.outcome = Outcome::Failed,
            Kind::Info | Kind::Invoke => {}
        }
    }

    /// Returns the pairs of key and value that the operation writes.
    pub fn writes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.steps.iter().filter_map(|step| match *step {
            Step::Write { key, value } => Some((key, value)),
            _ => None,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Read { key, value: None } => write!(formatter, "read {key}: none"),
            Self::Read { key, value: Some(TORN) } => write!(formatter, "read {key}: torn bytes"),
            Self::Read { key, value: Some(value) } => write!(formatter, "read {key}: {value}"),
            Self::Write { key, value } => write!(formatter, "write {key}: {value}"),
            Self::Delete { key, found: None } => write!(formatter, "delete {key}"),
            Self::Delete { key, found: Some(flag) } => write!(formatter, "delete {key}: found {flag}"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "client {} [{}, ", self.client, self.invoked)?;
        match (self.outcome, self.ended) {
            (Outcome::Done, Some(returned)) => write!(formatter, "{returned}]")?,
            (Outcome::Failed, _) => write!(formatter, "failed]")?,
            _ => write!(formatter, "unknown]")?,
        }
        self.steps.iter().try_for_each(|step| write!(formatter, " {step};"))
    }
}

/// The writer and the first completed read of each value, which decide about operations of unknown outcome.
pub(crate) struct Sightings {
    /// Index of the operation that writes a value, by key and value.
    pub writers: BTreeMap<(u64, u64), usize>,
    /// Time at which the first read of a value returned, by key and value.
    pub seen: BTreeMap<(u64, u64), u64>,
    /// Keys of which a deletion reported that a value existed.
    pub existing: BTreeSet<u64>,
}

impl Sightings {
    /// # Errors
    /// [`Anomaly::Malformed`](crate::Anomaly::Malformed) if a value is written twice under one key, which
    /// makes reads ambiguous.
    pub(crate) fn of(operations: &[Operation]) -> Result<Self, Violation> {
        let mut history = Self { writers: BTreeMap::new(), seen: BTreeMap::new(), existing: BTreeSet::new() };
        for (index, operation) in operations.iter().enumerate() {
            for (key, value) in operation.writes() {
                if value == TORN || history.writers.insert((key, value), index).is_some() {
                    let says =
                        format!("value {value} of key {key} is written more than once, or is no value");
                    return Err(Violation::malformed(says));
                }
            }
            let (Outcome::Done, Some(returned)) = (operation.outcome, operation.ended) else { continue };
            for step in &operation.steps {
                match *step {
                    Step::Read { key, value: Some(value) } => {
                        let first = history.seen.entry((key, value)).or_insert(returned);
                        *first = returned.min(*first);
                    }
                    Step::Delete { key, found: Some(true) } => {
                        history.existing.insert(key);
                    }
                    _ => {}
                }
            }
        }
        Ok(history)
    }

    /// Returns the time at which one of the operation's values had been read, or `None` if none was read.
    pub(crate) fn surfaced(&self, operation: &Operation) -> Option<u64> {
        operation.writes().filter_map(|written| self.seen.get(&written).copied()).min()
    }
}
