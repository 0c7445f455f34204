//! The keys that moved to another position while listings may go on.

use std::collections::VecDeque;

/// The positions that keys were moved to, the latest of them.
#[derive(Debug)]
pub struct Moves {
    to: VecDeque<u64>,
    /// Moves in all.
    pub(super) count: u64,
}

impl Default for Moves {
    fn default() -> Moves {
        // Nothing is allocated once clients are served.
        Moves { to: VecDeque::with_capacity(Moves::KEPT), count: 0 }
    }
}

impl Moves {
    /// Positions that are kept.
    const KEPT: usize = 4096;

    /// A key is at `position` now, and was at another one before.
    pub fn note(&mut self, position: u64) {
        if self.to.len() == Moves::KEPT {
            self.to.pop_front();
        }
        self.to.push_back(position);
        self.count += 1;
    }

    /// Any key may have moved: listings start over.
    pub fn note_all(&mut self) {
        self.to.clear();
        self.count += 1;
    }

    #[cfg(test)]
    pub(super) fn oldest_kept(&self) -> u64 {
        self.count - self.to.len() as u64
    }

    /// The position of a move; None if it is not kept.
    pub(super) fn get(&self, number: u64) -> Option<u64> {
        let first = self.count - self.to.len() as u64;
        let at = number.checked_sub(first)?;
        self.to.get(usize::try_from(at).ok()?).copied()
    }
}
