//! A switch: its ports, its buffer and its choice among paths.

use super::buffer::{Buffer, BufferConfig};
use super::packet::{Fifo, PacketId, Packets};
use super::port::CLASSES;
use super::port_id::PortId;
use super::route::{Balancing, Chooser};

/// Ports of a switch with virtual output queues, at most.
pub const VOQ_PORTS_MAX: usize = 64;

/// A switch.
pub struct Switch {
    /// Its number among all nodes.
    pub node: u32,
    /// Switches between it and the nearest host.
    pub tier: u32,
    /// The ports by which it sends, in the order of its links.
    pub ports: Box<[PortId]>,
    /// What it holds.
    pub buffer: Buffer,
    /// By which it chooses among equal paths.
    pub chooser: Chooser,
    voq: Voq,
}

/// Virtual output queues: one for each output port, class and input port.
#[derive(Default)]
struct Voq {
    queues: Vec<Fifo>,
    /// Input ports that wait, for each output port and class, a bit each.
    waiting: Vec<u64>,
    /// The input port whose turn it is, likewise.
    turns: Vec<u8>,
    ports: usize,
}

impl Switch {
    /// One with empty queues.
    pub fn new(
        node: u32,
        tier: u32,
        ports: Vec<PortId>,
        config: BufferConfig,
        balancing: Balancing,
        salt: u32,
    ) -> Switch {
        let buffer = Buffer::new(config, ports.len() as u32);
        let voq = if buffer.is_voq() { Voq::new(ports.len()) } else { Voq::default() };
        let chooser = Chooser::new(salt, balancing);
        Switch { node, tier, ports: ports.into(), buffer, chooser, voq }
    }

    /// Adds a packet to the queue of an output port, which the caller numbers as the switch does.
    #[inline]
    pub fn push_voq(&mut self, output: usize, input: usize, class: u8, id: PacketId, packets: &mut Packets) {
        self.voq.push(output, input, class, id, packets);
    }

    /// Takes the next packet of an output port's class.
    #[inline]
    pub fn pop_voq(&mut self, output: usize, class: u8, packets: &mut Packets) -> Option<PacketId> {
        self.voq.pop(output, class, packets)
    }

    /// Do packets of these classes wait that came by this input port and leave by this output port?
    pub fn voq_waits(&self, output: usize, input: usize, classes: u8) -> bool {
        let waits = |class: &usize| self.voq.waiting[output * CLASSES + class] & 1 << input != 0;
        (0..CLASSES).filter(|class| classes & 1 << class != 0).any(|class| waits(&class))
    }
}

impl Voq {
    fn new(ports: usize) -> Voq {
        assert!(
            ports <= VOQ_PORTS_MAX,
            "a switch with virtual output queues has {VOQ_PORTS_MAX} ports at most"
        );
        Voq {
            queues: vec![Fifo::default(); ports * ports * CLASSES],
            waiting: vec![0; ports * CLASSES],
            turns: vec![0; ports * CLASSES],
            ports,
        }
    }

    fn push(&mut self, output: usize, input: usize, class: u8, id: PacketId, packets: &mut Packets) {
        let place = output * CLASSES + usize::from(class);
        packets.push(&mut self.queues[place * self.ports + input], id);
        self.waiting[place] |= 1 << input;
    }

    /// Input ports have turns of one packet.
    fn pop(&mut self, output: usize, class: u8, packets: &mut Packets) -> Option<PacketId> {
        let place = output * CLASSES + usize::from(class);
        let waiting = self.waiting[place];
        if waiting == 0 {
            return None;
        }
        let turn = u32::from(self.turns[place]);
        let input = (turn + waiting.rotate_right(turn).trailing_zeros()) % u64::BITS;
        self.turns[place] = ((input + 1) % u64::BITS) as u8;
        let queue = &mut self.queues[place * self.ports + input as usize];
        let id = packets.pop(queue);
        if queue.is_empty() {
            self.waiting[place] &= !(1 << input);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::packet::Packet;

    #[test]
    fn input_ports_have_turns_of_one_packet() {
        let (mut voq, mut packets) = (Voq::new(6), Packets::default());
        let inputs = [1, 1, 1, 4, 4, 5];
        for (number, input) in inputs.into_iter().enumerate() {
            let id = packets.add(Packet::new(number as u16, 3, 100, 0));
            voq.push(2, input, 3, id, &mut packets);
        }
        assert_eq!(voq.pop(2, 0, &mut packets), None);
        assert_eq!(voq.pop(1, 3, &mut packets), None);
        let mut order = Vec::new();
        while let Some(id) = voq.pop(2, 3, &mut packets) {
            order.push(packets[id].destination);
        }
        assert_eq!(order, [0, 3, 5, 1, 4, 2]);
    }
}
