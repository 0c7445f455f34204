//! The failures of links.

use crate::engine::Picos;

/// A link that goes down or comes up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Time of the change.
    pub at: Picos,
    /// Index of the link in the topology.
    pub link: u32,
    /// True if the link comes up, false if it goes down.
    pub up: bool,
}
