//! How full a send queue is, when most of its requests bring no completion.

use crate::work_id::NUMBER;

/// What a machine needs of its queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueueNeeds {
    /// Work requests in the send queue, each of up to `sges` elements (or of as many inline bytes as were
    /// configured).
    pub send: u32,
    /// Receive requests in the receive queue.
    pub receive: u32,
    /// Scatter/gather elements in a send request.
    pub sges: u32,
    /// Completions that may wait to be polled at a time.
    pub completions: u32,
}

impl QueueNeeds {
    /// What serves either of two machines.
    pub fn max(self, other: QueueNeeds) -> QueueNeeds {
        QueueNeeds {
            send: self.send.max(other.send),
            receive: self.receive.max(other.receive),
            sges: self.sges.max(other.sges),
            completions: self.completions.max(other.completions),
        }
    }
}

/// How a machine knows how full its send queue is.
pub trait Account {
    /// READs complete in the order in which they were posted, and the failure of one is that of the queue.
    const ORDERED: bool;

    /// That of an empty queue, which serves `window` operations of up to three requests each.
    fn new(window: u32) -> Self;

    /// Do `requests` more fit?
    fn has_space(&self, requests: u32) -> bool;

    /// Notes one request about to be posted. `wanted`: its completion is needed. Returns its number, which
    /// its completion gives to [`retire`](Account::retire), and whether it must be signaled.
    fn enter(&mut self, wanted: bool) -> (u32, bool);

    /// The request of this number (its low bits, as an id holds them) has completed.
    fn retire(&mut self, number: u32);

    /// Asserts the invariants.
    fn check(&self);
}

/// A send queue's account. A request without completion is known to be out of the queue when a later one
/// completes (IBTA vol. 1 §10.8.5.1: completions come in order), so every so often a request must be
/// signaled.
#[derive(Debug)]
pub struct SendQueue {
    depth: u32,
    /// Requests posted and requests known to be out of the queue; both wrap.
    posted: u32,
    retired: u32,
    /// Requests since the last signaled one.
    unsignaled: u32,
}

impl SendQueue {
    /// Depth that serves `window` operations of up to three requests each without waiting.
    pub fn depth_for(window: u32) -> u32 {
        (window * 4).max(8)
    }
}

impl Account for SendQueue {
    const ORDERED: bool = true;

    fn new(window: u32) -> SendQueue {
        SendQueue { depth: SendQueue::depth_for(window), posted: 0, retired: 0, unsignaled: 0 }
    }

    #[inline]
    fn has_space(&self, requests: u32) -> bool {
        self.posted.wrapping_sub(self.retired) + requests <= self.depth
    }

    #[inline]
    fn enter(&mut self, wanted: bool) -> (u32, bool) {
        self.posted = self.posted.wrapping_add(1);
        self.unsignaled += 1;
        let signaled = wanted || self.unsignaled >= self.depth / 4;
        if signaled {
            self.unsignaled = 0;
        }
        (self.posted, signaled)
    }

    /// Asserts that the requests in the queue fit it, and that one of them will complete.
    fn check(&self) {
        let queued = self.posted.wrapping_sub(self.retired);
        assert!(queued <= self.depth, "requests in the queue <= its depth: {self:?}");
        assert!(self.unsignaled < self.depth, "a full queue has a signaled request: {self:?}");
    }

    /// With it all before have completed.
    #[inline]
    fn retire(&mut self, number: u32) {
        self.retired = self.posted.wrapping_sub(self.posted.wrapping_sub(number) & NUMBER);
    }
}

/// The account of command slots: operations complete in any order, each by itself (1RMA). Only those whose
/// completion is wanted take a slot; messages leave by a stream.
#[derive(Debug)]
pub struct CommandSlots {
    depth: u32,
    taken: u32,
}

impl Account for CommandSlots {
    const ORDERED: bool = false;

    fn new(window: u32) -> CommandSlots {
        CommandSlots { depth: SendQueue::depth_for(window), taken: 0 }
    }

    #[inline]
    fn has_space(&self, requests: u32) -> bool {
        self.taken + requests <= self.depth
    }

    #[inline]
    fn enter(&mut self, wanted: bool) -> (u32, bool) {
        self.taken += u32::from(wanted);
        (0, wanted)
    }

    /// Asserts that no more are taken than there are.
    fn check(&self) {
        assert!(self.taken <= self.depth, "slots taken <= slots: {self:?}");
    }

    #[inline]
    fn retire(&mut self, _: u32) {
        self.taken -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, CommandSlots, SendQueue};

    #[test]
    fn a_slot_is_free_again_by_its_own_completion_alone() {
        let mut slots = CommandSlots::new(2);
        for _ in 0..8 {
            assert!(slots.has_space(1));
            assert!(slots.enter(true).1, "each completes");
        }
        assert!(!slots.has_space(1));
        assert!(!slots.enter(false).1, "a message takes no slot");
        slots.retire(0);
        assert!(slots.has_space(1) && !slots.has_space(2), "the others are taken still");
    }

    #[test]
    fn a_full_queue_always_holds_a_signaled_request() {
        for window in [1, 2, 3, 16, 100] {
            let mut queue = SendQueue::new(window);
            let mut last_signaled = None;
            for _ in 0..10 {
                while queue.has_space(3) {
                    if let (number, true) = queue.enter(false) {
                        last_signaled = Some(number);
                    }
                }
                // Without a signaled request the queue would stay full.
                queue.retire(last_signaled.take().expect("a signaled request in a full queue"));
                assert!(queue.has_space(3), "window {window}");
            }
        }
    }

    #[test]
    fn low_bits_of_a_number_suffice() {
        let mut queue = SendQueue::new(2);
        (queue.posted, queue.retired) = (0x3000_0003, 0x2fff_fffb);
        assert!(!queue.has_space(1));
        queue.retire(0x0fff_fffe);
        assert_eq!(queue.retired, 0x2fff_fffe);
        queue.retire(3);
        assert_eq!(queue.retired, 0x3000_0003);
    }

    #[test]
    fn numbers_wrap() {
        let mut queue = SendQueue::new(2);
        queue.posted = u32::MAX - 1;
        queue.retired = u32::MAX - 1;
        for _ in 0..8 {
            assert!(queue.has_space(1));
            queue.enter(true);
        }
        assert!(!queue.has_space(1));
        queue.retire(2);
        assert_eq!(queue.retired, 2);
        assert!(queue.has_space(4) && !queue.has_space(5));
    }
}
