//! The ids of work requests.

/// The purpose of a work request, which its id contains.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Work {
    /// A READ of index words.
    Search = 1,
    /// A READ of a key's object.
    Look,
    /// The validation of a key that was only read.
    Validate,
    /// A call to the shard's program. The answer ends the call; the request has a completion only if it
    /// failed.
    Call,
}

const WORKS: [Work; 4] = [Work::Search, Work::Look, Work::Validate, Work::Call];

/// Returns the id for a purpose and a key.
pub(crate) fn id(work: Work, entry_index: u32) -> u64 {
    (work as u64) << 40 | u64::from(entry_index)
}

/// Decodes an id. Returns `None` if the purpose is unknown.
pub(crate) fn parse_id(id: u64) -> Option<(Work, u32)> {
    let work = WORKS.into_iter().find(|work| *work as u64 == id >> 40)?;
    Some((work, id as u32))
}
