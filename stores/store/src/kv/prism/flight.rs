//! An operation in flight.

use super::slot::TableSlot;
use super::tables::Tables;
use crate::heap::Phase;
use crate::kv::Operation;

/// What a place of the window is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// Its next round trip waits until the buffers that it may leave can be given back.
    Waiting,
    /// Looks into a slot.
    Reading,
    /// Its chain or its swap is under way.
    Swapping,
    /// Has passed all that it may of the newest table that it knows, and asks whether there is another.
    Asking,
    /// Moves the frozen object of a slot to the next table.
    Helping,
}

/// A slot that an operation has found frozen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Frozen {
    /// Address of the slot.
    pub at: u64,
    /// Its words, which do not change until it is moved.
    pub words: TableSlot,
}

/// One place of the window.
#[derive(Copy, Clone, Debug)]
pub(super) struct Flight {
    pub state: State,
    pub operation: Operation,
    pub hash: u64,
    pub key_len: u32,
    pub value_len: u32,
    /// The address of the slot that it is at.
    pub at: u64,
    /// That is the one that it remembered.
    pub remembered: bool,
    /// Else its table, and where in it.
    pub table: u32,
    pub slot: u64,
    /// Slots of others that it has passed in this table.
    pub passed: u32,
    /// The key's slot in the table before this one, if it is frozen.
    pub frozen: Option<Frozen>,
    /// Bytes that it asked for.
    pub asked: u32,
    /// The generation that the slot must have for the swap.
    pub generation: u64,
    /// Since when it may hold buffers. The grace period of a sweep waits for that to end.
    pub phase: Option<Phase>,
    /// Free lists that were found empty: its buffer comes from one of so many sizes more.
    pub larger: u8,
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
        at: 0,
        remembered: false,
        table: 0,
        slot: 0,
        passed: 0,
        frozen: None,
        asked: 0,
        generation: 0,
        phase: None,
        larger: 0,
        round_trips: 0,
        tries: 0,
    };

    /// To the beginning of its key's run in a table.
    #[inline]
    pub fn go_home(&mut self, tables: &Tables, table: u32) {
        (self.table, self.passed, self.remembered) = (table, 0, false);
        self.slot = tables.home(table, self.hash);
        self.at = tables.address(table, self.slot);
    }

    /// The slot's generation once the swap is done. Even ones become odd by a new object, odd ones even by a
    /// DELETE. An object that replaces another of its key leaves the generation as it is.
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
