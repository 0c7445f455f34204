//! The path of a connection's packets, and the checks that identify the peer's frames.

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

/// The path to an address: the headers before the BTH, and the state that seals frames.
pub(crate) struct AddressPath {
    pub peer: Peer,
    pub route: Route,
    pub class: Class,
    /// The headers before the BTH; `None` until the first frame is sent.
    pub headers: Option<Headers>,
    /// ICRC state of sent frames.
    pub sending: Flow,
}

impl AddressPath {
    pub(crate) fn new(address: &AddressVector) -> AddressPath {
        let AddressVector { peer, route, class, .. } = *address;
        AddressPath { peer, route, class, headers: None, sending: Flow::new(route.source, route.destination) }
    }
}

/// The traffic classes of packets without data; `None` uses the class of the queue pair.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AnswerClasses {
    pub ack: Option<Class>,
    pub cnp: Option<Class>,
}

/// The path to the peer of a connection.
pub(crate) struct PeerPath {
    pub address_path: AddressPath,
    pub remote: Qpn,
    /// Traffic class of responses without data; `cnp_class` is that of CNPs.
    pub ack_class: Class,
    pub cnp_class: Class,
    /// Upper three bits of the service's opcodes: 0 for RC, or those of XRC. Not used by UC.
    pub service: u8,
    /// UDP source port of the peer's frames, compared in the bits of `port_mask` (all or none).
    port: u16,
    port_mask: u16,
    /// QPN range of the link from which the peer's frames arrive; `None` if they arrive by no link.
    link: Option<u8>,
    /// ICRC state of the peer's frames.
    pub receiving: Flow,
    /// The peer's and the local UDP port for which `receiving` was created.
    pub receiving_ports: (u16, u16),
    /// IPv4 identifications of the peer, for ports that do not provide them.
    identifications: Identifications,
}

impl PeerPath {
    pub(crate) fn new(address: &AddressVector, remote: Qpn, service: u8, classes: AnswerClasses) -> PeerPath {
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

    /// Returns the traffic class of a response.
    #[inline(always)]
    pub(crate) fn reply_class(&self, kind: &ReplyKind) -> Class {
        if matches!(kind, ReplyKind::Acknowledge { .. }) { self.ack_class } else { self.address_path.class }
    }

    /// Returns true if the opcode belongs to the service of the connection, or is that of a CNP.
    #[inline]
    pub(crate) fn carries(&self, opcode: Opcode) -> bool {
        let service = opcode.0 & service_bits::SERVICE;
        service == self.service || opcode == Opcode::CNP
    }

    /// Returns true if the frame comes from the peer: from its address, its UDP port if known, and its link
    /// if it has one.
    #[inline]
    pub(crate) fn is_from(&self, arrived: &Arrived<'_>) -> bool {
        self.address_path.route.destination.address.is(&arrived.source.address)
            && (arrived.source.udp_port ^ self.port) & self.port_mask == 0
            && arrived.neighbour() == self.link
    }

    /// Returns true if the ICRC is correct. `own_port` is the destination port of packets for which the port
    /// does not provide one.
    #[inline(never)]
    pub(crate) fn intact(
        &mut self,
        arrived: &Arrived<'_>,
        own_port: u16,
        spans: &mut IdSpans,
        now: Instant,
    ) -> bool {
        let Some(split) = arrived.transport.len().checked_sub(icrc::LEN) else { return false };
        let (covered, trailer) = arrived.transport.split_at(split);
        let Some(received) = icrc::read(trailer) else { return false };
        // The peer may send to another port than the local source port (RoCE: 4791 and any port).
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

    /// Returns true if a connection with this condition accepts a frame from the peer with this UDP source
    /// port and origin.
    fn takes(accepts: PeerFrames, udp_port: u16, origin: Option<Origin>) -> bool {
        let route = Route::new(end(Ipv4Addr::new(10, 0, 0, 1), 4791), end(PEER, 4791));
        let address = AddressVector { accepts, ..AddressVector::new(Peer(3), route) };
        let remote = Qpn::new(9 << Qpn::RANGE_SHIFT | 77);
        let path = PeerPath::new(&address, remote, 0, AnswerClasses { ack: None, cnp: None });
        let accepted = |source| {
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
        assert!(!accepted(end(Ipv4Addr::new(10, 0, 0, 3), udp_port)), "another host's");
        accepted(end(PEER, udp_port))
    }

    /// Regression: a connection took frames from any UDP port of the peer's address, so any user there
    /// could send into it.
    #[test]
    fn a_peer_whose_port_is_known_is_not_spoken_for_by_another_port_of_its_host() {
        assert!(takes(PeerFrames::Port(4791), 4791, None));
        assert!(takes(PeerFrames::Port(4791), 4791, Some(Origin::Mac([2; 6]))));
        for other in [4790, 4792, 0, 1 << 15] {
            assert!(!takes(PeerFrames::Port(4791), other, None), "port {other}");
            assert!(takes(PeerFrames::AnyPort, other, None), "a stranger's port is its own choice");
        }
    }

    /// Regression: a guest slowed another guest's connection to a tenth, because frames by its own link
    /// were accepted by the address of the host.
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
