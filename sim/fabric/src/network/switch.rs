//! A switch: its ports, its buffer and its choice among paths.

use super::buffer::{Buffer, BufferConfig};
use super::port_id::PortId;
use super::route::{Balancing, Chooser};
use super::voq::Voq;

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
    /// Its queues, if the buffer is one for each input; else empty.
    pub voq: Voq,
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
}
