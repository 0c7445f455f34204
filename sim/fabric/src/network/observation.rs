//! Observations of events at ports.

use super::packet::{Flags, Packet, PacketId};
use super::pause_frame::PauseFrame;
use super::port::CLASSES;
use super::port_id::PortId;
use crate::engine::Picos;

/// The kind of an observed event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The last bit of the packet has arrived at the node.
    Arrived,
    /// The packet was added to the queue of the port.
    Enqueued,
    /// The first bit of the packet leaves by the port.
    Departed,
    /// The packet was dropped before it left by the port.
    Dropped,
}

/// An event at an observed port.
#[derive(Copy, Clone, Debug)]
pub struct Observation {
    /// Time of the event.
    pub at: Picos,
    /// Port of the node at which the event happened: the direction in which this node sends on the link.
    pub port: PortId,
    /// Kind of the event.
    pub event: Event,
    /// Descriptor of the packet at that time. A pause frame has its contents in `hash`.
    pub packet: Packet,
    /// Id of the packet, by which callers index their own tables; `None` for a pause frame.
    pub id: Option<PacketId>,
    /// Bytes queued for the port after this event, by class.
    pub waiting: [u32; CLASSES],
}

impl Observation {
    /// Returns the contents of a pause frame, or `None` for any other packet.
    pub fn pause(&self) -> Option<PauseFrame> {
        self.packet.flags.has(Flags::PAUSE).then(|| PauseFrame::unpack(self.packet.hash))
    }
}
