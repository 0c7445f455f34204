//! What happened to MADs, counted.

/// Counts since the manager was made; each wraps at 2^64.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// MADs that came in.
    pub received: u64,
    /// MADs that left, repetitions among them.
    pub transmitted: u64,
    /// MADs that were repeated, because no answer came in time.
    pub retransmitted: u64,
    /// Messages that had come before: answered again or dropped.
    pub duplicates: u64,
    /// Dropped: too short, or lengths that contradict each other.
    pub malformed: u64,
    /// Dropped: another class, version, method or attribute.
    pub unsupported: u64,
    /// Dropped or refused: no id is meant.
    pub unknown_ids: u64,
    /// Dropped: of an id whose peer has another address, or another queue pair.
    pub strangers: u64,
    /// Dropped: the id's state has no use for the message.
    pub out_of_state: u64,
    /// Refused: as many requests wait for the listener as it wants.
    pub backlog_full: u64,
    /// Refused: there are as many ids as there may be.
    pub no_resources: u64,
    /// Dropped: MADs or events have to be taken first.
    pub overflows: u64,
    /// Ids whose end came early, to make space for a new one.
    pub evicted: u64,
}
