//! An operation, and what of it is under way.

use super::super::set::Set;
use super::super::{MAX_REPLICAS, Operation, Tag};
use crate::heap::Phase;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum State {
    Idle,
    Reading,
    Writing,
    /// It was handed back; a slow replica still has a request.
    Over,
}

/// One slot.
#[derive(Copy, Clone, Debug)]
pub struct Flight {
    pub state: State,
    pub operation: Operation,
    pub block: u64,
    pub tag: Tag,
    pub round_trips: u32,
    /// The replica whose answer is written back; None: the slot's own value is written.
    pub source: Option<usize>,
    /// Asked in this phase, answered in it, had no buffer in it.
    pub asked: Set,
    pub answered: Set,
    pub refused: Set,
    /// READs and chains under way, and those of them whose answers do not count any more.
    pub reading: Set,
    pub writing: Set,
    pub stale: [Set; 2],
    pub seen: [Tag; MAX_REPLICAS],
    pub phases: [Phase; MAX_REPLICAS],
}

impl Flight {
    pub fn new() -> Flight {
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
            seen: [Tag::NEVER; MAX_REPLICAS],
            phases: [Phase::default(); MAX_REPLICAS],
        }
    }

    pub fn begin(&mut self, operation: Operation, block: u64) {
        *self = Flight { state: State::Reading, operation, block, round_trips: 1, ..Flight::new() };
    }

    /// It waits for answers.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Reading | State::Writing)
    }

    /// Replicas with a request of it.
    pub fn under_way(&self) -> Set {
        self.reading.or(self.writing)
    }

    /// The phase begins anew; what is under way does not count.
    pub fn restart(&mut self) {
        (self.asked, self.answered, self.refused) = (Set::NONE, Set::NONE, Set::NONE);
        self.stale = [self.reading, self.writing];
    }

    /// The answers agree on the newest tag, or who says so first.
    pub fn newest(&self) -> (Tag, usize, Set) {
        let (mut newest, mut from, mut holders) = (Tag::NEVER, 0, Set::NONE);
        for replica in self.answered.iter() {
            if self.seen[replica] > newest || holders.is_empty() {
                (newest, from, holders) = (self.seen[replica], replica, Set::NONE);
            }
            if self.seen[replica] == newest {
                holders.add(replica);
            }
        }
        (newest, from, holders)
    }

    /// The write phase begins: these have the tag already.
    pub fn write(&mut self, tag: Tag, source: Option<usize>, holders: Set) {
        (self.state, self.tag, self.source) = (State::Writing, tag, source);
        (self.asked, self.answered, self.refused) = (holders, holders, Set::NONE);
        self.stale = [Set::NONE; 2];
        self.round_trips += 1;
    }
}
