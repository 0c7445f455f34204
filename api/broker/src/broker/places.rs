//! The kinds of places of a broker, which programs take and give back.

use crate::PROGRAMS;

/// Maximum number of connections: programs, each with one more for the communication manager, and
/// connections that only query.
pub(super) const CONNECTIONS: usize = 2 * PROGRAMS + 33;
/// Maximum number of trees of a broker.
pub(super) const TREES: usize = 16;

/// The kinds of places that programs take.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Connection,
    Range,
    Id,
    EventChannel,
    Tree,
    /// A descriptor for a share of an address, an event channel, links, or events of the port.
    Descriptor,
}
