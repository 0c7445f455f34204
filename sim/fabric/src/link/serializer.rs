//! One frame after the other, at a rate.

use std::collections::VecDeque;

use remora_transport::Instant;

use super::LinkConfig;

/// What sends frames one after the other: for one link, or for all that lead away from a node.
pub(super) struct Serializer {
    /// Bits per second; 0: a frame takes no time.
    pub rate: u64,
    queue: usize,
    /// When the last frame taken has departed.
    free_at: Instant,
    /// Departures still to come: what the queue holds.
    departures: VecDeque<Instant>,
}

impl Serializer {
    pub fn new(config: LinkConfig) -> Serializer {
        let departures = VecDeque::with_capacity(config.queue);
        Serializer { rate: config.rate, queue: config.queue, free_at: Instant(0), departures }
    }

    /// How long a frame of `len` bytes takes.
    pub fn transmission_ns(&self, len: usize) -> u64 {
        (len as u64 * 8_000_000_000).checked_div(self.rate).unwrap_or(0)
    }

    /// Does it take one more frame at `now`?
    pub fn has_space(&mut self, now: Instant) -> bool {
        while self.departures.front().is_some_and(|departure| *departure <= now) {
            self.departures.pop_front();
        }
        self.departures.len() < self.queue
    }

    /// When its full queue has space; None: it has space at `now`.
    pub fn space_at(&self, now: Instant) -> Option<Instant> {
        let waiting = || self.departures.iter().copied().filter(|at| *at > now);
        if waiting().count() < self.queue { None } else { waiting().next() }
    }

    /// Takes a frame that departs after `transmission` nanoseconds of its own; when.
    pub fn take(&mut self, now: Instant, transmission: u64) -> Instant {
        self.free_at = self.free_at.max(now).after(transmission);
        self.departures.push_back(self.free_at);
        self.free_at
    }
}
