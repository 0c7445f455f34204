//! Packet descriptors. All queues are linked lists through one table, and a packet is in one queue at a time.

use super::port_id::PortId;
use crate::engine::Picos;

/// End of a list.
const NONE: u32 = u32::MAX;

/// Index of a packet in the table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(u32);

impl PacketId {
    /// Returns the index of the packet in tables that callers keep.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Flags of a packet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Value without any flag.
    pub const NONE: Flags = Flags(0);
    /// The packet is ECN-capable (ECT), so switches may mark it.
    pub const ECN_CAPABLE: Flags = Flags(1);
    /// A switch has marked the packet (CE).
    pub const MARKED: Flags = Flags(2);
    /// The packet is a PFC frame; `hash` holds its classes and quanta.
    pub const PAUSE: Flags = Flags(4);
    /// All bytes of the frame are stored.
    pub const WHOLE: Flags = Flags(8);
    /// `hash` holds a path instead of a hash.
    pub const PATH: Flags = Flags(16);
    /// A fault rule applies on the first link: see [`Packet::late`] and [`Packet::lost`].
    pub const FAULT: Flags = Flags(32);

    /// Returns the union of both sets of flags.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns the flags that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Returns true if all flags of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A packet descriptor: all that switches know of a packet.
#[derive(Copy, Clone, Debug)]
pub struct Packet {
    /// Time at which the last bit arrives, while the packet is on a link. With [`Flags::FAULT`] on its first
    /// link: delay of the packet in picoseconds.
    pub arrival: Picos,
    /// Next packet in the same queue.
    next: u32,
    /// Hash by which switches choose among equal paths, or the path itself.
    pub hash: u32,
    /// Port by which the packet arrived at the switch that holds it.
    pub ingress: PortId,
    /// Node number of the destination host.
    pub destination: u16,
    /// Bytes that the packet occupies on a link and in a buffer.
    pub charge: u16,
    /// Length of the frame, in bytes.
    pub len: u16,
    /// Traffic class, 0 to 7.
    pub class: u8,
    /// Flags of the packet.
    pub flags: Flags,
}

impl Packet {
    /// Returns a packet that has not been sent yet.
    pub fn new(destination: u16, class: u8, charge: u16, hash: u32) -> Packet {
        Packet {
            arrival: Picos(0),
            next: NONE,
            hash,
            ingress: PortId::NONE,
            destination,
            charge,
            len: 0,
            class,
            flags: Flags::NONE,
        }
    }

    /// Returns the packet with these flags instead of its own.
    #[must_use]
    pub fn flagged(self, flags: Flags) -> Packet {
        Packet { flags, ..self }
    }

    /// Returns the packet with an additional delay of `ps` picoseconds on its first link, so that later
    /// packets may overtake it.
    #[must_use]
    pub fn late(self, ps: u64) -> Packet {
        Packet { arrival: Picos(ps), flags: self.flags.with(Flags::FAULT), ..self }
    }

    /// Returns the packet marked for loss on its first link.
    #[must_use]
    pub fn lost(self) -> Packet {
        self.late(Picos::NEVER.0)
    }
}

/// A first-in, first-out queue of packets.
#[derive(Copy, Clone, Debug)]
pub struct Fifo {
    head: u32,
    tail: u32,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo { head: NONE, tail: NONE }
    }
}

impl Fifo {
    /// Returns true if the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Returns the first packet, or `None` if the queue is empty.
    #[inline]
    pub fn first(&self) -> Option<PacketId> {
        (self.head != NONE).then_some(PacketId(self.head))
    }
}

/// The table of all packets in the network.
#[derive(Default)]
pub struct Packets {
    all: Vec<Packet>,
    free: Vec<u32>,
}

impl std::ops::Index<PacketId> for Packets {
    type Output = Packet;

    #[inline]
    fn index(&self, id: PacketId) -> &Packet {
        &self.all[id.0 as usize]
    }
}

impl std::ops::IndexMut<PacketId> for Packets {
    #[inline]
    fn index_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.all[id.0 as usize]
    }
}

impl Packets {
    /// Returns the number of packets in the network.
    pub fn live(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Returns the largest number of packets that were in the network at the same time.
    pub fn most(&self) -> usize {
        self.all.len()
    }

    /// Adds a packet.
    #[inline]
    pub fn add(&mut self, packet: Packet) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = packet;
            return PacketId(id);
        }
        self.all.push(packet);
        PacketId(self.all.len() as u32 - 1)
    }

    /// Removes a packet that has arrived or was lost.
    #[inline]
    pub fn remove(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// Appends a packet to a queue.
    #[inline]
    pub fn push(&mut self, queue: &mut Fifo, id: PacketId) {
        self.all[id.0 as usize].next = NONE;
        if queue.head == NONE {
            queue.head = id.0;
        } else {
            self.all[queue.tail as usize].next = id.0;
        }
        queue.tail = id.0;
    }

    /// Returns the packet after this one in its queue.
    #[inline]
    pub fn behind(&self, id: PacketId) -> Option<PacketId> {
        let next = self[id].next;
        (next != NONE).then_some(PacketId(next))
    }

    /// Removes the first packet of a queue and returns it.
    #[inline]
    pub fn pop(&mut self, queue: &mut Fifo) -> Option<PacketId> {
        let id = queue.first()?;
        queue.head = self.all[id.0 as usize].next;
        Some(id)
    }

    /// Returns the packets of a queue in order.
    pub fn of(&self, queue: &Fifo) -> impl Iterator<Item = PacketId> {
        let after = |id: &PacketId| {
            let next = self.all[id.0 as usize].next;
            (next != NONE).then_some(PacketId(next))
        };
        std::iter::successors(queue.first(), after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_one_table_keep_their_orders() {
        let mut packets = Packets::default();
        let ids: Vec<_> = (0..6).map(|n| packets.add(Packet::new(n, 0, 64, 0))).collect();
        let mut even = Fifo::default();
        let mut odd = Fifo::default();
        for (n, id) in ids.iter().enumerate() {
            packets.push(if n % 2 == 0 { &mut even } else { &mut odd }, *id);
        }
        assert_eq!(packets.of(&even).count(), 3);
        let mut order = |queue: &mut Fifo| {
            let popped = std::iter::from_fn(|| packets.pop(queue));
            popped.collect::<Vec<_>>()
        };
        assert_eq!(order(&mut even), [ids[0], ids[2], ids[4]]);
        assert_eq!(order(&mut odd), [ids[1], ids[3], ids[5]]);
        assert!(even.is_empty() && odd.is_empty());
        packets.remove(ids[3]);
        assert_eq!((packets.live(), packets.most()), (5, 6));
        assert_eq!(packets.add(Packet::new(9, 0, 64, 0)), ids[3]);
    }

    #[test]
    fn a_descriptor_is_half_a_cache_line() {
        assert_eq!(size_of::<Packet>(), 32);
    }
}
