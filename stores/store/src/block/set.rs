//! Sets of replicas.

/// A set of replicas, with one bit per replica.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(u8);

impl Set {
    pub(crate) const NONE: Set = Set(0);

    /// Returns the set of this replica alone.
    pub(crate) fn of(replica: usize) -> Set {
        Set(1 << replica)
    }

    pub(crate) fn has(self, replica: usize) -> bool {
        self.0 >> replica & 1 == 1
    }

    pub(crate) fn add(&mut self, replica: usize) {
        self.0 |= 1 << replica;
    }

    pub(crate) fn remove(&mut self, replica: usize) {
        self.0 &= !(1 << replica);
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of both sets.
    pub(crate) fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// Returns the intersection of both sets.
    pub(crate) fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Returns the replicas of this set that are not in `other`.
    pub(crate) fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// Returns the set of the replicas `0..replicas`.
    pub(crate) fn all(replicas: usize) -> Set {
        Set(((1_u16 << replicas) - 1) as u8)
    }

    /// Returns the replicas of the set for which `holds` is true.
    pub(crate) fn filter(mut self, holds: impl Fn(usize) -> bool) -> Set {
        self.iter().filter(|replica| !holds(*replica)).for_each(|replica| self.remove(replica));
        self
    }

    /// Returns the lowest replica of the set, or 0 if the set is empty.
    pub(crate) fn first(self) -> usize {
        self.iter().next().unwrap_or(0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..super::MAX_REPLICAS).filter(move |replica| self.has(*replica))
    }
}
