//! Sets of replicas.

/// A set of replicas, with one bit per replica.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(u8);

impl Set {
    pub const NONE: Set = Set(0);

    /// Returns the set of this replica alone.
    pub fn of(replica: usize) -> Set {
        Set(1 << replica)
    }

    pub fn has(self, replica: usize) -> bool {
        self.0 >> replica & 1 == 1
    }

    pub fn add(&mut self, replica: usize) {
        self.0 |= 1 << replica;
    }

    pub fn remove(&mut self, replica: usize) {
        self.0 &= !(1 << replica);
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of both sets.
    pub fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// Returns the intersection of both sets.
    pub fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Returns the replicas of this set that are not in `other`.
    pub fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// Returns the set of the replicas `0..replicas`.
    pub fn all(replicas: usize) -> Set {
        Set(((1_u16 << replicas) - 1) as u8)
    }

    /// Returns the replicas of the set for which `holds` is true.
    pub fn filter(mut self, holds: impl Fn(usize) -> bool) -> Set {
        self.iter().filter(|replica| !holds(*replica)).for_each(|replica| self.remove(replica));
        self
    }

    /// Returns the lowest replica of the set, or 0 if the set is empty.
    pub fn first(self) -> usize {
        self.iter().next().unwrap_or(0)
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..super::MAX_REPLICAS).filter(move |replica| self.has(*replica))
    }
}
