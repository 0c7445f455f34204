//! Which events of a port are observed.

/// What is observed of one direction of a link. Several are joined by [`Observe::with`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Observe(u8);

impl Observe {
    /// Frames that its sender sends, pause frames among them.
    pub const DEPARTURES: Observe = Observe(1);
    /// Frames that arrive at its far end, pause frames among them.
    pub const ARRIVALS: Observe = Observe(2);
    /// Packets that enter its queues, leave them, or are lost there.
    pub const QUEUES: Observe = Observe(4);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Observe) -> Observe {
        Observe(self.0 | other.0)
    }

    /// Is any of `other` among these?
    #[inline]
    pub const fn has(self, other: Observe) -> bool {
        self.0 & other.0 != 0
    }

    /// Is something observed at all?
    #[inline]
    pub const fn any(self) -> bool {
        self.0 != 0
    }
}
