//! The built-in kernels, numbered so that processes and language bindings can name them.

use super::{Aggregate, Consistency, Filter, Get, HyperLogLog, Kernel, Shuffle, Traversal};

/// A built-in kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// The kernel [`Get`].
    Get,
    /// The kernel [`Traversal`].
    Traversal,
    /// The kernel [`Consistency`].
    Consistency,
    /// The kernel [`Shuffle`].
    Shuffle,
    /// The kernel [`HyperLogLog`].
    HyperLogLog,
    /// The kernel [`Filter`].
    Filter,
    /// The kernel [`Aggregate`].
    Aggregate,
}

impl Shipped {
    /// All built-in kernels; the index is the number.
    pub const ALL: [Shipped; 7] = [
        Shipped::Get,
        Shipped::Traversal,
        Shipped::Consistency,
        Shipped::Shuffle,
        Shipped::HyperLogLog,
        Shipped::Filter,
        Shipped::Aggregate,
    ];

    /// Returns the kernel with this number; `None` if there is none.
    pub fn of(number: u32) -> Option<Shipped> {
        Shipped::ALL.get(number as usize).copied()
    }

    /// Returns the number of the kernel.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Creates `count` instances of the kernel, one for each lane.
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
