//! Packets under way. A packet is in one queue at a time: all queues are lists through one table.

use super::port_id::PortId;
use crate::engine::Picos;

/// No packet.
const NONE: u32 = u32::MAX;

/// Number of a packet in the table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(u32);

impl PacketId {
    /// Its index in tables beside this one.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a packet is, beside its place in a flow.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Nothing.
    pub const NONE: Flags = Flags(0);
    /// A switch may mark it (ECT).
    pub const ECN_CAPABLE: Flags = Flags(1);
    /// A switch has marked it (CE).
    pub const MARKED: Flags = Flags(2);
    /// A PFC frame: `hash` has its classes and its quanta.
    pub const PAUSE: Flags = Flags(4);
    /// All bytes of its frame are kept.
    pub const WHOLE: Flags = Flags(8);
    /// `hash` is a path, not a hash.
    pub const PATH: Flags = Flags(16);
    /// A fault rule decides about it on its first link: [`Packet::late`], [`Packet::lost`].
    pub const FAULT: Flags = Flags(32);

    /// Both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Are all of `other` among these?
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A packet: a descriptor. Switches see no more of it.
#[derive(Copy, Clone, Debug)]
pub struct Packet {
    /// On a link: when its last bit is there. With [`Flags::FAULT`]: picoseconds that it comes late.
    pub arrival: Picos,
    /// The next one of its queue.
    next: u32,
    /// By which switches choose among equal paths; or the path itself.
    pub hash: u32,
    /// The port by which it came to the switch that holds it.
    pub ingress: PortId,
    /// Host that it goes to.
    pub destination: u16,
    /// Bytes that it is charged on a link and in a buffer.
    pub charge: u16,
    /// Bytes of its frame.
    pub len: u16,
    /// Class, 0 to 7.
    pub class: u8,
    /// What it is.
    pub flags: Flags,
}

impl Packet {
    /// A packet of a flow before its first link.
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

    /// The same packet with these flags.
    #[must_use]
    pub fn flagged(self, flags: Flags) -> Packet {
        Packet { flags, ..self }
    }

    /// The same packet, which comes so many picoseconds later than its first link has it. Others overtake it.
    #[must_use]
    pub fn late(self, ps: u64) -> Packet {
        Packet { arrival: Picos(ps), flags: self.flags.with(Flags::FAULT), ..self }
    }

    /// The same packet, which its first link loses.
    #[must_use]
    pub fn lost(self) -> Packet {
        self.late(Picos::NEVER.0)
    }
}

/// A queue of packets, first come, first served.
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
    /// Has it no packet?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first packet.
    #[inline]
    pub fn first(&self) -> Option<PacketId> {
        (self.head != NONE).then_some(PacketId(self.head))
    }
}

/// All packets that hosts have sent and that have not arrived.
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
    /// Packets under way.
    pub fn live(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Most packets that were ever under way at once.
    pub fn most(&self) -> usize {
        self.all.len()
    }

    /// Takes a packet in.
    #[inline]
    pub fn add(&mut self, packet: Packet) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = packet;
            return PacketId(id);
        }
        self.all.push(packet);
        PacketId(self.all.len() as u32 - 1)
    }

    /// A packet has arrived, or is lost.
    #[inline]
    pub fn remove(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// Adds a packet to the end of a queue.
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

    /// The packet behind this one in its queue.
    #[inline]
    pub fn behind(&self, id: PacketId) -> Option<PacketId> {
        let next = self[id].next;
        (next != NONE).then_some(PacketId(next))
    }

    /// Takes out a queue's first packet.
    #[inline]
    pub fn pop(&mut self, queue: &mut Fifo) -> Option<PacketId> {
        let id = queue.first()?;
        queue.head = self.all[id.0 as usize].next;
        Some(id)
    }

    /// The packets of a queue in their order.
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
        let (mut even, mut odd) = (Fifo::default(), Fifo::default());
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
