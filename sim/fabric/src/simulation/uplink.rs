//! The ports of a host as the egress of its NIC.

use remora_wire::frame::{Class, Egress, Lease, Peer, Start};
use remora_wire::{Qpn, ipv4, udp};

use super::SimulationConfig;
use super::far_end::FarEnds;
use super::peer::PeerHost;
use crate::ecn;
use crate::frames::Frames;
use crate::network::{Flags, Network, Packet, PortId};

/// Offset of the BTH in a frame.
const BTH: usize = ipv4::LEN + udp::LEN;

/// Size of the longest frame without data: an acknowledgement of IRN, or a READ request.
const CONTROL: usize = 80;

/// The egress of a host.
pub(crate) struct Uplink<'a> {
    pub network: &'a mut Network,
    pub frames: &'a mut Frames,
    pub far_ends: &'a FarEnds,
    pub config: &'a SimulationConfig,
    pub host: u32,
    /// Frame that is lent to the NIC.
    pub lent: Option<Lent>,
}

/// A frame that the NIC is writing.
pub(crate) struct Lent {
    receiver: u32,
    port: PortId,
    class: Class,
    len: usize,
}

impl Uplink<'_> {
    /// Returns the number of the port by which packets to a peer leave, as chosen by the routes and the
    /// peer's hash.
    #[inline]
    fn number(&self, peer: Peer) -> usize {
        if self.network.uplinks(self.host).len() == 1 {
            return 0;
        }
        let PeerHost { host, hash } = PeerHost::of(peer);
        self.network.uplink_to(self.host, host, hash)
    }

    /// Returns true if all ports of the host are sending. Then an event is scheduled for the time at which
    /// each can send again.
    #[inline]
    pub(crate) fn is_busy(&mut self) -> bool {
        let now = self.network.now();
        let ports = self.network.uplinks(self.host).len();
        let busy = |port: &PortId| self.network.port(*port).busy_until > now;
        if !self.network.uplinks(self.host).iter().all(busy) {
            return false;
        }
        for number in 0..ports {
            let port = self.network.uplinks(self.host)[number];
            self.network.expect_free(port);
        }
        true
    }
}

/// Schedules an event for each port that queue pairs wait for, at the time at which it can send again.
/// `awaited` is a mask of the transmit queues that they wait for.
#[cold]
pub(crate) fn expect_awaited(network: &mut Network, host: u32, awaited: u64) {
    for number in 0..network.uplinks(host).len() {
        if awaited >> (number * Class::COUNT) & u64::from(u8::MAX) != 0 {
            let port = network.uplinks(host)[number];
            network.expect_free(port);
        }
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
    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        let port = self.network.uplinks(self.host)[self.number(peer)];
        if !self.network.can_send(port, class.number()) {
            return None;
        }
        self.lent = Some(Lent { receiver: PeerHost::of(peer).host, port, class, len });
        Some(Lease { bytes: self.frames.lend(len), ip_id: 0 })
    }

    #[inline(always)]
    fn has_space_per_queue(&self) -> bool {
        true
    }

    fn queue(&self, peer: Peer, class: Class) -> u8 {
        (self.number(peer) * Class::COUNT) as u8 + class.number()
    }

    fn stopped(&self) -> u64 {
        let uplinks = self.network.uplinks(self.host);
        uplinks.iter().enumerate().fold(0, |stopped, (number, port)| {
            let classes = u64::from(self.network.stopped(*port));
            stopped | classes << (number * Class::COUNT)
        })
    }

    #[inline]
    fn commit(&mut self) {
        let Some(Lent { receiver, port, class, len }) = self.lent.take() else { return };
        let frame = self.frames.written(len);
        let destination = Qpn::new(u32::from_be_bytes([0, frame[BTH + 5], frame[BTH + 6], frame[BTH + 7]]));
        let far = self.far_ends.get(receiver, destination);
        let node = self.network.node_of(receiver) as u16;
        let extra = if len > CONTROL { self.config.extra_header } else { 0 };
        let charge = self.config.charging.charge(frame, self.config.connection.irn.is_some()) + extra;
        let mut packet = Packet::new(node, class.number(), charge, far.hash);
        packet.len = len as u16;
        packet.flags = Flags::NONE
            .with(if ecn::field(Start::Ip, frame) != 0 { Flags::ECN_CAPABLE } else { Flags::NONE })
            .with(if far.whole { Flags::WHOLE } else { Flags::NONE })
            .with(if far.is_path { Flags::PATH } else { Flags::NONE });
        let id = self.network.send(port, packet);
        self.frames.keep(id, far.whole, len);
    }

    #[inline]
    fn flush(&mut self) {}
}
