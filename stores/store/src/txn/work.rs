//! The ids of work requests.

/// The purpose of an operation; its id contains this.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// A key's latest version.
    Look = 1,
    /// A read is validated.
    Validate,
    /// A pending version is put in.
    Prepare,
    /// The transaction's own cell.
    Decide,
    /// A version of the transaction becomes committed.
    Flip,
    /// It is taken out.
    Undo,
    /// Another transaction's cell.
    Ask,
    /// The slot of another transaction's pending version.
    Snapshot,
    /// The slot of a version that does not contain its own address.
    Locate,
    /// Another transaction's version becomes committed, or is removed.
    Mend,
    /// Buffers are returned.
    Return,
    /// A message of the keeper.
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

/// An id: the work, and the transaction or key that it is for.
pub fn id(work: Work, of: u32) -> u64 {
    (work as u64) << 40 | u64::from(of)
}

/// Decodes an id; None if it is none of ours.
pub fn parse_id(id: u64) -> Option<(Work, u32)> {
    let work = WORKS.into_iter().find(|work| *work as u64 == id >> 40)?;
    Some((work, id as u32))
}
