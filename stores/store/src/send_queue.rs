//! The number of free slots in a send queue most of whose requests bring no completion.

use crate::work_id::NUMBER;

/// The sizes of queue pair and completion queue that a machine needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueueNeeds {
    /// Work requests in the send queue, each of up to `sges` elements (or of the configured number of inline
    /// bytes).
    pub send: u32,
    /// Receive requests in the receive queue.
    pub receive: u32,
    /// Scatter/gather elements per send request.
    pub sges: u32,
    /// Completions that may wait to be polled at the same time.
    pub completions: u32,
}

impl QueueNeeds {
    /// Returns the sizes that are sufficient for either of two machines.
    pub fn max(self, other: QueueNeeds) -> QueueNeeds {
        QueueNeeds {
            send: self.send.max(other.send),
            receive: self.receive.max(other.receive),
            sges: self.sges.max(other.sges),
            completions: self.completions.max(other.completions),
        }
    }
}

/// The account of a send queue: a machine's own count of the free slots.
pub trait Account {
    /// True if READs complete in the order in which they were posted and a failed READ breaks the queue.
    const ORDERED: bool;

    /// Returns the account of an empty queue that serves `window` operations of up to three requests each.
    fn new(window: u32) -> Self;

    /// Returns true if `requests` more requests fit.
    fn has_space(&self, requests: u32) -> bool;

    /// Notes one request that is about to be posted; `wanted` says that the machine needs its completion.
    /// Returns the request's number, which is passed to [`retire`](Account::retire) when it completes, and
    /// whether the request must be signaled.
    fn enter(&mut self, wanted: bool) -> (u32, bool);

    /// Notes that the request with this number has completed. Only the low bits that a work request id holds
    /// are used.
    fn retire(&mut self, number: u32);

    /// Asserts the invariants of the account.
    fn check(&self);
}

/// The account of a send queue of a connected queue pair. A request without completion is known to have left
/// the queue when a later request completes (IBTA vol. 1 §10.8.5.1: completions come in order). So the
/// account asks for a signaled request before the queue is full.
#[derive(Debug)]
pub struct SendQueue {
    depth: u32,
    /// Requests posted and requests known to have left the queue. Both numbers wrap.
    posted: u32,
    retired: u32,
    /// Requests since the last signaled one.
    unsignaled: u32,
}

impl SendQueue {
    /// Returns the queue depth that serves `window` operations of up to three requests each without waiting.
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

    /// Asserts that the queued requests fit the queue and that a full queue contains a signaled request.
    fn check(&self) {
        let queued = self.posted.wrapping_sub(self.retired);
        assert!(queued <= self.depth, "requests in the queue <= its depth: {self:?}");
        assert!(self.unsignaled < self.depth, "a full queue has a signaled request: {self:?}");
    }

    /// All requests before this one have completed, too.
    #[inline]
    fn retire(&mut self, number: u32) {
        self.retired = self.posted.wrapping_sub(self.posted.wrapping_sub(number) & NUMBER);
    }
}

/// The account of 1RMA command slots: operations complete in any order. Only operations whose completion is
/// wanted take a slot, because messages leave by a stream.
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

    /// Asserts that no more slots are taken than exist.
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
