//! REJ: one side refuses a request or response, or does not know the connection that the other side names.

use remora_wire::mad::{Answered, CmMessage, INFO_LEN, RejectReason, rej};

use super::Cm;
use crate::cm_id::RemoteId;
use crate::received_mad::ReceivedMad;
use crate::state::On;
use crate::{Cause, CmError, CmState, EventKind, GidPair, PrivateData, RejectParam, Rejection};

impl Cm {
    /// Refuses a request or a response. The handle is then free, unless a REP was sent before: in that case
    /// the id is in TIMEWAIT.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::WrongState`], [`CmError::Busy`]; [`CmError::OutOfRange`] if
    /// information or private data are too long.
    pub fn reject(
        &mut self,
        now: crate::Instant,
        handle: u64,
        param: &RejectParam<'_>,
    ) -> Result<(), CmError> {
        let slot = self.slot_of(handle)?;
        if param.info.len() > INFO_LEN || param.private_data.len() > rej::PRIVATE_LEN {
            return Err(CmError::OutOfRange);
        }
        if !self.allows(slot, On::SendRej) {
            return Err(CmError::WrongState);
        }
        self.space()?;
        self.send_rej(now, slot, param);
        Ok(())
    }

    /// Sends a REJ. The caller has checked that the state allows it.
    pub(super) fn send_rej(&mut self, now: crate::Instant, slot: u32, param: &RejectParam<'_>) {
        let answered = match self.ids.get(slot).state {
            CmState::ReqRcvd | CmState::MraReqSent => Answered::Req,
            CmState::RepRcvd | CmState::MraRepSent => Answered::Rep,
            _ => Answered::Other,
        };
        let rej = self.rej(slot, answered, param.reason, param.info, param.private_data);
        self.send(slot, &CmMessage::Rej(rej));
        if self.ids.get(slot).state.after(On::SendRej) == Some(CmState::Timewait) {
            self.enter_timewait(now, slot, On::SendRej);
        } else {
            self.enter(slot, On::SendRej);
        }
    }

    /// Builds a REJ of an id.
    pub(super) fn rej(
        &self,
        slot: u32,
        answered: Answered,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> rej::Repr {
        let id = self.ids.get(slot);
        rej::Repr::new(id.local_comm_id, id.remote_comm_id, answered, reason, info, private_data)
    }

    /// Finds the id that a REJ refers to. A peer that gave up on its REQ may not know this side's id; its
    /// adapter's GUID then identifies the connection, unless the connection is established. An established
    /// connection can be ended only with both communication ids, because the GUID is known to all peers of
    /// the adapter.
    fn find_rejected(&mut self, arrival: &ReceivedMad, rej: &rej::Repr) -> Option<u32> {
        if rej.reason == RejectReason::TIMEOUT {
            if let Some(slot) = self.find_by_guid(arrival, rej)
                && self.ids.get(slot).state.precedes_established()
            {
                return self.find_local(arrival, self.ids.get(slot).local_comm_id);
            }
            return self.find(arrival, rej.remote_comm_id, rej.local_comm_id);
        }
        if rej.answered == Answered::Req {
            return self.find_local(arrival, rej.remote_comm_id);
        }
        self.find(arrival, rej.remote_comm_id, rej.local_comm_id)
    }

    /// Finds the id by the adapter GUID in a peer's REJ.
    fn find_by_guid(&self, arrival: &ReceivedMad, rej: &rej::Repr) -> Option<u32> {
        let guid = u64::from_be_bytes(*rej.info().first_chunk()?);
        let GidPair { remote: address, zone, .. } = arrival.gids;
        let comm_id = rej.local_comm_id;
        self.by_remote_id.get(&RemoteId { address, zone, ca_guid: Some(guid), comm_id })
    }

    pub(super) fn receive_rej(&mut self, arrival: &ReceivedMad, rej: &rej::Repr) {
        let Some(slot) = self.find_rejected(arrival, rej) else { return };
        let state = self.ids.get(slot).state;
        // Only a REQ that waits for its answer can be refused. A late refusal must not end an established
        // connection.
        let refuses_req = rej.answered == Answered::Req && rej.reason != RejectReason::TIMEOUT;
        if refuses_req && !matches!(state, CmState::ReqSent | CmState::MraReqRcvd)
            || !self.allows(slot, On::RecvRej)
        {
            self.counters.out_of_state += 1;
            return;
        }
        let kind = match state {
            CmState::Established | CmState::DreqSent => EventKind::Disconnected(Cause::Refused),
            _ => {
                EventKind::Rejected(Rejection { reason: rej.reason, info: rej.info, info_len: rej.info_len })
            }
        };
        self.tell(slot, kind, PrivateData::of(&rej.private_data));
        if state.after(On::RecvRej) == Some(CmState::Timewait) {
            self.enter_timewait(arrival.now, slot, On::RecvRej);
        } else {
            self.enter(slot, On::RecvRej);
        }
    }
}
