//! The search for buffers that no client holds: two looks, two grace periods.

use super::bits::Bits;
use super::class::Classes;
use super::{Lists, Reachable};

/// The stage of a sweep.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    #[default]
    Idle,
    /// Asks the NIC which buffers are out.
    Out {
        /// The next class.
        class: usize,
    },
    /// Looks at the table, for the first or the second time.
    Look {
        /// The second time.
        second: bool,
        /// The next entry.
        entry: usize,
    },
    /// Waits for the clients.
    Grace {
        /// The second time.
        second: bool,
    },
    /// Posts the remaining suspects.
    Post {
        /// Where it looks next.
        from: usize,
    },
}

/// Entries looked at in one step.
const STEP: usize = 4096;
/// Buffers posted in one step.
const POSTS: usize = 256;

/// The state of a sweep.
#[derive(Debug)]
pub struct Sweep {
    pub stage: Stage,
    suspects: Bits,
    /// Where each class begins in the bits: a multiple of 64.
    starts: Vec<usize>,
    pub posted: u64,
}

impl Sweep {
    pub fn new(classes: &Classes) -> Sweep {
        let mut starts = vec![0];
        for class in classes.all() {
            let last = starts[starts.len() - 1];
            starts.push(last + (class.count as usize).next_multiple_of(64));
        }
        let count = starts[starts.len() - 1];
        Sweep { stage: Stage::Idle, suspects: Bits::new(count), starts, posted: 0 }
    }

    /// A buffer has come back.
    #[inline]
    pub fn came_back(&mut self, class: usize, index: u32) {
        if self.stage != Stage::Idle {
            self.suspects.clear(self.starts[class] + index as usize);
        }
    }

    /// Does a part of the work that needs no answer. Returns true if the sweep now waits for the clients.
    pub fn step(&mut self, classes: &Classes, table: &impl Reachable, lists: &mut impl Lists) -> bool {
        match self.stage {
            Stage::Idle | Stage::Grace { .. } => {}
            Stage::Out { class } => {
                let words = self.starts[class] / 64..self.starts[class + 1] / 64;
                lists.out(&classes.all()[class], 0, &mut self.suspects.words()[words]);
                let next = class + 1;
                let done = next == classes.all().len();
                self.stage =
                    if done { Stage::Look { second: false, entry: 0 } } else { Stage::Out { class: next } };
            }
            Stage::Look { second, entry } => {
                let end = (entry + STEP).min(table.entries());
                (entry..end)
                    .for_each(|entry| table.buffers(entry, &mut |address| self.reached(classes, address)));
                if end == table.entries() {
                    self.stage = Stage::Grace { second };
                    return true;
                }
                self.stage = Stage::Look { second, entry: end };
            }
            Stage::Post { from } => self.post(from, classes, lists),
        }
        false
    }

    /// All clients have answered.
    pub fn answered(&mut self) {
        if let Stage::Grace { second } = self.stage {
            self.stage =
                if second { Stage::Post { from: 0 } } else { Stage::Look { second: true, entry: 0 } };
        }
    }

    fn reached(&mut self, classes: &Classes, address: u64) {
        if let Some((class, index)) = classes.find(address) {
            self.suspects.clear(self.starts[class] + index as usize);
        }
    }

    fn post(&mut self, mut from: usize, classes: &Classes, lists: &mut impl Lists) {
        for _ in 0..POSTS {
            let Some(at) = self.suspects.next(from) else {
                self.stage = Stage::Idle;
                return;
            };
            let class = self.starts.partition_point(|start| *start <= at) - 1;
            let (class, index) = (&classes.all()[class], (at - self.starts[class]) as u32);
            if lists.post_buffer(class, class.address(index)).is_err() {
                // The list has posts that the NIC has not looked at yet: later.
                break;
            }
            self.suspects.clear(at);
            self.posted += 1;
            from = at + 1;
        }
        self.stage = Stage::Post { from };
    }
}
