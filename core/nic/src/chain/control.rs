//! WAIT and ENABLE, in the send queue of any queue pair.

use remora_memory::Pd;
use remora_transport::Status;
use remora_wire::Qpn;
use std::collections::VecDeque;

use crate::completion_queue::NOBODY;

/// ENABLEs of one turn that may wait to reach their queues. At the bound the next one waits for its queue's
/// next turn.
pub(super) const ENABLES: usize = 256;

/// The WAITs and ENABLEs between queue pairs.
pub(crate) struct Control {
    /// For each queue pair that waits: the one before it in the same line.
    pub(super) before: Box<[u32]>,
    /// Queue pairs whose WAIT is to be tested again.
    pub(super) released: VecDeque<u32>,
    pub(super) enables: VecDeque<(Qpn, u64)>,
    /// For each place: the queue pair there, if others enable it, and its domain.
    pub(super) enabled: Box<[Option<(Qpn, Pd)>]>,
}

/// May a work request start?
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    Later,
    Never(Status),
}

impl Control {
    pub fn new(places: usize) -> Control {
        Control {
            before: vec![NOBODY; places].into(),
            released: VecDeque::with_capacity(places),
            enables: VecDeque::with_capacity(ENABLES),
            enabled: vec![None; places].into(),
        }
    }

    /// Are there ENABLEs or released WAITs to pass on?
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.released.is_empty() || !self.enables.is_empty()
    }

    pub fn set_enabled(&mut self, index: u32, pd: Option<(Qpn, Pd)>) {
        self.enabled[index as usize] = pd;
    }

    pub fn release(&mut self, mut index: u32) {
        while index != NOBODY {
            // Each queue pair stands in one line at most, so the capacity is never exceeded.
            self.released.push_back(index);
            index = std::mem::replace(&mut self.before[index as usize], NOBODY);
        }
    }
}
