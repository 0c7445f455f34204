//! A step of a machine: the executed work request and the bytes that it changed.

use remora_nic::wqe::{SLOT, Wqe};

use crate::program::{Location, Segment};

/// A range of bytes that a step changed, in one section or queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Location of the first byte.
    pub at: Location,
    /// Bytes before the step.
    pub before: Vec<u8>,
    /// Bytes after the step.
    pub after: Vec<u8>,
}

/// A work request that was executed, as a hardware model needs it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Index of the queue.
    pub queue: usize,
    /// Index of the first slot, counted since the creation of the queue.
    pub index: u64,
    /// Number of slots fetched by then.
    pub fetched: u64,
    /// The executed copy.
    pub wqe: Wqe,
}

/// A work request that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the step, starting at 0.
    pub number: u64,
    /// Index of the queue.
    pub queue: usize,
    /// True if the step is the arrival of a client's message instead of a work request of the queue.
    pub message: bool,
    /// Number of slots since the creation of the queue.
    pub index: u64,
    /// Copy of the first slot that was executed.
    pub slot: [u8; SLOT],
    /// Changes of memory.
    pub changes: Vec<Change>,
    /// True if the work request failed, which puts its queue into the error state.
    pub failed: bool,
}

/// Returns the words in which two images of a section or queue differ. Adjacent words of data are one
/// change; each field of a work request is a change of its own.
pub(crate) fn differences(base: Location, before: &[u8], after: &[u8]) -> Vec<Change> {
    let joins = matches!(base.segment, Segment::Section(_));
    let mut changes: Vec<Change> = Vec::new();
    for offset in (0..before.len()).step_by(8) {
        let range = offset..before.len().min(offset + 8);
        let before = &before[range.clone()];
        let after = &after[range];
        if before == after {
            continue;
        }
        let place = base + offset as u64;
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
        let before = [0; 40];
        let mut after = [0; 40];
        for offset in [8, 17, 39] {
            after[offset] = 1;
        }
        let places = |base| {
            let all = differences(base, &before, &after);
            all.iter().map(|change| (change.at.offset, change.after.len())).collect::<Vec<_>>()
        };
        assert_eq!(places(Program::scrap()), [(8, 16), (32, 8)]);
        assert_eq!(places(Location { segment: Segment::Queue(0), offset: 0 }), [(8, 8), (16, 8), (32, 8)]);
    }
}
