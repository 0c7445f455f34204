//! Switches: ports, buffer and load balancing.

use super::buffer::{Buffer, BufferConfig};
use super::port_id::PortId;
use super::route::{Balancing, Chooser};
use super::voq::Voq;

pub(crate) struct Switch {
    /// Number of the node in the topology.
    pub node: u32,
    /// Number of switches between this one and the nearest host.
    pub tier: u32,
    /// Ports by which the switch sends, in the order of its links.
    pub ports: Box<[PortId]>,
    /// Packet buffer, which decides about admission and PFC.
    pub buffer: Buffer,
    /// Choice among equal paths.
    pub chooser: Chooser,
    /// Virtual output queues; empty for other kinds of buffers.
    pub voq: Voq,
}

impl Switch {
    /// Returns a switch with empty queues.
    pub(crate) fn new(
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
}
