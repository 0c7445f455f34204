//! Numbers of ports.

/// Number of a port. The two directions of a link are neighbours: `2 n` leads from its first end, `2 n + 1`
/// from its second.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortId(pub u32);

impl PortId {
    /// No port.
    pub const NONE: PortId = PortId(u32::MAX);

    /// The other direction of its link.
    #[inline]
    #[must_use]
    pub const fn reverse(self) -> PortId {
        PortId(self.0 ^ 1)
    }

    /// Its index in tables of ports.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
