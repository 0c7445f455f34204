//! Where packets go, and what a queue pair knows of the peer that it is connected to.

use remora_transport::Instant;
use remora_transport::rc::ReplyKind;
use remora_wire::frame::{Address, Class, Endpoint, Peer, Route};
use remora_wire::icrc::{Flow, IdSpans};
use remora_wire::{Opcode, Qpn, icrc};

use crate::arrived::Arrived;
use crate::attributes::AddressVector;
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
        let AddressVector { peer, route, class } = *address;
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
    /// The ICRC of frames that the peer sends.
    pub receiving: Flow,
    /// The peer's and our own UDP port that `receiving` was made for.
    pub receiving_ports: (u16, u16),
    /// The peer's IPv4 identifications, if the port does not show them.
    identifications: Identifications,
}

impl PeerPath {
    pub fn new(address: &AddressVector, remote: Qpn, service: u8, classes: AnswerClasses) -> PeerPath {
        let AddressVector { ref route, class, .. } = *address;
        PeerPath {
            address_path: AddressPath::new(address),
            remote,
            ack_class: classes.ack.unwrap_or(class),
            cnp_class: classes.cnp.unwrap_or(class),
            service,
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

    /// Is this the peer's address? Its UDP port may be any.
    #[inline]
    pub fn is_from(&self, address: &Address) -> bool {
        self.address_path.route.destination.address.is(address)
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
