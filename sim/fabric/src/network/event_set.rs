//! The selection of events that are observed at a port.

/// A set of event kinds of one direction of a link. [`EventSet::with`] joins two sets.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSet(u8);

impl EventSet {
    /// Frames that the sender transmits, including pause frames.
    pub const DEPARTURES: EventSet = EventSet(1);
    /// Frames that arrive at the far end, including pause frames.
    pub const ARRIVALS: EventSet = EventSet(2);
    /// Packets that are queued, leave a queue or are dropped from it.
    pub const QUEUES: EventSet = EventSet(4);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: EventSet) -> EventSet {
        EventSet(self.0 | other.0)
    }

    /// Returns true if the sets have a kind in common.
    #[inline]
    pub const fn has(self, other: EventSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if the set is not empty.
    #[inline]
    pub const fn any(self) -> bool {
        self.0 != 0
    }
}
