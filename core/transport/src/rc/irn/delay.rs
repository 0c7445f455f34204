//! The retransmission delay of the IRN paper's figure 12: a hardware NIC stores no packets and must fetch a
//! lost packet over PCIe before it can retransmit.

use crate::Instant;
use crate::rc::Seq;

/// The delay before a packet is retransmitted.
#[derive(Copy, Clone, Debug)]
pub(super) struct RetransmitDelay {
    ns: u64,
    /// The packet that waits, and the end of its delay.
    waiting: Option<(Seq, Instant)>,
    /// End of the delay until `holds` or `expire` observes it, otherwise `NEVER`.
    deadline: Instant,
}

impl RetransmitDelay {
    /// Returns a delay of `ns` nanoseconds; 0 disables it.
    pub(crate) fn new(ns: u64) -> RetransmitDelay {
        RetransmitDelay { ns, waiting: None, deadline: Instant::NEVER }
    }

    /// Returns true if the retransmission of `seq` must still wait. Starts the delay if `seq` is a new
    /// packet.
    pub(crate) fn holds(&mut self, now: Instant, seq: Seq) -> bool {
        if self.ns == 0 {
            return false;
        }
        let until = match self.waiting {
            Some((waiting, until)) if waiting == seq => until,
            _ => now.after(self.ns),
        };
        self.waiting = Some((seq, until));
        self.deadline = if now < until { until } else { Instant::NEVER };
        now < until
    }

    /// Ends the delay because a packet was retransmitted.
    pub(crate) fn sent(&mut self) {
        (self.waiting, self.deadline) = (None, Instant::NEVER);
    }

    /// Returns the time at which the delay ends, or `NEVER`.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Clears the deadline if it has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        if now >= self.deadline {
            self.deadline = Instant::NEVER;
        }
    }
}
