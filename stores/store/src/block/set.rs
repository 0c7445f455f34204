//! Sets of replicas.

/// One bit a replica.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(u8);

impl Set {
    pub const NONE: Set = Set(0);

    /// This one alone.
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

    /// The union of both sets.
    pub fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// The intersection of both sets.
    pub fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// The replicas in this set alone.
    pub fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// The replicas `0..replicas`.
    pub fn all(replicas: usize) -> Set {
        Set(((1_u16 << replicas) - 1) as u8)
    }

    /// The replicas for which `holds` is true.
    pub fn filter(mut self, holds: impl Fn(usize) -> bool) -> Set {
        self.iter().filter(|replica| !holds(*replica)).for_each(|replica| self.remove(replica));
        self
    }

    /// The one with the lowest number; the first of all if it has none.
    pub fn first(self) -> usize {
        self.iter().next().unwrap_or(0)
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..super::MAX_REPLICAS).filter(move |replica| self.has(*replica))
    }
}
