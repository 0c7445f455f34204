//! An operation in flight.

use crate::heap::Phase;
use crate::kv::Operation;

/// What a place of the window is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// Its next round trip waits for room to give back what it may come to hold.
    Waiting,
    /// Looks into a slot.
    Reading,
    /// Its chain or its swap is under way.
    Swapping,
}

/// One place of the window.
#[derive(Copy, Clone, Debug)]
pub(super) struct Flight {
    pub state: State,
    pub operation: Operation,
    pub hash: u64,
    pub key_len: u32,
    pub value_len: u32,
    /// The slot that it is at.
    pub slot: u64,
    /// That is the one that it remembered.
    pub by_heart: bool,
    /// Slots of others that it has passed.
    pub passed: u32,
    /// Bytes that it asked for.
    pub asked: u32,
    /// The generation that the slot must have for the swap.
    pub generation: u64,
    /// Since when it may come to hold buffers, for those who wait for that to end.
    pub phase: Option<Phase>,
    pub round_trips: u32,
    pub tries: u32,
}

impl Flight {
    pub const IDLE: Flight = Flight {
        state: State::Idle,
        operation: Operation::Get,
        hash: 0,
        key_len: 0,
        value_len: 0,
        slot: 0,
        by_heart: false,
        passed: 0,
        asked: 0,
        generation: 0,
        phase: None,
        round_trips: 0,
        tries: 0,
    };

    /// The slot's generation once the swap is done: even ones become odd by a new object, odd ones even by a DELETE; an object that takes
    /// the place of another of its key leaves it.
    pub fn next_generation(&self) -> u64 {
        match self.operation {
            Operation::Delete => self.generation.wrapping_add(1),
            _ => self.generation | 1,
        }
    }

    /// The key was in the slot when it was looked at.
    pub fn overwrites(&self) -> bool {
        self.generation & 1 == 1
    }
}
