//! StRoM on a queue pair: it ends, and its timers.

use remora_transport::Instant;

use super::QueuePair;
use crate::shared::Shared;

impl QueuePair {
    /// The connection ends: its lanes and the blocks of its answers are free.
    pub(crate) fn end_strom(&mut self, shared: &mut Shared) {
        if let Some(mut strom) = self.strom.take() {
            strom.end(&mut shared.kernels, self.number);
        }
    }

    /// Returns the time at which `expire_strom` is due.
    #[inline(always)]
    pub(crate) fn deadline_strom(&self) -> Instant {
        self.strom.as_ref().map_or(Instant::NEVER, |strom| strom.deadline())
    }

    /// Runs the timers of kernels: a delayed ACK leaves, or a READ is checked again.
    pub(crate) fn expire_strom(&mut self, now: Instant) {
        if let Some(strom) = &mut self.strom
            && strom.expire(now)
            && let Some(connection) = self.machine.rc_mut()
        {
            connection.responder.acknowledge();
        }
    }
}
