//! A received MAD without its body.

use crate::{GidPair, Instant, MadPath};

/// The parts of a received MAD besides its body, and the time of its arrival.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ReceivedMad {
    pub now: Instant,
    pub gids: GidPair,
    pub transaction_id: u64,
    /// The traffic class of answers: that of the path which a REQ names, or that with which another message
    /// arrived.
    pub traffic_class: u8,
}

impl ReceivedMad {
    /// Returns the path of an answer that belongs to no id.
    pub(crate) const fn answer_path(&self) -> MadPath {
        MadPath { gids: self.gids, traffic_class: self.traffic_class }
    }
}
