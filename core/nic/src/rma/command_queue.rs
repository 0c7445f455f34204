//! The program's side of a portal's ring of commands.

use super::Command;
use crate::ring::{Ring, Word};
use crate::wqe::SLOT;

/// The program's side of a ring of commands, which are filled, then published together by the producer index.
/// A program has at most one command in each slot of its portal, and the ring has as many slots, so the ring
/// always has space.
#[derive(Debug)]
pub struct CommandQueue {
    ring: Ring,
    produced: u64,
    published: u64,
}

impl CommandQueue {
    /// Creates a queue over the ring of a new portal.
    pub fn new(ring: Ring) -> CommandQueue {
        CommandQueue { ring, produced: 0, published: 0 }
    }

    /// Returns the memory of the queue.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Fills one command without publishing it.
    #[inline]
    pub fn push(&mut self, command: &Command) {
        self.push_bytes(&command.bytes());
    }

    /// Fills the bytes of one command, valid or not, without publishing them.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8; SLOT]) {
        self.ring.store(self.produced, bytes);
        self.produced += 1;
    }

    /// Publishes the filled commands by the producer index. Returns false if there were none.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.produced == self.published {
            return false;
        }
        self.published = self.produced;
        self.ring.set_word(Word::Produced, self.produced);
        true
    }
}
