//! The ids of work requests.

/// The purpose of a work request, which its id contains.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Work {
    /// The READ of a key's latest version.
    Look = 1,
    /// The validation of a read.
    Validate,
    /// The chain that links a pending version.
    Prepare,
    /// The decision of the transaction's own cell.
    Decide,
    /// The marking of a version of the transaction as committed.
    Flip,
    /// The removal of a version of the transaction.
    Undo,
    /// The decision of another transaction's cell.
    Ask,
    /// The read of the slot of another transaction's pending version.
    Snapshot,
    /// The read of the slot of a version that does not contain its own address.
    Locate,
    /// The repair of another transaction's version: marking as committed, or removal.
    Mend,
    /// A message that returns buffers.
    Return,
    /// A message from the keeper.
    Notice,
}

const WORKS: [Work; 12] = [
    Work::Look,
    Work::Validate,
    Work::Prepare,
    Work::Decide,
    Work::Flip,
    Work::Undo,
    Work::Ask,
    Work::Snapshot,
    Work::Locate,
    Work::Mend,
    Work::Return,
    Work::Notice,
];

/// Returns the id for a purpose and a transaction or key.
pub(crate) fn id(work: Work, number: u32) -> u64 {
    (work as u64) << 40 | u64::from(number)
}

/// Decodes an id. Returns `None` if the purpose is unknown.
pub(crate) fn parse_id(id: u64) -> Option<(Work, u32)> {
    let work = WORKS.into_iter().find(|work| *work as u64 == id >> 40)?;
    Some((work, id as u32))
}
