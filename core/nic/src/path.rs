//! Where packets go, and what a queue pair knows of the peer that it is connected to.

use remora_transport::Instant;
use remora_transport::rc::ReplyKind;
use remora_wire::frame::{Class, Endpoint, Peer, Route};
use remora_wire::icrc::{Flow, IdSpans};
use remora_wire::{Opcode, Qpn, icrc};

use crate::arrived::Arrived;
use crate::attributes::{AddressVector, PeerFrames};
use crate::headers::Headers;
use crate::identification::Identifications;
use crate::service_bits;

/// The path to an address: the headers before the BTH, and the flow that seals frames.
pub(crate) struct AddressPath {
    pub peer: Peer,
    pub route: Route,
    pub class: Class,
    /// The headers before the BTH. None: no frame has left yet.
    pub headers: Option<Headers>,
    /// The ICRC of frames that we send.
    pub sending: Flow,
}

impl AddressPath {
    pub fn new(address: &AddressVector) -> AddressPath {
        let AddressVector { peer, route, class, .. } = *address;
        AddressPath { peer, route, class, headers: None, sending: Flow::new(route.source, route.destination) }
    }
}

/// The traffic classes of packets without data, where they are not those of their queue pairs.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AnswerClasses {
    pub ack: Option<Class>,
    pub cnp: Option<Class>,
}

/// The path to the peer of a connection.
pub(crate) struct PeerPath {
    pub address_path: AddressPath,
    pub remote: Qpn,
    /// The traffic classes of responses without data, and of CNPs.
    pub ack_class: Class,
    pub cnp_class: Class,
    /// The upper three bits of its op-codes: those of RC, 0, or of XRC; UC's do not ask.
    pub service: u8,
    /// The UDP port that the peer's frames come from, in the bits of `port_mask`: all of them, or none.
    port: u16,
    port_mask: u16,
    /// The QPN range of the program whose link the peer's frames come by. `None`: they come by no link.
    link: Option<u8>,
    /// The ICRC of frames that the peer sends.
    pub receiving: Flow,
    /// The peer's and our own UDP port that `receiving` was made for.
    pub receiving_ports: (u16, u16),
    /// The peer's IPv4 identifications, if the port does not show them.
    identifications: Identifications,
}

impl PeerPath {
    pub fn new(address: &AddressVector, remote: Qpn, service: u8, classes: AnswerClasses) -> PeerPath {
        let AddressVector { ref route, class, accepts, .. } = *address;
        let (port, port_mask) = if let PeerFrames::Port(port) = accepts { (port, u16::MAX) } else { (0, 0) };
        PeerPath {
            address_path: AddressPath::new(address),
            remote,
            ack_class: classes.ack.unwrap_or(class),
            cnp_class: classes.cnp.unwrap_or(class),
            service,
            port,
            port_mask,
            link: (accepts == PeerFrames::Link).then(|| remote.range()),
            receiving: Flow::new(route.destination, route.source),
            receiving_ports: (route.destination.udp_port, route.source.udp_port),
            identifications: Identifications::Unseen,
        }
    }

    /// The traffic class of a response.
    #[inline(always)]
    pub fn reply_class(&self, kind: &ReplyKind) -> Class {
        if matches!(kind, ReplyKind::Acknowledge { .. }) { self.ack_class } else { self.address_path.class }
    }

    /// Does this op-code belong to its service, or to all services?
    #[inline]
    pub fn carries(&self, opcode: Opcode) -> bool {
        let service = opcode.0 & service_bits::SERVICE;
        service == self.service || opcode == Opcode::CNP || service == Opcode::BUNDLE.0
    }

    /// Does the frame come from the peer: from its address, its UDP port if that is known, and by its link if
    /// it has one?
    #[inline]
    pub fn is_from(&self, arrived: &Arrived<'_>) -> bool {
        self.address_path.route.destination.address.is(&arrived.source.address)
            && (arrived.source.udp_port ^ self.port) & self.port_mask == 0
            && arrived.neighbour() == self.link
    }

    /// Is the ICRC right? `own_port`: the UDP port that packets are for which show none.
    #[inline(never)]
    pub fn intact(
        &mut self,
        arrived: &Arrived<'_>,
        own_port: u16,
        spans: &mut IdSpans,
        now: Instant,
    ) -> bool {
        let Some(split) = arrived.transport.len().checked_sub(icrc::LEN) else { return false };
        let (covered, trailer) = arrived.transport.split_at(split);
        let Some(received) = icrc::read(trailer) else { return false };
        // The peer may send to another port than the one that we send from (RoCE: 4791 and any).
        let ports = (arrived.source.udp_port, arrived.destination_port.unwrap_or(own_port));
        if self.receiving_ports != ports {
            let here = Endpoint { udp_port: ports.1, ..self.address_path.route.source };
            self.receiving = Flow::new(arrived.source, here);
            self.receiving_ports = ports;
            self.identifications = Identifications::Unseen;
        }
        match arrived.ip_id {
            Some(id) => self.receiving.accepts(id, covered, received),
            None => self.identifications.admit(self.receiving.syndrome(covered, received), spans, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrived::strip;
    use remora_wire::frame::{Ingress, Origin, Start};
    use std::net::Ipv4Addr;

    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn end(ip: Ipv4Addr, udp_port: u16) -> Endpoint {
        Endpoint { address: ip.into(), udp_port }
    }

    /// Does a connection that accepts these frames take one from this UDP port of the peer, which came so?
    fn takes(accepts: PeerFrames, udp_port: u16, origin: Option<Origin>) -> bool {
        let route = Route::new(end(Ipv4Addr::new(10, 0, 0, 1), 4791), end(PEER, 4791));
        let address = AddressVector { accepts, ..AddressVector::new(Peer(3), route) };
        let remote = Qpn::new(9 << Qpn::RANGE_SHIFT | 77);
        let path = PeerPath::new(&address, remote, 0, AnswerClasses { ack: None, cnp: None });
        let from = |source| {
            let frame = Ingress {
                bytes: &[0; 16],
                start: Start::Bth,
                sealed: true,
                source,
                destination: None,
                origin,
            };
            path.is_from(&strip(&frame).unwrap())
        };
        assert!(!from(end(Ipv4Addr::new(10, 0, 0, 3), udp_port)), "another host's");
        from(end(PEER, udp_port))
    }

    #[test]
    fn a_peer_whose_port_is_known_is_not_spoken_for_by_another_port_of_its_host() {
        assert!(takes(PeerFrames::Port(4791), 4791, None));
        assert!(takes(PeerFrames::Port(4791), 4791, Some(Origin::Mac([2; 6]))));
        for other in [4790, 4792, 0, 1 << 15] {
            assert!(!takes(PeerFrames::Port(4791), other, None), "port {other}");
            assert!(takes(PeerFrames::AnyPort, other, None), "a stranger's port is its own choice");
        }
    }

    #[test]
    fn a_connection_by_a_link_takes_frames_of_that_link_alone_and_others_take_none_of_a_link() {
        let link = |range| Some(Origin::Neighbour(range));
        assert!(takes(PeerFrames::Link, 4791, link(9)));
        assert!(!takes(PeerFrames::Link, 4791, link(8)), "another guest's link");
        assert!(!takes(PeerFrames::Link, 4791, None), "a socket");
        for accepts in [PeerFrames::AnyPort, PeerFrames::Port(4791)] {
            assert!(!takes(accepts, 4791, link(9)), "the path is not a link");
            assert!(takes(accepts, 4791, Some(Origin::Link(Peer(1)))), "all frames of shared memory");
        }
    }
}
