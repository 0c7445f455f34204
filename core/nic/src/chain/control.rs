//! The state of WAIT and ENABLE for the queue pairs of an engine.

use remora_memory::Pd;
use remora_transport::Status;
use remora_wire::Qpn;
use std::collections::VecDeque;

use crate::completion_queue::NOBODY;

/// Maximum number of ENABLEs that are executed but not yet applied to their queues. When it is reached, the
/// next ENABLE waits for the following turn of its queue.
pub(super) const ENABLES: usize = 256;

/// Default number of work requests that a loopback queue pair executes in one turn.
const TURN: usize = 64;

/// State of WAITs and ENABLEs between queue pairs.
pub(crate) struct Control {
    /// Next element of the list of waiting queue pairs, for each queue pair in such a list.
    pub(super) before: Box<[u32]>,
    /// Queue pairs whose WAIT must be tested again.
    pub(super) released: VecDeque<u32>,
    pub(super) enables: VecDeque<(Qpn, u64)>,
    /// For each queue pair index: number and protection domain of the queue pair, if its send queue can be
    /// enabled.
    pub(super) enabled: Box<[Option<(Qpn, Pd)>]>,
    /// Maximum number of work requests of a loopback queue pair's turn.
    pub(super) turn: usize,
}

/// The decision about whether a work request may start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    Later,
    Never(Status),
}

impl Control {
    pub(crate) fn new(places: usize) -> Control {
        Control {
            before: vec![NOBODY; places].into(),
            released: VecDeque::with_capacity(places),
            enables: VecDeque::with_capacity(ENABLES),
            enabled: vec![None; places].into(),
            turn: TURN,
        }
    }

    /// Returns true if there are ENABLEs or released WAITs to process.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        !self.released.is_empty() || !self.enables.is_empty()
    }

    pub(crate) fn set_enabled(&mut self, index: u32, pd: Option<(Qpn, Pd)>) {
        self.enabled[index as usize] = pd;
    }

    pub(crate) fn release(&mut self, mut index: u32) {
        while index != NOBODY {
            // Each queue pair is in at most one list, so the capacity suffices.
            self.released.push_back(index);
            index = std::mem::replace(&mut self.before[index as usize], NOBODY);
        }
    }
}
