//! The keys that moved to another position, for listings that are in progress.

use std::collections::VecDeque;

/// The latest positions to which keys were moved.
#[derive(Debug)]
pub struct Moves {
    destinations: VecDeque<u64>,
    /// Total number of moves.
    pub(super) count: u64,
}

impl Default for Moves {
    fn default() -> Moves {
        // The whole capacity is allocated here, because nothing is allocated while clients are served.
        Moves { destinations: VecDeque::with_capacity(Moves::KEPT), count: 0 }
    }
}

impl Moves {
    /// Number of moves that are kept.
    const KEPT: usize = 4096;

    /// Notes that a key has moved to `position`.
    pub fn note(&mut self, position: u64) {
        if self.destinations.len() == Moves::KEPT {
            self.destinations.pop_front();
        }
        self.destinations.push_back(position);
        self.count += 1;
    }

    /// Notes that any key may have moved, so that listings start over.
    pub fn note_all(&mut self) {
        self.destinations.clear();
        self.count += 1;
    }

    #[cfg(test)]
    pub(super) fn oldest_kept(&self) -> u64 {
        self.count - self.destinations.len() as u64
    }

    /// Returns the position to which a move went, or `None` if the move is no longer kept.
    pub(super) fn get(&self, number: u64) -> Option<u64> {
        let first = self.count - self.destinations.len() as u64;
        let index = number.checked_sub(first)?;
        self.destinations.get(usize::try_from(index).ok()?).copied()
    }
}
