//! The kernels that ship, by number: the name of a kernel between processes and languages.

use super::{Aggregate, Consistency, Filter, Get, HyperLogLog, Kernel, Shuffle, Traversal};

/// A kernel that ships.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// [`Get`].
    Get,
    /// [`Traversal`].
    Traversal,
    /// [`Consistency`].
    Consistency,
    /// [`Shuffle`].
    Shuffle,
    /// [`HyperLogLog`].
    HyperLogLog,
    /// [`Filter`].
    Filter,
    /// [`Aggregate`].
    Aggregate,
}

impl Shipped {
    /// All of them; their places are their numbers.
    pub const ALL: [Shipped; 7] = [
        Shipped::Get,
        Shipped::Traversal,
        Shipped::Consistency,
        Shipped::Shuffle,
        Shipped::HyperLogLog,
        Shipped::Filter,
        Shipped::Aggregate,
    ];

    /// The one with this number.
    pub fn of(number: u32) -> Option<Shipped> {
        Shipped::ALL.get(number as usize).copied()
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// As many of it as a kernel shall have lanes.
    pub fn lanes(self, count: usize) -> Vec<Box<dyn Kernel>> {
        let one = || -> Box<dyn Kernel> {
            match self {
                Shipped::Get => Box::<Get>::default(),
                Shipped::Traversal => Box::<Traversal>::default(),
                Shipped::Consistency => Box::<Consistency>::default(),
                Shipped::Shuffle => Box::<Shuffle>::default(),
                Shipped::HyperLogLog => Box::<HyperLogLog>::default(),
                Shipped::Filter => Box::<Filter>::default(),
                Shipped::Aggregate => Box::<Aggregate>::default(),
            }
        };
        (0..count).map(|_| one()).collect()
    }
}
