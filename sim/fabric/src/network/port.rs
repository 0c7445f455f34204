//! A port: one direction of a link, with the queues at its sender and the packets on the link.

use remora_memory::prefetch;

use super::event_set::EventSet;
use super::packet::{Fifo, PacketId, Packets};
use crate::engine::{Picos, transmission};

/// The node at one end of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A host, by its number.
    Host(u32),
    /// A switch, by its number.
    Switch(u32),
}

/// Number of traffic classes (IEEE 802.1Q priorities).
pub const CLASSES: usize = 8;

/// The queue of a class at a port.
#[derive(Copy, Clone, Debug, Default)]
pub struct Queue {
    /// Packets of the queue. Unused by switches with virtual output queues.
    pub fifo: Fifo,
    /// Queued bytes as packets are charged, for all kinds of switches.
    pub bytes: u32,
}

/// A direction of a link. The fields that every packet touches are in the first two cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Port {
    /// End of the current transmission.
    pub busy_until: Picos,
    /// Propagation delay: picoseconds from the departure of the last bit to its arrival.
    pub delay: u64,
    /// Packets on the link, in the order of their arrivals.
    pub flight: Fifo,
    /// Queued control frames, which go first and are never paused.
    pub control: Fifo,
    /// Node at the far end.
    pub to: End,
    /// Node that sends.
    pub from: End,
    /// Picoseconds per byte, or 0 if that is not a whole number.
    ps_per_byte: u32,
    /// Mask of the classes that have queued packets.
    pub waiting: u8,
    /// Mask of the classes that are paused.
    pub paused: u8,
    /// Class that is served next.
    pub next_class: u8,
    /// True if an event is scheduled for the end of the current transmission.
    pub has_free_event: bool,
    /// True if times are rounded down to whole nanoseconds.
    pub whole_ns: bool,
    /// True if the link is up.
    pub up: bool,
    /// True if the link loses packets at random.
    pub lossy: bool,
    /// Kinds of events that are observed at this port.
    pub observed: EventSet,
    /// Queued bytes of all classes.
    pub queued: u32,
    /// Maximum of `queued` so far.
    pub most_queued: u32,
    /// Queued packets of all classes, without control frames.
    pub packets: u32,
    /// Number of departures until `next_rate` applies; 0 if no change is pending.
    until_next_rate: u32,
    /// Queues by class.
    pub queues: [Queue; CLASSES],
    /// Rate in bit/s; at 0 a packet takes no time.
    pub rate: u64,
    /// Rate after the pending change.
    next_rate: u64,
    /// Packets that the buffer of this port did not admit.
    pub lost: u64,
    /// Packets that received an ECN mark at this port.
    pub marked: u64,
    /// End of the pause of each class.
    pub paused_until: [Picos; CLASSES],
}

impl Port {
    /// Returns an idle port.
    pub fn new(sender: End, receiver: End, rate: u64, delay: u64) -> Port {
        let mut port = Port {
            busy_until: Picos(0),
            ps_per_byte: 0,
            waiting: 0,
            paused: 0,
            next_class: 0,
            has_free_event: false,
            whole_ns: false,
            up: true,
            lossy: false,
            observed: EventSet::default(),
            flight: Fifo::default(),
            control: Fifo::default(),
            delay,
            queued: 0,
            most_queued: 0,
            packets: 0,
            to: receiver,
            from: sender,
            queues: [Queue::default(); CLASSES],
            rate: 0,
            until_next_rate: 0,
            next_rate: 0,
            lost: 0,
            marked: 0,
            paused_until: [Picos(0); CLASSES],
        };
        port.take_rate(rate);
        port
    }

    /// Sets another rate for packets that are queued from now on. Packets already queued keep the present
    /// rate.
    pub fn set_rate(&mut self, rate: u64) {
        (self.until_next_rate, self.next_rate) = (self.packets + 1, rate);
        if self.packets == 0 {
            self.count_rate();
        }
    }

    /// Counts a departure towards a pending change of the rate.
    #[cold]
    fn count_rate(&mut self) {
        self.until_next_rate -= 1;
        if self.until_next_rate == 0 {
            self.take_rate(self.next_rate);
        }
    }

    fn take_rate(&mut self, rate: u64) {
        self.rate = rate;
        let is_whole = rate > 0 && 8_000_000_000_000 % rate == 0;
        let ps_per_byte = u32::try_from(transmission(1, rate)).ok();
        self.ps_per_byte = ps_per_byte.filter(|_| is_whole).unwrap_or(0);
    }

    /// Returns the transmission time of `bytes` bytes in picoseconds.
    #[inline]
    pub fn transmission(&self, bytes: u32) -> u64 {
        let ps = if self.ps_per_byte != 0 {
            u64::from(bytes) * u64::from(self.ps_per_byte)
        } else {
            transmission(u64::from(bytes), self.rate)
        };
        if self.whole_ns { ps / Picos::NANOSECOND * Picos::NANOSECOND } else { ps }
    }

    /// Prefetches the port's memory.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(&self.busy_until);
        prefetch(&self.queues[0]);
    }

    /// Returns true if a packet may leave.
    #[inline]
    pub fn can_send(&self) -> bool {
        self.waiting & !self.paused != 0 || !self.control.is_empty()
    }

    /// Returns the class that is served next, or `None` if no packet may leave. `urgent` classes go first,
    /// the highest number before the others. All other classes take turns.
    #[inline]
    pub fn choose(&mut self, urgent: u8) -> Option<u8> {
        let ready = self.waiting & !self.paused;
        if ready == 0 {
            return None;
        }
        let first = ready & urgent;
        if first != 0 {
            return Some(7 - first.leading_zeros() as u8);
        }
        let turned = ready.rotate_right(u32::from(self.next_class));
        let class = (self.next_class + turned.trailing_zeros() as u8) % CLASSES as u8;
        self.next_class = (class + 1) % CLASSES as u8;
        Some(class)
    }

    /// Adds a queued packet to the counters of its class.
    #[inline]
    pub fn add(&mut self, class: u8, bytes: u32) {
        self.queues[usize::from(class)].bytes += bytes;
        self.queued += bytes;
        self.most_queued = self.most_queued.max(self.queued);
        self.packets += 1;
        self.waiting |= 1 << class;
    }

    /// Subtracts a packet that is no longer queued.
    #[inline]
    pub fn subtract(&mut self, class: u8, bytes: u32) {
        let queue = &mut self.queues[usize::from(class)];
        queue.bytes -= bytes;
        self.queued -= bytes;
        self.packets -= 1;
        if queue.bytes == 0 {
            self.waiting &= !(1 << class);
        }
        if self.until_next_rate != 0 {
            self.count_rate();
        }
    }

    /// Starts the transmission of a packet and returns the time of its arrival.
    #[inline]
    pub fn depart(&mut self, now: Picos, id: PacketId, packets: &mut Packets) -> Picos {
        let packet = &mut packets[id];
        self.busy_until = now.after(self.transmission(u32::from(packet.charge)));
        packet.arrival = self.busy_until.after(self.delay);
        let arrival = packet.arrival;
        packets.push(&mut self.flight, id);
        arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_take_turns_and_urgent_ones_go_first() {
        let mut port = Port::new(End::Host(0), End::Host(1), 100_000_000_000, 0);
        port.waiting = 0b1000_1011;
        let turns: Vec<_> = (0..5).map(|_| port.choose(0)).collect();
        assert_eq!(turns, [0, 1, 3, 7, 0].map(Some));
        port.paused = 0b1000_0011;
        assert_eq!((port.choose(0), port.choose(0)), (Some(3), Some(3)));
        port.paused = 0;
        assert_eq!((port.choose(0b0110_0010), port.choose(0b1000_0001)), (Some(1), Some(7)));
        port.paused = u8::MAX;
        assert_eq!(port.choose(0b0010), None);
    }

    /// Regression: a port whose rate was set twice, first while packets waited and then while none did,
    /// went back to the first rate.
    #[test]
    fn a_rate_holds_from_the_first_packet_that_comes_behind_it() {
        let mut port = Port::new(End::Host(0), End::Host(1), 1_000_000_000, 0);
        port.add(0, 100);
        port.set_rate(2_000_000_000);
        port.subtract(0, 100);
        assert_eq!(port.rate, 1_000_000_000);
        // No packet waits now, so the latest rate applies at once and no earlier rate returns.
        port.set_rate(4_000_000_000);
        assert_eq!(port.rate, 4_000_000_000);
        port.add(0, 100);
        port.subtract(0, 100);
        assert_eq!(port.rate, 4_000_000_000);
        port.add(0, 100);
        port.set_rate(5_000_000_000);
        port.add(0, 100);
        port.subtract(0, 100);
        assert_eq!(port.rate, 4_000_000_000);
        port.subtract(0, 100);
        assert_eq!(port.rate, 5_000_000_000);
    }

    #[test]
    fn rates_that_divide_a_second_and_others() {
        let port = |rate| Port::new(End::Host(0), End::Host(1), rate, 0);
        assert_eq!(port(40_000_000_000).transmission(1_000), 200_000);
        assert_eq!(port(3_000_000_000).transmission(3), 8_000);
        assert_eq!(port(3_000_000_000).transmission(1), 2_667);
        // A byte time in picoseconds that does not fit into 32 bits.
        assert_eq!(port(1_000).transmission(2), 16_000_000_000);
        assert_eq!(port(0).transmission(1_000), 0);
    }
}
