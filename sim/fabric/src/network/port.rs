//! A port: one direction of a link, with the queues in front of it and the packets on it.

use remora_memory::prefetch;

use super::observed::Observe;
use super::packet::{Fifo, PacketId, Packets};
use crate::engine::{Picos, transmission};

/// One end of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A host, by number.
    Host(u32),
    /// A switch, by number.
    Switch(u32),
}

/// Classes of traffic (IEEE 802.1Q priorities).
pub const CLASSES: usize = 8;

/// A class's queue in front of a port.
#[derive(Copy, Clone, Debug, Default)]
pub struct Queue {
    /// Its packets, where the switch has one queue for all inputs.
    pub fifo: Fifo,
    /// What its packets are charged together, in any kind of switch.
    pub bytes: u32,
}

/// One direction of a link. What each packet touches stands in the first two lines of memory.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Port {
    /// Until then it sends.
    pub busy_until: Picos,
    /// Picoseconds from the last bit's departure to its arrival.
    pub delay: u64,
    /// Packets on the link, in the order of their arrivals.
    pub flight: Fifo,
    /// Control frames, which go first and are never paused.
    pub control: Fifo,
    /// Who receives.
    pub to: End,
    /// Who sends.
    pub from: End,
    /// Picoseconds a byte, if that is a whole number; else 0.
    ps_per_byte: u32,
    /// Classes that have packets here, a bit each.
    pub waiting: u8,
    /// Classes that may not send now, a bit each.
    pub paused: u8,
    /// The class that has its turn next.
    pub next_class: u8,
    /// An event ends the present packet.
    pub has_free_event: bool,
    /// Its times are whole nanoseconds, rounded down.
    pub whole_ns: bool,
    /// It carries packets.
    pub up: bool,
    /// It loses packets at random.
    pub lossy: bool,
    /// What is observed of it.
    pub observed: Observe,
    /// Bytes that wait, all classes together.
    pub queued: u32,
    /// The most bytes that ever waited.
    pub most_queued: u32,
    /// Packets that wait, all classes together; control frames are not among them.
    pub packets: u32,
    /// `next_rate` begins with the departure of this number from now; 0: no other rate is due.
    until_next_rate: u32,
    /// What waits, by class.
    pub queues: [Queue; CLASSES],
    /// Bits a second; 0: a packet takes no time.
    pub rate: u64,
    /// The rate that holds then.
    next_rate: u64,
    /// Packets that the buffer in front of it did not take.
    pub lost: u64,
    /// Packets that were marked for what waits here.
    pub marked: u64,
    /// When a pause of each class ends.
    pub paused_until: [Picos; CLASSES],
}

impl Port {
    /// An idle one.
    pub fn new(from: End, to: End, rate: u64, delay: u64) -> Port {
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
            observed: Observe::default(),
            flight: Fifo::default(),
            control: Fifo::default(),
            delay,
            queued: 0,
            most_queued: 0,
            packets: 0,
            to,
            from,
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

    /// Another rate for all packets that come from now on. Those that wait keep the present one.
    pub fn set_rate(&mut self, rate: u64) {
        (self.until_next_rate, self.next_rate) = (self.packets + 1, rate);
        if self.packets == 0 {
            self.count_rate();
        }
    }

    /// A packet leaves, and another rate may begin with it.
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

    /// Picoseconds that so many bytes take.
    #[inline]
    pub fn transmission(&self, bytes: u32) -> u64 {
        let ps = if self.ps_per_byte != 0 {
            u64::from(bytes) * u64::from(self.ps_per_byte)
        } else {
            transmission(u64::from(bytes), self.rate)
        };
        if self.whole_ns { ps / Picos::NANOSECOND * Picos::NANOSECOND } else { ps }
    }

    /// Asks for its memory.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(&self.busy_until);
        prefetch(&self.queues[0]);
    }

    /// Is there something that may leave?
    #[inline]
    pub fn can_send(&self) -> bool {
        self.waiting & !self.paused != 0 || !self.control.is_empty()
    }

    /// The class whose turn it is: the lowest from `next_class` on that waits and is not paused. `urgent`
    /// classes go before all others, the highest first.
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

    /// What a packet that waits is charged is added to the accounts of its class.
    #[inline]
    pub fn add(&mut self, class: u8, bytes: u32) {
        self.queues[usize::from(class)].bytes += bytes;
        self.queued += bytes;
        self.most_queued = self.most_queued.max(self.queued);
        self.packets += 1;
        self.waiting |= 1 << class;
    }

    /// A packet of a class no longer waits.
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

    /// A packet begins to leave at `now`. Returns when it arrives.
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
        // Nothing waits now: the latest rate holds at once, and no earlier one comes back.
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
        // Picoseconds of a byte that do not fit into 32 bits.
        assert_eq!(port(1_000).transmission(2), 16_000_000_000);
        assert_eq!(port(0).transmission(1_000), 0);
    }
}
