//! The agreement of two sides that can be connected.

use remora_nic::Service;
use remora_port::Peer;
use serde::{Deserialize, Serialize};

use super::ConnectError;
use super::message::{Hello, IRN, LASTING, Message, PRISM, SOURCE_PORT, STROM};
use crate::port_kind::PortKind;

crate::sent_as! {
    peer: Peer as u32, |peer| peer.0, |number| Some(Peer(number));
    hello: Hello as Vec<u8>, |hello| Message::Request(hello.clone()).emit(), |bytes| {
        match Message::parse(&bytes) {
            Ok(Message::Request(hello)) => Some(hello),
            _ => None,
        }
    };
}

/// The agreement of both sides, from the point of view of one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The port's number of the peer. This queue pair is counted as a user of the peer.
    #[serde(with = "peer")]
    pub peer: Peer,
    /// The first message of the other side.
    #[serde(with = "hello")]
    pub remote: Hello,
    /// Path MTU in bytes: the smaller of both sides' values.
    pub path_mtu: u32,
    /// Number of READs and atomics that this side may have outstanding.
    pub max_rd_atomic: u8,
    /// Extensions that both sides have.
    pub extensions: u64,
    /// Present if IRN is used: the number of packets that the other side can track ahead of the first
    /// missing one.
    pub irn: Option<u32>,
    /// True if PRISM is used.
    pub prism: bool,
    /// True if StRoM is used.
    pub strom: bool,
    /// True if both sides keep the TCP connection of the set-up as long as their queue pairs.
    pub lasting: bool,
}

impl Agreement {
    /// Returns the UDP port that the other side's frames come from; `None` if they may come from any port,
    /// or over shared memory.
    pub fn source_port(&self) -> Option<u16> {
        let known = self.remote.kind != PortKind::Shm && self.remote.extensions & SOURCE_PORT != 0;
        known.then_some(self.remote.endpoint.udp_port)
    }

    pub(super) fn new(peer: Peer, local: &Hello, remote: Hello) -> Agreement {
        let extensions = local.extensions & remote.extensions;
        Agreement {
            peer,
            path_mtu: local.path_mtu.min(remote.path_mtu),
            max_rd_atomic: local.initiator_depth.min(remote.responder_resources),
            extensions,
            irn: (extensions & IRN != 0).then_some(remote.irn_reach),
            prism: extensions & PRISM != 0,
            strom: extensions & STROM != 0,
            lasting: extensions & LASTING != 0,
            remote,
        }
    }
}

/// Checks that these two queue pairs can be connected.
pub(super) fn meet(local: &Hello, remote: &Hello) -> Result<(), ConnectError> {
    if !remote.kind.reaches(local.kind) {
        return Err(ConnectError::OtherKind { ours: local.kind, theirs: remote.kind });
    }
    let wanted = match local.service {
        Service::XrcInitiator => Service::XrcTarget,
        Service::XrcTarget => Service::XrcInitiator,
        same => same,
    };
    if remote.service == wanted {
        return Ok(());
    }
    Err(ConnectError::OtherService { ours: local.service, theirs: remote.service })
}
