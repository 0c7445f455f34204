//! Forged frames, as a hostile or broken peer might send them.

use remora_wire::frame::{Address, Endpoint, Route, Start};
use remora_wire::icrc::{self, Flow};
use remora_wire::{Extensions, Opcode, Packet, Psn, Qpn, bth};

use crate::program::QueuePair;
use crate::world::World;

/// A builder of frames that look as if a queue pair of one node had sent them to a queue pair of another.
#[derive(Copy, Clone, Debug)]
pub struct Forge {
    route: Route,
    start: Start,
    sender: usize,
    receiver: usize,
    /// Queue pair that receives the frames.
    pub victim: Qpn,
}

impl Forge {
    /// Creates a builder of frames from node `sender` to `victim`.
    pub fn new(world: &World, sender: usize, victim: QueuePair) -> Forge {
        let route = world.route(sender, victim.node);
        Forge { route, start: world.start(), sender, receiver: victim.node, victim: victim.number }
    }

    /// Sends the frames to all members of a multicast group instead.
    pub fn to_group(self, group: Address) -> Forge {
        let destination = Endpoint { address: group, ..self.route.destination };
        let route = Route::new(self.route.source, destination);
        Forge { route, victim: Qpn::new(remora_nic::MULTICAST_QPN), ..self }
    }

    /// Returns the BTH of a packet to the victim.
    pub fn bth(&self, opcode: Opcode, psn: u32) -> bth::Repr {
        bth::Repr::new(opcode, self.victim, Psn::new(psn))
    }

    /// Builds a frame from these parts, with a correct ICRC.
    pub fn frame(&self, bth: bth::Repr, ext: Extensions, payload: &[u8]) -> Vec<u8> {
        let packet = Packet::new(bth, ext, payload);
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes);
        self.wrap(bytes)
    }

    /// Builds a frame around the bytes from the BTH to the ICRC, which is overwritten by the correct one.
    pub fn wrap(&self, mut transport: Vec<u8>) -> Vec<u8> {
        let Some(covered) = transport.len().checked_sub(icrc::LEN) else { return transport };
        let seal = Flow::new(self.route.source, self.route.destination).seal(0, &transport[..covered]);
        icrc::write(&mut transport[covered..], seal);
        let below = self.start.overhead(self.route.source.address.is_ipv4());
        let mut frame = vec![0; below];
        self.route.emit(self.start, 0, transport.len() as u16, &mut frame);
        frame.extend_from_slice(&transport);
        frame
    }

    /// Delivers a frame to the victim's node.
    pub fn send(&self, world: &mut World, frame: &[u8]) {
        world.inject(self.sender, self.receiver, frame);
    }
}

/// Parses the packet in a frame, from the BTH on. Returns `None` if the frame is malformed.
pub fn transport(start: Start, frame: &[u8]) -> Option<Packet<'_>> {
    let ip = if start == Start::Ethernet { remora_wire::ethernet::LEN } else { 0 };
    let is_ipv4 = start == Start::Bth || frame.get(ip)? >> 4 == 4;
    Packet::parse(frame.get(start.overhead(is_ipv4)..)?).ok()
}
