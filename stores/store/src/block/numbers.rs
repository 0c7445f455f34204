//! The client numbers that a replica issues to writers, each once in the life of its store.
//!
//! Each replica has a share of the numbers, so replicas need not coordinate to issue one. A *mark* limits
//! how far a replica may go in its share, and f other replicas know it. A replacement of the replica asks f
//! + 1 replicas. At least one of them knows the last mark, and the replacement continues after it.

use super::{ClientId, MAX_REPLICAS};

/// Client numbers per replica.
const SHARE: u32 = (1 << ClientId::BITS) / (MAX_REPLICAS as u32 + 1);
/// Client numbers by which a mark is moved.
const STEP: u32 = 256;

/// The client numbers of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    next: u32,
    mark: u32,
    end: u32,
}

impl Numbers {
    /// Returns the mark of a replica when its store begins. Every replica can compute it.
    pub(crate) fn first_mark(replica: usize) -> u32 {
        replica as u32 * SHARE + STEP
    }

    /// Returns the numbers of a replica whose store begins.
    pub(crate) fn first(replica: usize) -> Numbers {
        Numbers { next: replica as u32 * SHARE, ..Numbers::behind(replica, Numbers::first_mark(replica)) }
    }

    /// Returns the numbers of a replica that replaces one with this mark. None can be issued until the mark
    /// is moved.
    pub(crate) fn behind(replica: usize, mark: u32) -> Numbers {
        let end = (replica as u32 + 1) * SHARE;
        let mark = mark.clamp(replica as u32 * SHARE, end);
        Numbers { next: mark, mark, end }
    }

    /// Issues the next number. Returns `None` if the mark is reached or the share is used up.
    pub(crate) fn give(&mut self) -> Option<ClientId> {
        let number = ClientId::new(self.next).filter(|_| self.next < self.mark)?;
        self.next += 1;
        Some(number)
    }

    /// Returns the mark to move to, or `None` if enough numbers are left below the current mark.
    pub(crate) fn wanted(&self) -> Option<u32> {
        let short = self.mark - self.next < STEP / 2 && self.mark < self.end;
        short.then(|| (self.mark + STEP).min(self.end))
    }

    /// Moves the mark after f other replicas have learned it.
    pub(crate) fn moved(&mut self, mark: u32) {
        self.mark = self.mark.max(mark.min(self.end));
    }

    /// Returns true if the share is used up.
    pub(crate) fn are_used_up(&self) -> bool {
        self.next == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_number_is_given_twice_and_they_run_out() {
        let mut given = BTreeSet::new();
        for replica in 0..MAX_REPLICAS {
            let mut numbers = Numbers::first(replica);
            loop {
                if let Some(mark) = numbers.wanted() {
                    numbers.moved(mark);
                }
                let Some(number) = numbers.give() else { break };
                assert!(given.insert(number.get()));
            }
            assert!(numbers.are_used_up() && numbers.wanted().is_none());
        }
        assert_eq!(given.len(), MAX_REPLICAS << 17);
    }

    #[test]
    fn a_mark_that_nobody_knows_of_is_not_passed_and_a_successor_begins_behind_it() {
        let mut numbers = Numbers::first(2);
        let mut given = BTreeSet::new();
        while let Some(number) = numbers.give() {
            given.insert(number.get());
        }
        assert_eq!((given.len() as u32, numbers.are_used_up()), (STEP, false));
        let mark = numbers.wanted().expect("it has none left");
        numbers.moved(mark);
        given.insert(numbers.give().expect("one").get());
        let mut heir = Numbers::behind(2, mark);
        assert_eq!(heir.give(), None, "its mark is where the last one's was");
        heir.moved(heir.wanted().expect("it has none"));
        while let Some(number) = heir.give() {
            assert!(given.insert(number.get()));
        }
        assert_eq!(Numbers::behind(2, u32::MAX).wanted(), None, "nothing lies behind the share");
        assert!(Numbers::behind(2, 0).mark >= 2 * SHARE, "nor in front of it");
    }
}
