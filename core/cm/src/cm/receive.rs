//! Processing of received MADs: each is passed to the part of the manager that answers it.

use remora_wire::WireError;
use remora_wire::mad::{
    Answered, Attribute, CmMessage, LEN, Method, RejectReason, class_port_info, header, rej,
};

use super::Cm;
use crate::received_mad::ReceivedMad;
use crate::{Instant, MadPath};

impl Cm {
    /// Processes a MAD that arrived on QP 1 at `now` by `path`, whose remote GID is the sender's. `fresh` is
    /// an unused handle, which is assigned to the new id if the MAD is a request. Returns true if the handle
    /// was used; an event then names it.
    ///
    /// Bytes after the 256 of a MAD are ignored. MADs that are malformed or make no sense are counted and
    /// dropped.
    pub fn receive(&mut self, now: Instant, path: impl Into<MadPath>, mad: &[u8], fresh: u64) -> bool {
        let MadPath { gids, traffic_class } = path.into();
        self.counters.received += 1;
        if !self.has_space() {
            self.counters.overflows += 1;
            return false;
        }
        let whole = mad.get(..LEN).ok_or(WireError::Truncated);
        let Ok(header) = whole.and_then(header::View::new) else {
            self.counters.malformed += 1;
            return false;
        };
        let header = header::Repr::parse(&header);
        let body = &mad[header::LEN..];
        let arrival = ReceivedMad { now, gids, transaction_id: header.transaction_id, traffic_class };
        match CmMessage::parse(&header, body) {
            Ok(message) => return self.dispatch(&arrival, &message, fresh),
            Err(WireError::UnsupportedMad(_)) => self.counters.unsupported += 1,
            Err(WireError::MadVersion(_)) => {
                self.counters.unsupported += 1;
                self.refuse_version(&arrival, &header, body);
            }
            Err(_) => self.counters.malformed += 1,
        }
        false
    }

    fn dispatch(&mut self, arrival: &ReceivedMad, message: &CmMessage, fresh: u64) -> bool {
        match message {
            CmMessage::Req(req) => {
                let arrival = ReceivedMad { traffic_class: req.primary.traffic_class, ..*arrival };
                return self.receive_req(&arrival, req, fresh);
            }
            CmMessage::SidrReq(req) => return self.receive_sidr_req(arrival, req, fresh),
            CmMessage::Mra(mra) => self.receive_mra(arrival, mra),
            CmMessage::Rej(rej) => self.receive_rej(arrival, rej),
            CmMessage::Rep(rep) => self.receive_rep(arrival, rep),
            CmMessage::Rtu(rtu) => self.receive_rtu(arrival, rtu),
            CmMessage::Dreq(dreq) => self.receive_dreq(arrival, dreq),
            CmMessage::Drep(drep) => self.receive_drep(arrival, drep),
            CmMessage::SidrRep(rep) => self.receive_sidr_rep(arrival, rep),
            CmMessage::GetClassPortInfo => self.answer_class_port_info(arrival),
            CmMessage::ClassPortInfo(_) => self.counters.unsupported += 1,
        }
        false
    }

    /// Refuses a REQ of another class version. The sender's communication id has the same offset in all
    /// versions.
    fn refuse_version(&mut self, arrival: &ReceivedMad, header: &header::Repr, body: &[u8]) {
        let is_req = header.base_version == header::BASE_VERSION
            && header.class == header::CM_CLASS
            && header.method == Method::SEND
            && header.attribute == Attribute::REQ;
        if let (true, Some(id)) = (is_req, body.first_chunk()) {
            self.refuse(arrival, Answered::Req, 0, u32::from_be_bytes(*id), RejectReason::CLASS_VERSION, &[]);
        }
    }

    fn answer_class_port_info(&mut self, arrival: &ReceivedMad) {
        let info = class_port_info::Repr {
            base_version: header::BASE_VERSION,
            class_version: header::CM_CLASS_VERSION,
            capabilities: class_port_info::RELIABLE_CONNECTION
                | class_port_info::UNRELIABLE_CONNECTION
                | class_port_info::SIDR,
            capabilities2: 0,
            response_time: 18,
        };
        self.answer(arrival, &CmMessage::ClassPortInfo(info));
    }

    /// Refuses a message for which there is no id. `local` is the communication id that the sender
    /// attributes to this side.
    pub(super) fn refuse(
        &mut self,
        arrival: &ReceivedMad,
        answered: Answered,
        local: u32,
        remote: u32,
        reason: RejectReason,
        info: &[u8],
    ) {
        let rej = rej::Repr::new(local, remote, answered, reason, info, &[]);
        self.answer(arrival, &CmMessage::Rej(rej));
    }

    /// Finds the id by both sides' communication ids, and checks that the MAD comes from the id's peer.
    pub(super) fn find(&mut self, arrival: &ReceivedMad, local: u32, remote: u32) -> Option<u32> {
        let slot = self.find_local(arrival, local)?;
        if self.ids.get(slot).remote_comm_id == remote {
            return Some(slot);
        }
        self.counters.unknown_ids += 1;
        None
    }

    /// Finds the id by this side's communication id, and checks that the MAD comes from the id's peer.
    pub(super) fn find_local(&mut self, arrival: &ReceivedMad, local: u32) -> Option<u32> {
        let Some(slot) = self.ids.find(local) else {
            self.counters.unknown_ids += 1;
            return None;
        };
        if self.ids.get(slot).gids == arrival.gids {
            return Some(slot);
        }
        self.counters.strangers += 1;
        None
    }
}
