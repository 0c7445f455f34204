//! Ids of ports, and the pairing of the two directions of a link.

/// Id of a port. The two directions of link `n` are the ports `2 n`, which leads from the link's first end,
/// and `2 n + 1`, which leads from its second.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortId(pub u32);

impl PortId {
    /// Identifier of no port.
    pub const NONE: PortId = PortId(u32::MAX);

    /// Returns the other direction of the same link.
    #[inline]
    #[must_use]
    pub const fn reverse(self) -> PortId {
        PortId(self.0 ^ 1)
    }

    /// Returns the index in tables of ports.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
