//! One step of a machine: which work request was executed, and which bytes it changed.

use remora_nic::wqe::SLOT;

use crate::program::{Location, Segment};

/// Bytes that a step changed, all in one section or queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first of them.
    pub at: Location,
    /// The bytes before the step.
    pub before: Vec<u8>,
    /// The bytes after the step.
    pub after: Vec<u8>,
}

/// A work request that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which step, from 0 on.
    pub number: u64,
    /// In which queue.
    pub queue: usize,
    /// It is no work request of that queue's, but a client's message that arrives there.
    pub message: bool,
    /// Where in it: slots since the queue's creation.
    pub index: u64,
    /// The copy of its first slot that was executed.
    pub slot: [u8; SLOT],
    /// The changes that the step made.
    pub changes: Vec<Change>,
    /// It ended in an error, and its queue with it.
    pub failed: bool,
}

/// The words in which two images of one section or queue differ. Neighbouring words of data are one change.
/// Each field of a work request is its own change.
pub(crate) fn differences(base: Location, before: &[u8], after: &[u8]) -> Vec<Change> {
    let joins = matches!(base.segment, Segment::Section(_));
    let mut changes: Vec<Change> = Vec::new();
    for at in (0..before.len()).step_by(8) {
        let range = at..before.len().min(at + 8);
        let (before, after) = (&before[range.clone()], &after[range]);
        if before == after {
            continue;
        }
        let place = base + at as u64;
        match changes.last_mut() {
            Some(last) if joins && last.at.offset + last.before.len() as u64 == place.offset => {
                last.before.extend(before);
                last.after.extend(after);
            }
            _ => changes.push(Change { at: place, before: before.to_vec(), after: after.to_vec() }),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    #[test]
    fn neighbours_are_one_change_in_data_and_fields_each_their_own() {
        let (before, mut after) = ([0; 40], [0; 40]);
        for at in [8, 17, 39] {
            after[at] = 1;
        }
        let places = |base| {
            let all = differences(base, &before, &after);
            all.iter().map(|change| (change.at.offset, change.after.len())).collect::<Vec<_>>()
        };
        assert_eq!(places(Program::scrap()), [(8, 16), (32, 8)]);
        assert_eq!(places(Location { segment: Segment::Queue(0), offset: 0 }), [(8, 8), (16, 8), (32, 8)]);
    }
}
