//! One side of a connection: its queue pair, and what its program asks for.

use remora_nic::Service;
use remora_wire::{Psn, Qpn};

use super::ConnectError;
use super::limits::MAX_PRIVATE;
use super::message::{Hello, IRN, LASTING, LinkOffer, PRISM, SOURCE_PORT, STROM};
use super::uplink::Uplink;

/// The queue pair of one side and its attributes, as passed by its program.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// The port of the queue pair's NIC.
    pub uplink: &'a dyn Uplink,
    /// Service of the queue pair: RC, UC, UD or XRC.
    pub service: Service,
    /// Q_Key of a datagram queue pair; 0 for other services.
    pub qkey: u32,
    /// Number of the queue pair.
    pub qp: Qpn,
    /// First PSN that the queue pair sends.
    pub psn: Psn,
    /// Largest path MTU in bytes that this side wants.
    pub path_mtu: u32,
    /// Number of READs and atomics that this side wants to have outstanding.
    pub initiator_depth: u8,
    /// Number of READs and atomics of the peer that this side can handle at a time.
    pub responder_resources: u8,
    /// Request for IRN, which is used if the peer requests it as well; otherwise both sides go back N.
    pub irn: bool,
    /// Request for PRISM, which is used if the peer requests it as well.
    pub prism: bool,
    /// Request for StRoM, which is used if the peer requests it as well.
    pub strom: bool,
    /// Request to keep the TCP connection of the set-up, which is kept if the peer requests it as well.
    pub lasting: bool,
    /// Up to [`MAX_PRIVATE`] bytes for the program on the other side.
    pub private_data: &'a [u8],
}

impl Side<'_> {
    pub(super) fn hello(&self, link: LinkOffer) -> Result<Hello, ConnectError> {
        if self.private_data.len() > MAX_PRIVATE {
            return Err(ConnectError::PrivateTooLong(self.private_data.len()));
        }
        let facts = self.uplink.facts();
        Ok(Hello {
            kind: facts.kind,
            link,
            path_mtu: self.path_mtu.min(facts.path_mtu),
            service: self.service,
            qkey: self.qkey,
            qp: self.qp,
            psn: self.psn,
            initiator_depth: self.initiator_depth,
            responder_resources: self.responder_resources,
            endpoint: facts.endpoint,
            engine: self.uplink.id(),
            extensions: if self.irn { IRN } else { 0 }
                | if self.prism { PRISM } else { 0 }
                | if self.strom { STROM } else { 0 }
                | if self.lasting { LASTING } else { 0 }
                | if facts.source == facts.endpoint { SOURCE_PORT } else { 0 },
            irn_reach: if self.irn { self.uplink.irn_reach() } else { 0 },
            private_data: self.private_data.to_vec(),
        })
    }
}
