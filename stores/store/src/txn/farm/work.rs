//! The ids of work requests.

/// The purpose of an operation; its id contains this.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Words of the index.
    Search = 1,
    /// A key's object.
    Look,
    /// A word of a key that was only read.
    Validate,
    /// A call to the shard's program. Its answer ends it; the request has a completion only if it failed.
    Call,
}

const WORKS: [Work; 4] = [Work::Search, Work::Look, Work::Validate, Work::Call];

/// An id: the work, and the key that it is for.
pub fn id(work: Work, of: u32) -> u64 {
    (work as u64) << 40 | u64::from(of)
}

/// Decodes an id; None if it is none of ours.
pub fn parse_id(id: u64) -> Option<(Work, u32)> {
    let work = WORKS.into_iter().find(|work| *work as u64 == id >> 40)?;
    Some((work, id as u32))
}
