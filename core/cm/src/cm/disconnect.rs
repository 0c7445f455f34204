//! DREQ and DREP: the end of a connection, with or without the peer's agreement.

use remora_wire::mad::{Answered, Attribute, CmMessage, RejectReason, SidrStatus, drep, dreq};

use super::Cm;
use crate::private_data::field;
use crate::received_mad::ReceivedMad;
use crate::state::On;
use crate::{Cause, CmError, CmState, EventKind, Instant, PrivateData, RejectParam, SidrReplyParam};

impl Cm {
    /// Ends a connection, or answers a peer that ends it. `private_data` has up to 220 bytes, or up to 224
    /// in an answer.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::WrongState`], [`CmError::OutOfRange`], [`CmError::Busy`].
    pub fn disconnect(&mut self, now: Instant, handle: u64, private_data: &[u8]) -> Result<(), CmError> {
        let slot = self.slot_of(handle)?;
        let answers = self.ids.get(slot).state == CmState::DreqRcvd;
        if !answers && !self.allows(slot, On::SendDreq) {
            return Err(CmError::WrongState);
        }
        if private_data.len() > if answers { drep::PRIVATE_LEN } else { dreq::PRIVATE_LEN } {
            return Err(CmError::OutOfRange);
        }
        self.space()?;
        if answers {
            self.send_drep(slot, private_data);
            self.enter_timewait(now, slot, On::SendDrep);
        } else {
            self.send_dreq(now, slot, private_data);
        }
        Ok(())
    }

    /// Releases a handle: of a listener, or of an id in any state. The peer is informed that the connection
    /// ends; no further events are reported for the handle. Requests that wait for a destroyed listener
    /// stay.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::Busy`].
    pub fn destroy(&mut self, now: Instant, handle: u64) -> Result<(), CmError> {
        if let Some(listener) = self.listeners.remove(handle) {
            for id in self.ids.iter_mut().filter(|id| id.listener == Some(listener)) {
                id.listener = None;
            }
            return Ok(());
        }
        let slot = self.slot_of(handle)?;
        self.space()?;
        self.end(now, slot);
        Ok(())
    }

    fn end(&mut self, now: Instant, slot: u32) {
        let state = self.ids.get(slot).state;
        match state {
            CmState::ReqSent | CmState::MraReqRcvd => {
                self.send_timeout(slot, Answered::Req);
                self.enter(slot, On::SendRej);
            }
            CmState::ReqRcvd | CmState::MraReqSent | CmState::RepRcvd | CmState::MraRepSent => {
                self.send_rej(now, slot, &RejectParam::new(RejectReason::CONSUMER));
            }
            CmState::RepSent | CmState::MraRepRcvd => {
                self.send_rej(now, slot, &RejectParam::new(RejectReason::CONSUMER));
                self.forget_handle(slot);
            }
            CmState::Established => {
                self.send_dreq(now, slot, &[]);
                self.forget_handle(slot);
            }
            CmState::DreqRcvd => {
                self.send_drep(slot, &[]);
                self.enter_timewait(now, slot, On::SendDrep);
                self.forget_handle(slot);
            }
            CmState::DreqSent | CmState::Timewait => self.forget_handle(slot),
            CmState::SidrReqSent => self.enter(slot, On::Cancel),
            CmState::SidrReqRcvd => {
                self.send_sidr_rep(now, slot, &SidrReplyParam::refusal(SidrStatus::REJECTED))
            }
            // The id is free, or has no handle.
            CmState::Idle | CmState::SidrRepSent => {}
        }
    }

    /// Ends a connection whose peer uses the same queue pair for another connection.
    pub(super) fn end_stale(&mut self, now: Instant, slot: u32) {
        if self.allows(slot, On::SendDreq) {
            self.send_dreq(now, slot, &[]);
        }
    }

    fn send_dreq(&mut self, now: Instant, slot: u32, private_data: &[u8]) {
        let transaction_id = self.own_transaction(slot);
        let id = self.ids.get_mut(slot);
        id.transaction_id = transaction_id;
        let dreq = dreq::Repr {
            local_comm_id: id.local_comm_id,
            remote_comm_id: id.remote_comm_id,
            remote_qpn: id.attributes.remote_qpn,
            private_data: field(None, private_data),
        };
        self.send(slot, &CmMessage::Dreq(dreq));
        self.enter(slot, On::SendDreq);
        self.await_answer(now, slot);
    }

    fn send_drep(&mut self, slot: u32, private_data: &[u8]) {
        let id = self.ids.get(slot);
        let drep = drep::Repr {
            local_comm_id: id.local_comm_id,
            remote_comm_id: id.remote_comm_id,
            private_data: field(None, private_data),
        };
        self.send(slot, &CmMessage::Drep(drep));
    }

    pub(super) fn receive_dreq(&mut self, arrival: &ReceivedMad, dreq: &dreq::Repr) {
        let local = self.ids.find(dreq.remote_comm_id);
        let Some(slot) = local.filter(|slot| self.ids.get(*slot).remote_comm_id == dreq.local_comm_id) else {
            // The connection has already ended here. The DREP saves the peer from waiting.
            self.counters.unknown_ids += 1;
            let (local_comm_id, remote_comm_id) = (dreq.remote_comm_id, dreq.local_comm_id);
            let drep = drep::Repr { local_comm_id, remote_comm_id, private_data: [0; drep::PRIVATE_LEN] };
            return self.answer(arrival, &CmMessage::Drep(drep));
        };
        let id = self.ids.get_mut(slot);
        if id.gids != arrival.gids || id.local_qpn != dreq.remote_qpn {
            self.counters.strangers += 1;
            return;
        }
        let private_data = PrivateData::of(&dreq.private_data);
        match id.state {
            CmState::Established | CmState::RepSent | CmState::MraRepRcvd => {
                id.transaction_id = arrival.transaction_id;
                self.tell(slot, EventKind::Disconnected(Cause::Requested), private_data);
                self.enter(slot, On::RecvDreq);
            }
            CmState::DreqSent => {
                id.transaction_id = arrival.transaction_id;
                self.send_drep(slot, &[]);
                self.tell(slot, EventKind::Disconnected(Cause::Agreed), private_data);
                self.enter_timewait(arrival.now, slot, On::RecvDreq);
            }
            CmState::Timewait => {
                self.counters.duplicates += 1;
                if id.sent_is(Attribute::DREP) {
                    self.send_again(slot);
                } else {
                    id.transaction_id = arrival.transaction_id;
                    self.send_drep(slot, &[]);
                }
            }
            CmState::DreqRcvd => self.counters.duplicates += 1,
            _ => self.counters.out_of_state += 1,
        }
    }

    pub(super) fn receive_drep(&mut self, arrival: &ReceivedMad, drep: &drep::Repr) {
        let Some(slot) = self.find(arrival, drep.remote_comm_id, drep.local_comm_id) else { return };
        if !self.allows(slot, On::RecvDrep) {
            self.counters.out_of_state += 1;
            return;
        }
        let private_data = PrivateData::of(&drep.private_data);
        self.tell(slot, EventKind::Disconnected(Cause::Agreed), private_data);
        self.enter_timewait(arrival.now, slot, On::RecvDrep);
    }
}
