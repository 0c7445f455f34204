//! Sets of replicas.

/// One bit a replica.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(u8);

impl Set {
    pub const NONE: Set = Set(0);

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

    /// In one of them.
    pub fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..super::MAX_REPLICAS).filter(move |replica| self.has(*replica))
    }
}
