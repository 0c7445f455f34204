//! The state of one operation, and of its requests at the replicas.

use super::super::set::Set;
use super::super::{MAX_REPLICAS, Operation, Tag};
use remora_transport::Instant;

/// The phase of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    /// The operation acquires locks.
    Locking,
    /// The operation reads tags at the replicas that it has locked, and the value at one replica if needed.
    Reading,
    /// The operation writes to the replicas that it has read.
    Writing,
    /// The operation is done and releases its locks.
    Releasing,
    /// The operation met locks of other clients, or a slow replica. It releases its locks and starts over at
    /// this time.
    Waiting(Instant),
    /// The operation was returned to the user; a slow replica still has a request or a lock.
    Over,
}

/// The kind of the outstanding request to a replica.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Lock,
    Tags,
    Read,
    Write,
    Unlock,
}

/// The state of one slot of the window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Flight {
    pub state: State,
    pub operation: Operation,
    pub block: u64,
    /// The tag to write, once it is known. A WRITE keeps it until its end.
    pub tag: Option<Tag>,
    pub round_trips: u32,
    /// Number of attempts that got no quorum of locks.
    pub tries: u32,
    /// Time at which the current attempt to lock began.
    pub since: Instant,
    /// Number of locks released since the operation was done.
    pub released: usize,
    /// The outstanding request at each replica; at most one per replica.
    pub busy: [Option<Step>; MAX_REPLICAS],
    /// Replicas that were asked for their locks in this attempt. Only their answers count.
    pub asked: Set,
    /// Replicas whose locks the operation holds, from this attempt or an earlier one.
    pub held: Set,
    /// Replicas whose tags were read in this attempt.
    pub read: Set,
    pub wanted: Set,
    pub values: Set,
    /// Index of the newer of the two copies, for each replica that was read.
    pub newer: [usize; MAX_REPLICAS],
    pub has: Set,
    pub seen: [Tag; MAX_REPLICAS],
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight {
            state: State::Idle,
            operation: Operation::Read,
            block: 0,
            tag: None,
            round_trips: 0,
            tries: 0,
            since: Instant(0),
            released: 0,
            busy: [None; MAX_REPLICAS],
            asked: Set::NONE,
            held: Set::NONE,
            read: Set::NONE,
            wanted: Set::NONE,
            values: Set::NONE,
            newer: [0; MAX_REPLICAS],
            has: Set::NONE,
            seen: [Tag::NEVER; MAX_REPLICAS],
        }
    }

    pub(crate) fn begin(&mut self, operation: Operation, block: u64, now: Instant) {
        *self = Flight { operation, block, ..Flight::new() };
        self.lock(now);
    }

    /// Starts an attempt to lock, at the beginning or after a pause.
    pub(crate) fn lock(&mut self, now: Instant) {
        self.enter(State::Locking);
        self.since = now;
        (self.asked, self.read, self.has) = (Set::NONE, Set::NONE, Set::NONE);
        (self.wanted, self.values) = (Set::NONE, Set::NONE);
    }

    /// Enters a state that costs a round trip.
    pub(crate) fn enter(&mut self, state: State) {
        self.state = state;
        self.round_trips += 1;
    }

    /// Returns the number of locks held from this attempt, and the number that may still be granted.
    pub(crate) fn locks(&self) -> (usize, usize) {
        let has = |replica: &usize| self.held.has(*replica);
        let may = |replica: &usize| self.busy[*replica] == Some(Step::Lock);
        (self.asked.iter().filter(has).count(), self.asked.iter().filter(may).count())
    }

    /// Returns the next request for a replica that has no outstanding one.
    pub(crate) fn next(&self, replica: usize) -> Option<Step> {
        let asked = self.asked.has(replica);
        let held = self.held.has(replica);
        let read = self.read.has(replica);
        let wants = self.wanted.has(replica) && !self.values.has(replica);
        let step = match self.state {
            // A lock of an earlier attempt is released first.
            State::Locking if !asked => Some(if held { Step::Unlock } else { Step::Lock }),
            State::Reading if held && asked && wants => Some(Step::Read),
            State::Reading if held && asked && !read => Some(Step::Tags),
            State::Writing if held && read && !self.has.has(replica) => Some(Step::Write),
            State::Releasing | State::Waiting(_) | State::Over if held => Some(Step::Unlock),
            _ => None,
        };
        step.filter(|_| self.busy[replica].is_none())
    }

    /// Returns true if the operation waits for answers or for its time.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.state, State::Idle | State::Over)
    }

    /// Returns true if no replica has a request or a lock of this operation.
    pub(crate) fn is_free(&self) -> bool {
        self.held.is_empty() && self.busy.iter().all(Option::is_none)
    }

    /// Starts to read at the locked replicas: tags, and the value at one replica if needed. `place` selects
    /// that replica.
    pub(crate) fn read(&mut self, place: u64) {
        self.enter(State::Reading);
        if self.operation == Operation::Read && self.tag.is_none() {
            let locked = self.asked.and(self.held);
            let source = locked.iter().nth((place % locked.len().max(1) as u64) as usize);
            self.wanted = source.map_or(Set::NONE, Set::of);
        }
    }

    /// Returns true if a READ of a value is outstanding.
    pub(crate) fn is_coming(&self) -> bool {
        let missing = self.wanted.without(self.values);
        missing.iter().any(|replica| self.busy[replica] == Some(Step::Read))
    }

    /// Returns the newest of the tags that were read, and the replicas that have it.
    pub(crate) fn newest(&self) -> (Tag, Set) {
        let newest = self.read.iter().map(|replica| self.seen[replica]).max().unwrap_or_default();
        (newest, self.read.filter(|replica| self.seen[replica] == newest))
    }
}
