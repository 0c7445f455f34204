//! The egress of a node: its links as the NIC sees them.

use remora_wire::frame::{Class, Egress, Endpoint, Lease, Origin, Peer, Start};

use super::links::Links;

/// The egress of a node.
pub(super) struct Outlet<'a> {
    links: &'a mut Links,
    node: usize,
    /// Receiver and length of the frame that is lent to the NIC.
    lent: Option<(usize, usize)>,
    /// Number of frames since the last flush: the position in a train, which becomes the IPv4 identification.
    train: u16,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(links: &'a mut Links, node: usize) -> Outlet<'a> {
        Outlet { links, node, lent: None, train: 0 }
    }
}

/// Largest number of frames in a train, as in the UDP port.
const TRAIN: u16 = 64;

impl Egress for Outlet<'_> {
    fn start(&self, _: Peer) -> Start {
        self.links.start
    }

    fn seals(&self, _: Peer) -> bool {
        true
    }

    fn lend(&mut self, peer: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        let receiver = peer.0 as usize;
        if !self.links.has_space(self.node, receiver) {
            return None;
        }
        self.lent = Some((receiver, len));
        Some(Lease { bytes: self.links.lend(len), ip_id: self.train })
    }

    fn peer_of(&mut self, destination: &Endpoint, _: Option<Origin>) -> Option<Peer> {
        let node = self.links.endpoints.iter().position(|endpoint| endpoint.address == destination.address);
        node.map(|node| Peer(node as u32))
    }

    fn has_space_per_peer(&self) -> bool {
        !self.links.has_shared_ports()
    }

    fn commit(&mut self) {
        let Some((receiver, len)) = self.lent.take() else { return };
        self.train = (self.train + 1) % TRAIN;
        self.links.depart(self.node, receiver, len);
    }

    fn flush(&mut self) {
        self.train = 0;
    }
}
