//! The operations of clients, with their results and times: the only input of a judge.

use crate::{TORN, Violation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufRead, Write};

/// One access to one key. Keys and values are numbers. A test numbers its keys, and makes each value's bytes
/// from the value's number (`stamp`). It writes each value once under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub enum Step {
    /// The key was read; `None`: there was none. Before the answer it is unknown.
    Read {
        /// Number of the key.
        key: u64,
        /// The value found.
        value: Option<u64>,
    },
    /// The key got this value.
    Write {
        /// Number of the key.
        key: u64,
        /// The new value.
        value: u64,
    },
    /// The key was taken away.
    Delete {
        /// Number of the key.
        key: u64,
        /// Whether it was there, if the store reports it.
        found: Option<bool>,
    },
}

/// A step in Jepsen's notation: `["r", key, value or null]`, `["w", key, value]`, `["d", key, 0, 1 or null]`.
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
            Letter::Delete => Self::Delete { key, found: value.map(|found| found != 0) },
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
    /// The key that it touches.
    pub fn key(&self) -> u64 {
        match *self {
            Self::Read { key, .. } | Self::Write { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// The step as it is known before there is an answer, without any result that the recorder put there.
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
    /// It begins now, and these are all the writes it may make.
    Invoke,
    /// The operation took effect, and the event has its results.
    Ok,
    /// It has not happened and never will.
    Fail,
    /// The client stopped waiting: it may happen at any later time, or never.
    Info,
}

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The state of the operation.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The client of the operation. It has one operation at a time; one that overlaps its own is several
    /// clients.
    #[serde(rename = "process")]
    pub client: u32,
    /// When, on the one clock that all clients read.
    pub time: u64,
    /// The steps, with the values found once they are known.
    #[serde(rename = "value")]
    pub steps: Vec<Step>,
}

/// All events of one run. Those of one client are in the order in which it recorded them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Events in the order of the file.
    pub events: Vec<Event>,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It happened between its invocation and its return.
    Done,
    /// It did not happen.
    Failed,
    /// It happened after its invocation, perhaps long after the client gave up or died; or never.
    Unknown,
}

/// One operation: a pair of events, or an invocation that nothing answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Number of the client.
    pub client: u32,
    /// When it was invoked.
    pub invoked: u64,
    /// When the client stopped waiting for it; `None`: it died first, or the run was over.
    pub ended: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The steps that took effect, or of an unknown result, that may have.
    pub steps: Vec<Step>,
}

impl History {
    /// `client` begins an operation that makes these steps; it is recorded before the first packet leaves. A
    /// transaction's writes must be known here. An interactive one is recorded when it asks to commit, with
    /// the time of its beginning.
    pub fn invoke(&mut self, client: u32, time: u64, steps: &[Step]) {
        self.push(Kind::Invoke, client, time, steps);
    }

    /// The client's operation is done; `steps` hold the values that it found.
    pub fn ok(&mut self, client: u32, time: u64, steps: &[Step]) {
        self.push(Kind::Ok, client, time, steps);
    }

    /// The client's operation surely had no effect: refused, or aborted.
    pub fn fail(&mut self, client: u32, time: u64) {
        self.push(Kind::Fail, client, time, &[]);
    }

    /// The client gives up without a result. One that is killed records nothing, which means the same.
    pub fn info(&mut self, client: u32, time: u64) {
        self.push(Kind::Info, client, time, &[]);
    }

    fn push(&mut self, kind: Kind, client: u32, time: u64, steps: &[Step]) {
        self.events.push(Event { kind, client, time, steps: steps.to_vec() });
    }

    /// Adds what another process recorded, by the same clock.
    pub fn merge(&mut self, other: Self) {
        self.events.extend(other.events);
    }

    /// Reads lines of JSON. A last line without an end is left out, as if its writer had been killed before
    /// it.
    ///
    /// # Errors
    /// The reader's, and `InvalidData` for a line that is no event.
    pub fn read(mut from: impl BufRead) -> io::Result<Self> {
        let mut history = Self::default();
        let mut line = String::new();
        while from.read_line(&mut line)? > 0 && line.ends_with('\n') {
            history.events.push(serde_json::from_str(&line)?);
            line.clear();
        }
        Ok(history)
    }

    /// Writes lines of JSON.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        self.events.iter().try_for_each(|event| to.write_all(event.line().as_bytes()))
    }

    /// The operations, in the order of their invocations.
    ///
    /// # Errors
    /// Events that make no history: an answer to nothing, or one that comes before its question.
    pub fn operations(&self) -> Result<Vec<Operation>, Violation> {
        let mut operations: Vec<Operation> = Vec::with_capacity(self.events.len() / 2 + 1);
        let mut running: BTreeMap<u32, usize> = BTreeMap::new();
        for event in &self.events {
            if event.kind == Kind::Invoke {
                running.insert(event.client, operations.len());
                operations.push(Operation::begin(event));
                continue;
            }
            let Some(at) = running.remove(&event.client) else {
                return Err(Violation::malformed(format!("{event:?} answers nothing")));
            };
            if event.time < operations[at].invoked {
                return Err(Violation::malformed(format!("{event:?} comes before its invocation")));
            }
            operations[at].end(event);
        }
        operations.sort_by_key(|operation| operation.invoked);
        Ok(operations)
    }
}

impl Event {
    /// The event as a line with its end. A caller that writes it by one call before it acts keeps it even if
    /// the process dies.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("numbers and names are JSON");
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

    /// The values that the operation writes, as pairs of key and value.
    pub fn writes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.steps.iter().filter_map(|step| match *step {
            Step::Write { key, value } => Some((key, value)),
            _ => None,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Read { key, value: None } => write!(to, "read {key}: none"),
            Self::Read { key, value: Some(TORN) } => write!(to, "read {key}: torn bytes"),
            Self::Read { key, value: Some(value) } => write!(to, "read {key}: {value}"),
            Self::Write { key, value } => write!(to, "write {key}: {value}"),
            Self::Delete { key, found: None } => write!(to, "delete {key}"),
            Self::Delete { key, found: Some(found) } => write!(to, "delete {key}: found {found}"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "client {} [{}, ", self.client, self.invoked)?;
        match (self.outcome, self.ended) {
            (Outcome::Done, Some(returned)) => write!(to, "{returned}]")?,
            (Outcome::Failed, _) => write!(to, "failed]")?,
            _ => write!(to, "unknown]")?,
        }
        self.steps.iter().try_for_each(|step| write!(to, " {step};"))
    }
}

/// When each value was written and first surely read. This decides about operations whose end is unknown.
pub(crate) struct Sightings {
    /// By key and value: the operation that writes it.
    pub writers: BTreeMap<(u64, u64), usize>,
    /// By key and value: when the first read of it had returned.
    pub seen: BTreeMap<(u64, u64), u64>,
    /// Keys of which a deletion reported that it found an unknown value.
    pub found: BTreeSet<u64>,
}

impl Sightings {
    /// # Errors
    /// A value is written twice under one key, so that reads could not tell which write they found.
    pub fn of(operations: &[Operation]) -> Result<Self, Violation> {
        let mut found = Self { writers: BTreeMap::new(), seen: BTreeMap::new(), found: BTreeSet::new() };
        for (at, operation) in operations.iter().enumerate() {
            for (key, value) in operation.writes() {
                if value == TORN || found.writers.insert((key, value), at).is_some() {
                    let says =
                        format!("value {value} of key {key} is written more than once, or is no value");
                    return Err(Violation::malformed(says));
                }
            }
            let (Outcome::Done, Some(returned)) = (operation.outcome, operation.ended) else { continue };
            for step in &operation.steps {
                match *step {
                    Step::Read { key, value: Some(value) } => {
                        let first = found.seen.entry((key, value)).or_insert(returned);
                        *first = returned.min(*first);
                    }
                    Step::Delete { key, found: Some(true) } => {
                        found.found.insert(key);
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// When one of the operation's values had been read at the latest; `None`: it was never read.
    pub fn surfaced(&self, operation: &Operation) -> Option<u64> {
        operation.writes().filter_map(|written| self.seen.get(&written).copied()).min()
    }
}
