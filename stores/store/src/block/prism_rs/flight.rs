//! The state of one operation, and of its requests at the replicas.

use super::super::set::Set;
use super::super::{MAX_REPLICAS, Operation, Tag};
use crate::heap::Phase;
use remora_transport::Instant;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Reading,
    Writing,
    /// The operation was returned to the user; a slow replica still has a request.
    Over,
}

/// The state of one slot of the window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Flight {
    pub state: State,
    pub operation: Operation,
    pub block: u64,
    pub tag: Tag,
    pub round_trips: u32,
    /// The replica whose answer is written back; `None` if the slot's own value is written.
    pub source: Option<usize>,
    /// Replicas that were asked in this phase, that answered, and that had no free buffer.
    pub asked: Set,
    pub answered: Set,
    pub refused: Set,
    /// Replicas with a READ or a chain under way, and those of both kinds whose answers no longer count.
    pub reading: Set,
    pub writing: Set,
    pub stale: [Set; 2],
    /// Replicas that are asked for the value in addition to the tag.
    pub wanted: Set,
    /// Replicas whose READ under way includes the value, and replicas whose value has arrived in this phase.
    pub whole: Set,
    pub values: Set,
    /// Time at which the value was requested.
    pub since: Instant,
    /// Time until which the operation waits for the value after a quorum has sent its tags.
    pub until: Instant,
    pub seen: [Tag; MAX_REPLICAS],
    pub phases: [Phase; MAX_REPLICAS],
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight {
            state: State::Idle,
            operation: Operation::Read,
            block: 0,
            tag: Tag::NEVER,
            round_trips: 0,
            source: None,
            asked: Set::NONE,
            answered: Set::NONE,
            refused: Set::NONE,
            reading: Set::NONE,
            writing: Set::NONE,
            stale: [Set::NONE; 2],
            wanted: Set::NONE,
            whole: Set::NONE,
            values: Set::NONE,
            since: Instant(0),
            until: Instant::NEVER,
            seen: [Tag::NEVER; MAX_REPLICAS],
            phases: [Phase::default(); MAX_REPLICAS],
        }
    }

    pub(crate) fn begin(&mut self, operation: Operation, block: u64) {
        *self = Flight { state: State::Reading, operation, block, round_trips: 1, ..Flight::new() };
    }

    /// Returns true if the operation waits for answers.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Reading | State::Writing)
    }

    /// Returns the replicas with a request of this operation.
    pub(crate) fn under_way(&self) -> Set {
        self.reading.or(self.writing)
    }

    /// Starts the phase over; answers to requests under way no longer count.
    pub(crate) fn restart(&mut self) {
        (self.asked, self.answered, self.refused) = (Set::NONE, Set::NONE, Set::NONE);
        (self.wanted, self.values, self.until) = (Set::NONE, Set::NONE, Instant::NEVER);
        self.stale = [self.reading, self.writing];
    }

    /// Returns the replicas whose READ of this phase will bring a value.
    pub(crate) fn coming(&self) -> Set {
        self.reading.and(self.whole).without(self.stale[0])
    }

    /// Returns true if the operation waits only for a value.
    pub(crate) fn waits(&self) -> bool {
        self.state == State::Reading && self.until != Instant::NEVER
    }

    /// Returns the newest tag of all answers.
    pub(crate) fn newest(&self) -> Tag {
        self.answered.iter().map(|replica| self.seen[replica]).max().unwrap_or_default()
    }

    /// Returns what a READ may return: the newest value that has arrived, if a quorum knew nothing newer.
    /// The result is its tag, the replica that sent it, and the replicas that have that tag or a greater
    /// one.
    pub(crate) fn readable(&self, quorum: usize) -> Option<(Tag, usize, Set)> {
        let source = self.values.iter().max_by_key(|replica| self.seen[*replica])?;
        let tag = self.seen[source];
        let knew = |is: fn(Tag, Tag) -> bool| self.answered.filter(|replica| is(self.seen[replica], tag));
        let quiet = knew(|seen, tag| seen <= tag).len() >= quorum;
        quiet.then(|| (tag, source, knew(|seen, tag| seen >= tag)))
    }

    /// Starts the write phase; `holders` already have the tag.
    pub(crate) fn write(&mut self, tag: Tag, source: Option<usize>, holders: Set) {
        (self.state, self.tag, self.source) = (State::Writing, tag, source);
        (self.asked, self.answered, self.refused) = (holders, holders, Set::NONE);
        (self.stale, self.until) = ([Set::NONE; 2], Instant::NEVER);
        self.round_trips += 1;
    }
}
