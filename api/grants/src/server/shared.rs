//! The state that the server's thread and its owner share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::Offer;

#[derive(Debug, Default)]
pub(super) struct Counted {
    pub granted: AtomicU64,
    pub refused: AtomicU64,
    pub failed: AtomicU64,
    pub announced: AtomicU64,
}

/// The state that the server's thread and its owner share.
#[derive(Debug)]
pub(super) struct Shared {
    pub offers: Vec<Offer>,
    /// The indices of the offers whose announcement has yet to be sent.
    pub announce: Mutex<Vec<usize>>,
    pub counted: Counted,
    pub stop: AtomicBool,
}
