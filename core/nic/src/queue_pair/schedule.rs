//! The place of a queue pair in the lists of its NIC: the line of turns, the queue pairs that wait for a
//! stopped transmit queue of the port, and those whose send queue is blocked by a WAIT.

use super::QueuePair;

impl QueuePair {
    /// Returns true while the queue pair is in the scheduler's queue.
    #[inline(always)]
    pub(crate) fn is_queued(&self) -> bool {
        self.schedule.queued
    }

    /// Notes that the queue pair is in the scheduler's queue, or no longer. Returns the former state.
    #[inline(always)]
    pub(crate) fn set_queued(&mut self, queued: bool) -> bool {
        std::mem::replace(&mut self.schedule.queued, queued)
    }

    /// Returns true if the queue pair may have packets to send and was not queued. The caller queues it.
    #[inline]
    pub(crate) fn enters_line(&mut self) -> bool {
        let enters = !self.schedule.queued && self.wants_turn();
        self.schedule.queued |= enters;
        enters
    }

    /// Returns true if a transmit queue was found stopped in the last turn.
    #[inline(always)]
    pub(crate) fn awaits_queue(&self) -> bool {
        self.schedule.awaited != 0
    }

    /// Parks the queue pair for the transmit queues that were found stopped in the last turn. Returns those
    /// that it did not wait for before.
    pub(crate) fn park(&mut self) -> u64 {
        let queues = std::mem::take(&mut self.schedule.awaited) & !self.schedule.parked;
        self.schedule.parked |= queues;
        queues
    }

    /// Ends the wait for a transmit queue. Returns true if the queue pair was not queued; the caller gives it
    /// a turn.
    pub(crate) fn unpark(&mut self, queue: u32) -> bool {
        self.schedule.parked &= !(1 << queue);
        !self.set_queued(true)
    }

    /// Returns true while the queue pair waits for a stopped transmit queue.
    pub(crate) fn is_parked(&self) -> bool {
        self.schedule.parked != 0
    }

    /// Returns true while a WAIT blocks the send queue, and the queue pair is in the list of a completion
    /// queue.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.schedule.waiting
    }

    /// Notes that a WAIT blocks the send queue, or no longer. Returns the former state.
    pub(crate) fn set_waiting(&mut self, waiting: bool) -> bool {
        std::mem::replace(&mut self.schedule.waiting, waiting)
    }
}
