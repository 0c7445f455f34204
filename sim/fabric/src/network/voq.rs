//! Virtual output queues: a queue for each output port, class and input port.

use remora_memory::prefetch;

use super::packet::{Fifo, PacketId, Packets};
use super::port::CLASSES;

/// Largest number of ports of a switch with virtual output queues.
pub const VOQ_PORTS_MAX: usize = 64;

/// The queues of a switch. Outputs and inputs have the numbers of the switch's ports.
#[derive(Default)]
pub(crate) struct Voq {
    queues: Vec<Fifo>,
    /// Waiting inputs by output port and class.
    inputs: Vec<Inputs>,
    ports: usize,
}

/// The input ports that wait for an output port and class.
#[derive(Copy, Clone, Default)]
struct Inputs {
    /// Mask of the input ports that have packets.
    waiting: u64,
    /// Input port that is served next.
    turn: u8,
}

impl Inputs {
    /// Returns the next waiting input port, in turn.
    #[inline]
    fn next(self) -> Option<usize> {
        let turn = u32::from(self.turn);
        let input = (turn + self.waiting.rotate_right(turn).trailing_zeros()) % u64::BITS;
        (self.waiting != 0).then_some(input as usize)
    }
}

impl Voq {
    /// Creates empty queues between `ports` ports.
    ///
    /// # Panics
    /// Panics if there are more than [`VOQ_PORTS_MAX`] ports.
    pub(crate) fn new(ports: usize) -> Voq {
        assert!(
            ports <= VOQ_PORTS_MAX,
            "a switch with virtual output queues has {VOQ_PORTS_MAX} ports at most"
        );
        Voq {
            queues: vec![Fifo::default(); ports * ports * CLASSES],
            inputs: vec![Inputs::default(); ports * CLASSES],
            ports,
        }
    }

    /// Queues a packet that arrived by an input port.
    #[inline]
    pub(crate) fn push(
        &mut self,
        output: usize,
        input: usize,
        class: u8,
        id: PacketId,
        packets: &mut Packets,
    ) {
        let place = place(output, class);
        packets.push(&mut self.queues[place * self.ports + input], id);
        self.inputs[place].waiting |= 1 << input;
    }

    /// Removes the next packet for an output port and class. Input ports take turns, packet by packet.
    #[inline]
    pub(crate) fn pop(&mut self, output: usize, class: u8, packets: &mut Packets) -> Option<PacketId> {
        let place = place(output, class);
        let inputs = &mut self.inputs[place];
        let input = inputs.next()?;
        inputs.turn = ((input + 1) % VOQ_PORTS_MAX) as u8;
        let queue = &mut self.queues[place * self.ports + input];
        let id = packets.pop(queue);
        if queue.is_empty() {
            inputs.waiting &= !(1 << input);
        }
        id
    }

    /// Returns true if packets of these classes wait that arrived by this input port and leave by this output
    /// port.
    pub(crate) fn waits(&self, output: usize, input: usize, classes: u8) -> bool {
        let waits = |class: &u8| self.inputs[place(output, *class)].waiting & 1 << input != 0;
        (0..CLASSES as u8).filter(|class| classes & 1 << class != 0).any(|class| waits(&class))
    }

    /// Returns the queue from which [`pop`](Voq::pop) removes the next packet.
    #[inline]
    pub(crate) fn next(&self, output: usize, class: u8) -> Option<&Fifo> {
        let place = place(output, class);
        let input = self.inputs.get(place)?.next()?;
        self.queues.get(place * self.ports + input)
    }

    /// Prefetches the input ports that wait for an output port.
    #[inline]
    pub(crate) fn prefetch_inputs(&self, output: usize, class: u8) {
        if let Some(inputs) = self.inputs.get(place(output, class)) {
            prefetch(inputs);
        }
    }

    /// Prefetches the memory that [`push`](Voq::push) uses.
    #[inline]
    pub(crate) fn prefetch(&self, output: usize, input: usize, class: u8) {
        self.prefetch_inputs(output, class);
        if let Some(queue) = self.queues.get(place(output, class) * self.ports + input) {
            prefetch(queue);
        }
    }
}

/// Returns the index of an output port and class.
#[inline]
fn place(output: usize, class: u8) -> usize {
    output * CLASSES + usize::from(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::packet::Packet;

    #[test]
    fn input_ports_have_turns_of_one_packet() {
        let mut voq = Voq::new(6);
        let mut packets = Packets::default();
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
