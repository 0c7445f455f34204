//! The delay of retransmissions, which the IRN paper adds for its figure 12: a NIC in hardware keeps no
//! packets and fetches one over PCIe before it sends it again.

use crate::Instant;
use crate::rc::Seq;

/// The wait before a packet is sent again.
#[derive(Copy, Clone, Debug)]
pub(super) struct RetransmitDelay {
    ns: u64,
    /// The packet that waits, and until when.
    waiting: Option<(Seq, Instant)>,
    /// The packet has not been looked at since.
    deadline: Instant,
}

impl RetransmitDelay {
    /// A delay of so many nanoseconds, or none.
    pub fn new(ns: u64) -> RetransmitDelay {
        RetransmitDelay { ns, waiting: None, deadline: Instant::NEVER }
    }

    /// `seq` is to be sent again: must it wait?
    pub fn holds(&mut self, now: Instant, seq: Seq) -> bool {
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

    /// A packet was sent again: the next one waits anew.
    pub fn sent(&mut self) {
        (self.waiting, self.deadline) = (None, Instant::NEVER);
    }

    /// When to look again.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// It is `now`.
    pub fn expire(&mut self, now: Instant) {
        if now >= self.deadline {
            self.deadline = Instant::NEVER;
        }
    }
}
