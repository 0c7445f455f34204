//! Input accounts, and decisions about arriving packets.

use super::super::port::CLASSES;

/// The account of an input port.
#[derive(Copy, Clone, Debug, Default)]
pub struct Account {
    /// Bytes in the buffer by class. Bytes in the headroom are included only in ConWeave's kind.
    pub used: [u32; CLASSES],
    /// Bytes in the headroom by class.
    pub headroom: [u32; CLASSES],
    /// Mask of the classes whose sender is paused.
    pub pausing: u8,
}

impl Account {
    /// Returns the sum of `used`.
    pub(super) fn total(&self) -> u32 {
        self.used.iter().sum()
    }
}

/// The decision about an arriving packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The packet is admitted.
    Taken,
    /// The packet is admitted into the headroom.
    Headroom,
    /// The packet is dropped.
    Dropped,
}
