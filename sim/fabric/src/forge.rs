//! Hand-made frames, as a hostile or broken peer might send them.

use remora_wire::frame::{Address, Endpoint, Route, Start};
use remora_wire::icrc::{self, Flow};
use remora_wire::{Extensions, Opcode, Packet, Psn, Qpn, bth};

use crate::program::QueuePair;
use crate::world::World;

/// Makes frames that look as if one node's queue pair had sent them to another's.
#[derive(Copy, Clone, Debug)]
pub struct Forge {
    route: Route,
    start: Start,
    from: usize,
    to: usize,
    /// The queue pair that is to get them.
    pub victim: Qpn,
}

impl Forge {
    /// Frames from node `from` to `victim`.
    pub fn new(world: &World, from: usize, victim: QueuePair) -> Forge {
        let route = world.route(from, victim.node);
        Forge { route, start: world.start(), from, to: victim.node, victim: victim.number }
    }

    /// The same frames to all members of a multicast group.
    pub fn to_group(self, group: Address) -> Forge {
        let destination = Endpoint { address: group, ..self.route.destination };
        let route = Route::new(self.route.source, destination);
        Forge { route, victim: Qpn::new(remora_nic::MULTICAST_QPN), ..self }
    }

    /// The base header of a packet to the victim.
    pub fn bth(&self, opcode: Opcode, psn: u32) -> bth::Repr {
        bth::Repr::new(opcode, self.victim, Psn::new(psn))
    }

    /// A whole frame around these parts, its ICRC right.
    pub fn frame(&self, bth: bth::Repr, ext: Extensions, payload: &[u8]) -> Vec<u8> {
        let packet = Packet::new(bth, ext, payload);
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes);
        self.wrap(bytes)
    }

    /// A whole frame around bytes from the BTH to where the ICRC goes; its ICRC right.
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

    /// Makes a frame arrive.
    pub fn send(&self, world: &mut World, frame: &[u8]) {
        world.inject(self.from, self.to, frame);
    }
}

/// What a frame carries behind the headers below the BTH.
pub fn transport(start: Start, frame: &[u8]) -> Option<Packet<'_>> {
    let ip = if start == Start::Ethernet { remora_wire::ethernet::LEN } else { 0 };
    let is_ipv4 = start == Start::Bth || frame.get(ip)? >> 4 == 4;
    Packet::parse(frame.get(start.overhead(is_ipv4)..)?).ok()
}
