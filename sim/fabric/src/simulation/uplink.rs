//! A host's ports as its NIC sees them.

use remora_wire::frame::{Egress, Lease, Peer, Start};
use remora_wire::{Opcode, Qpn, ipv4, udp};

use super::SimulationConfig;
use super::flow::Fars;
use super::frames::Frames;
use crate::network::{Flags, Network, Packet, PortId};

/// Where the BTH begins.
const BTH: usize = ipv4::LEN + udp::LEN;

/// The egress of one host.
pub struct Uplink<'a> {
    pub network: &'a mut Network,
    pub frames: &'a mut Frames,
    pub fars: &'a Fars,
    pub config: &'a SimulationConfig,
    pub host: u32,
    /// The frame that is lent: to which host, by which port, and its bytes.
    pub lent: Option<(u32, PortId, usize)>,
}

impl Uplink<'_> {
    /// The port for a peer: hosts with several spread their peers.
    #[inline]
    fn port(&self, to: u32) -> PortId {
        let uplinks = self.network.uplinks(self.host);
        if uplinks.len() == 1 { uplinks[0] } else { uplinks[to as usize % uplinks.len()] }
    }
}

impl Egress for Uplink<'_> {
    #[inline]
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }

    #[inline]
    fn seals(&self, _: Peer) -> bool {
        self.config.icrc
    }

    #[inline]
    fn lend(&mut self, peer: Peer, len: usize) -> Option<Lease<'_>> {
        let port = self.port(peer.0);
        if !self.network.can_send(port, self.config.data_class) {
            return None;
        }
        self.lent = Some((peer.0, port, len));
        Some(Lease { bytes: self.frames.lend(len), ip_id: 0 })
    }

    #[inline]
    fn commit(&mut self) {
        let Some((to, port, len)) = self.lent.take() else { return };
        let frame = self.frames.written(len);
        let destination = Qpn::new(u32::from_be_bytes([0, frame[BTH + 5], frame[BTH + 6], frame[BTH + 7]]));
        let far = self.fars.get(to, destination);
        let control = [Opcode::RC_ACKNOWLEDGE, Opcode::CNP].contains(&Opcode(frame[BTH]));
        let class = if control { self.config.ack_class } else { far.class };
        let node = self.network.node_of(to) as u16;
        let mut packet = Packet::new(node, class, self.config.charging.charge(frame), far.hash);
        packet.len = len as u16;
        packet.flags = Flags::NONE
            .with(if frame[1] & 3 != 0 { Flags::ECN_CAPABLE } else { Flags::NONE })
            .with(if far.whole { Flags::WHOLE } else { Flags::NONE })
            .with(if far.is_path { Flags::PATH } else { Flags::NONE });
        let id = self.network.send(port, packet);
        self.frames.keep(id, far.whole, len);
    }

    #[inline]
    fn flush(&mut self) {}
}
