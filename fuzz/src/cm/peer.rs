//! Messages of peers, most of them nearly valid.

use arbitrary::Arbitrary;
use remora_wire::mad::{
    Answered, CmMessage, LEN, RejectReason, ServiceId, SidrStatus, drep, dreq, header, ip_cm, mra, path, rej,
    rep, req, rtu, sidr_rep, sidr_req,
};
use remora_wire::{Psn, Qpn};

use super::names::{PORTS, address};

/// A message of a peer, with its choices.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Crafted {
    /// The node that sends the message.
    pub from: u8,
    /// The address of the manager that receives the message.
    pub to: u8,
    kind: u8,
    /// The index of one of the manager's last MADs, whose ID the message refers to.
    local: u8,
    /// The ID that the peer uses.
    remote: u8,
    guid: bool,
    qpn: u8,
    service: u8,
    /// Further choices, by message kind.
    more: u8,
}

/// Returns the service that a byte selects.
pub(super) fn service(which: u8) -> ServiceId {
    PORTS[usize::from(which) % PORTS.len()]
}

impl Crafted {
    /// Returns the whole MAD. `sent` are the manager's last MADs, from which the peer knows the IDs.
    pub fn mad(&self, sent: &[[u8; LEN]]) -> [u8; LEN] {
        let chosen = sent.get(usize::from(self.local) % sent.len().max(1));
        let word = |at: usize| {
            chosen.map_or(7, |mad| u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]))
        };
        let transaction =
            chosen.and_then(|mad| header::View::new(mad).ok()).map_or(1, |view| view.transaction_id());
        let ours = word(header::LEN);
        // A peer that answers uses its own ID in the chosen MAD, if that names one.
        let theirs = match word(header::LEN + 4) {
            id if id != 0 && self.remote & 0x80 != 0 => id,
            _ => 0x100 + u32::from(self.remote % 4),
        };
        let mut mad = [0; LEN];
        self.message(ours, theirs).emit(transaction, &mut mad);
        mad
    }

    fn message(&self, ours: u32, theirs: u32) -> CmMessage {
        let answered = match self.more % 3 {
            0 => Answered::Req,
            1 => Answered::Rep,
            _ => Answered::Other,
        };
        match self.kind % 10 {
            0 | 1 => CmMessage::Req(self.req(theirs)),
            2 => CmMessage::Rep(self.rep(ours, theirs)),
            3 => CmMessage::Rtu(rtu::Repr {
                local_comm_id: theirs,
                remote_comm_id: ours,
                private_data: [3; 224],
            }),
            4 => CmMessage::Mra(mra::Repr {
                local_comm_id: theirs,
                remote_comm_id: ours,
                answered,
                service_timeout: self.more >> 3,
                private_data: [0; 222],
            }),
            5 => {
                let guid = self.ca_guid().to_be_bytes();
                let reason = RejectReason(u16::from(self.more >> 2));
                CmMessage::Rej(rej::Repr::new(theirs, ours, answered, reason, &guid, &[4; 148]))
            }
            6 => CmMessage::Dreq(dreq::Repr {
                local_comm_id: theirs,
                remote_comm_id: ours,
                remote_qpn: Qpn::new(u32::from(self.qpn % 6)),
                private_data: [5; 220],
            }),
            7 => CmMessage::Drep(drep::Repr {
                local_comm_id: theirs,
                remote_comm_id: ours,
                private_data: [6; 224],
            }),
            8 => CmMessage::SidrReq(sidr_req::Repr {
                request_id: theirs,
                pkey: 0xffff,
                service_id: service(self.service),
                private_data: self.private(),
            }),
            _ => CmMessage::SidrRep(sidr_rep::Repr {
                request_id: ours,
                status: SidrStatus(self.more % 7),
                info_len: 0,
                qpn: Qpn::new(9),
                service_id: service(self.service),
                qkey: 1,
                info: [0; 72],
                private_data: [7; 136],
            }),
        }
    }

    fn ca_guid(&self) -> u64 {
        0x0200_0000_0000_1000 | u64::from(self.guid)
    }

    /// Returns private data that begins with the header of annex A11.
    fn private<const N: usize>(&self) -> [u8; N] {
        let mut data = [0; N];
        let addresses = ip_cm::Addresses::of(address(self.from), address(self.to % 2));
        ip_cm::Repr { port: u16::from(self.more), addresses }.emit(&mut data);
        data
    }

    fn req(&self, theirs: u32) -> req::Repr {
        req::Repr {
            local_comm_id: theirs,
            service_id: service(self.service),
            local_ca_guid: self.ca_guid(),
            local_qkey: 0,
            local_qpn: Qpn::new(u32::from(self.qpn % 6)),
            responder_resources: self.more,
            local_eecn: 0,
            initiator_depth: 1,
            remote_eecn: 0,
            remote_response_timeout: 20,
            transport: u8::from(self.more == 9),
            flow_control: false,
            starting_psn: Psn::new(1),
            local_response_timeout: 18 + self.more % 4,
            retry_count: 7,
            pkey: 0xffff,
            path_mtu: 1 + self.more % 5,
            rdc_exists: false,
            rnr_retry_count: 7,
            max_cm_retries: self.more % 16,
            srq: false,
            extended_transport: 0,
            primary: path::Repr {
                local_gid: address(self.from),
                remote_gid: address(self.to % 2),
                ack_timeout: 19,
                ..path::Repr::default()
            },
            alternate: path::Repr::default(),
            private_data: self.private(),
        }
    }

    fn rep(&self, ours: u32, theirs: u32) -> rep::Repr {
        rep::Repr {
            local_comm_id: theirs,
            remote_comm_id: ours,
            local_qkey: 0,
            local_qpn: Qpn::new(u32::from(self.qpn % 6)),
            local_eecn: 0,
            starting_psn: Psn::new(2),
            responder_resources: 1,
            initiator_depth: 1,
            target_ack_delay: self.more >> 3,
            failover: 0,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            local_ca_guid: self.ca_guid(),
            private_data: [2; 196],
        }
    }
}
