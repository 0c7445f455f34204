//! A switch between the links and the nodes: what many senders to one receiver meet.
//!
//! A frame that has crossed its link waits in the buffer of the port that leads to its node. The port sends at its rate,
//! first come, first served; what finds no room in the buffer is lost. No pause frames, no marks: a plain tail drop.

use std::collections::VecDeque;

use transport::Instant;

/// What every port of the switch is like.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// From the last bit's departure to its arrival at the node, nanoseconds.
    pub latency_ns: u64,
    /// Bits per second; 0: a frame takes no time.
    pub rate: u64,
    /// Bytes of frames that a port holds at most, the one that is leaving among them.
    pub buffer: usize,
}

/// A port that leads to one node.
pub(crate) struct Port {
    config: SwitchConfig,
    /// Departures still to come, and the bytes that leave with each.
    departures: VecDeque<(Instant, usize)>,
    held: usize,
    free_at: Instant,
    /// Frames for which there was no room.
    pub dropped: u64,
    /// Most bytes ever held.
    pub most: usize,
}

impl Port {
    pub fn new(config: SwitchConfig) -> Port {
        let departures = VecDeque::new();
        Port { config, departures, held: 0, free_at: Instant(0), dropped: 0, most: 0 }
    }

    /// A frame of `len` bytes comes: when it arrives at the node, if there is room for it.
    pub fn take(&mut self, now: Instant, len: usize) -> Option<Instant> {
        while let Some((_, gone)) = self.departures.pop_front_if(|(departure, _)| *departure <= now) {
            self.held -= gone;
        }
        if self.held + len > self.config.buffer {
            self.dropped += 1;
            return None;
        }
        self.held += len;
        self.most = self.most.max(self.held);
        let transmission = (len as u64 * 8_000_000_000).checked_div(self.config.rate).unwrap_or(0);
        self.free_at = self.free_at.max(now).after(transmission);
        self.departures.push_back((self.free_at, len));
        Some(self.free_at.after(self.config.latency_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand bytes take a microsecond.
    const CONFIG: SwitchConfig = SwitchConfig { latency_ns: 500, rate: 8_000_000_000, buffer: 3_000 };

    #[test]
    fn frames_leave_one_after_the_other_at_the_rate_and_arrive_a_latency_later() {
        let mut port = Port::new(CONFIG);
        let arrivals: Vec<_> = (0..3).map(|_| port.take(Instant(100), 1000)).collect();
        assert_eq!(arrivals, [1_600, 2_600, 3_600].map(|at| Some(Instant(at))));
        // An idle port begins at once.
        assert_eq!(port.take(Instant(10_000), 500), Some(Instant(11_000)));
    }

    #[test]
    fn what_just_fits_is_taken_and_one_byte_more_is_lost() {
        let mut port = Port::new(CONFIG);
        assert!(port.take(Instant(0), 2_999).is_some());
        assert_eq!(port.take(Instant(0), 2), None);
        assert!(port.take(Instant(0), 1).is_some());
        assert_eq!((port.dropped, port.most), (1, 3_000));
        // There is room again in the moment in which a frame has left, not before.
        assert_eq!(port.take(Instant(2_998), 1), None);
        assert!(port.take(Instant(2_999), 2_999).is_some());
    }
}
