//! The places of a broker, which its programs take and give back.

use crate::PROGRAMS;

/// Connections at a time: programs, each with one for the communication manager, and those that only ask.
pub(super) const CONNECTIONS: usize = 2 * PROGRAMS + 33;
/// Trees of a broker at most.
pub(super) const TREES: usize = 16;

/// Places that programs take.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Connection,
    Range,
    Id,
    EventChannel,
    Tree,
    /// For a share of an address, an event channel, links, or events of the port.
    Descriptor,
}
