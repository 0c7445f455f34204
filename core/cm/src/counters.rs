//! Counters of received and sent MADs.

/// Counts since the manager was created; each wraps at 2^64.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// MADs that were received.
    pub received: u64,
    /// MADs that were sent, including repetitions.
    pub transmitted: u64,
    /// MADs that were repeated because no answer arrived in time.
    pub retransmitted: u64,
    /// Messages that had arrived before; they were answered once more or dropped.
    pub duplicates: u64,
    /// Dropped MADs that were too short, or whose lengths contradict each other.
    pub malformed: u64,
    /// Dropped MADs of another class, version, method or attribute.
    pub unsupported: u64,
    /// Messages that name no existing id; they were dropped or refused.
    pub unknown_ids: u64,
    /// Dropped messages that name an id whose peer has another address or queue pair.
    pub strangers: u64,
    /// Dropped messages that have no transition in the id's state.
    pub out_of_state: u64,
    /// Requests refused because the listener's backlog was full.
    pub backlog_full: u64,
    /// Requests refused because all ids were in use.
    pub no_resources: u64,
    /// MADs dropped because a queue of MADs or events was full.
    pub overflows: u64,
    /// Lingering ids that were ended early to make space for a new id.
    pub evicted: u64,
}
