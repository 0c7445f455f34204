//! The search for buffers that no client holds: two looks at the table, with a grace period after each.

use super::bits::Bits;
use super::class::Classes;
use super::{Lists, Reachable};

/// The stage of a sweep.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// No sweep is under way.
    #[default]
    Idle,
    /// Asks the NIC which buffers are neither free nor resting.
    Out {
        /// Index of the next class.
        class: usize,
    },
    /// Reads the table and drops reachable buffers from the suspects.
    Look {
        /// True in the second look.
        second: bool,
        /// Index of the next entry.
        entry: usize,
    },
    /// Waits until all clients have answered the grace number.
    Grace {
        /// True in the second grace period.
        second: bool,
    },
    /// Posts the remaining suspects.
    Post {
        /// Index in the suspects at which the search continues.
        from: usize,
    },
}

/// Table entries read in one step.
const STEP: usize = 4096;
/// Buffers posted in one step.
const POSTS: usize = 256;

/// The progress of a sweep, and the suspects.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub stage: Stage,
    suspects: Bits,
    /// Index of each class's first bit in the suspects: a multiple of 64.
    starts: Vec<usize>,
    pub posted: u64,
}

impl Sweep {
    pub(crate) fn new(classes: &Classes) -> Sweep {
        let mut starts = vec![0];
        for class in classes.all() {
            let last = starts[starts.len() - 1];
            starts.push(last + (class.count as usize).next_multiple_of(64));
        }
        let count = starts[starts.len() - 1];
        Sweep { stage: Stage::Idle, suspects: Bits::new(count), starts, posted: 0 }
    }

    /// Notes that a client has returned a buffer, so that it is no longer a suspect.
    #[inline]
    pub(crate) fn came_back(&mut self, class: usize, index: u32) {
        if self.stage != Stage::Idle {
            self.suspects.clear(self.starts[class] + index as usize);
        }
    }

    /// Performs a part of the sweep that needs no answer. Returns true if the sweep now waits for the
    /// clients.
    pub(crate) fn step(&mut self, classes: &Classes, table: &impl Reachable, lists: &mut impl Lists) -> bool {
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

    /// Continues the sweep after all clients have answered.
    pub(crate) fn answered(&mut self) {
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
            let Some(suspect) = self.suspects.next(from) else {
                self.stage = Stage::Idle;
                return;
            };
            let class = self.starts.partition_point(|start| *start <= suspect) - 1;
            let (class, index) = (&classes.all()[class], (suspect - self.starts[class]) as u32);
            if lists.post_buffer(class, class.address(index)).is_err() {
                // The list is full with posts that the NIC has not processed yet, so the sweep continues
                // later.
                break;
            }
            self.suspects.clear(suspect);
            self.posted += 1;
            from = suspect + 1;
        }
        self.stage = Stage::Post { from };
    }
}
