//! The active side of a connection: it sends the REQ, and is ready when the peer has accepted.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{Answered, Attribute, CmMessage, RejectReason, mra, path, rep, req, rtu};
use remora_wire::{Psn, Qpn};

use super::Cm;
use super::timers::interval_ns;
use crate::private_data::field;
use crate::received_mad::ReceivedMad;
use crate::state::On;
use crate::{
    CmError, CmState, ConnParam, ConnectParam, EventKind, Instant, PrivateData, QpAttributes, Rejection,
};

/// Computes the code of the local ACK timeout: twice the packet life time plus the peer's delay. Codes are
/// exponents, so the sum of two powers of two is rounded up to the next power if the smaller one matters.
const fn ack_timeout(delay: u8, packet_life_time: u8) -> u8 {
    let round_trip = packet_life_time + 1;
    let (larger, smaller) = if round_trip >= delay { (round_trip, delay) } else { (delay, round_trip) };
    let code = larger + (smaller + 1 >= larger) as u8;
    if code < 31 { code } else { 31 }
}

impl Cm {
    /// Requests a connection from a peer, under this handle.
    ///
    /// # Errors
    /// [`CmError::HandleInUse`], [`CmError::OutOfRange`], [`CmError::NoResources`], [`CmError::Busy`].
    pub fn connect(&mut self, now: Instant, handle: u64, param: &ConnectParam<'_>) -> Result<(), CmError> {
        self.unused(handle)?;
        param.check()?;
        self.space()?;
        let slot = self.take(handle).ok_or(CmError::NoResources)?;
        let transaction_id = self.own_transaction(slot);
        let timeout = ack_timeout(self.config.target_ack_delay, param.packet_life_time);
        let id = self.ids.get_mut(slot);
        id.gids = param.gids;
        id.transaction_id = transaction_id;
        id.service_id = param.service_id;
        id.is_active = true;
        id.local_qpn = param.qpn;
        id.packet_life_time = param.packet_life_time;
        id.timeout_ns = interval_ns(param.response_timeout, param.packet_life_time + 1);
        id.max_retries = param.max_cm_retries;
        id.attributes = QpAttributes {
            gids: param.gids,
            service: param.service,
            remote_qpn: Qpn::new(0),
            rq_psn: param.starting_psn,
            sq_psn: Psn::new(0),
            path_mtu: param.path_mtu,
            pkey: param.pkey,
            flow_label: param.flow_label,
            traffic_class: param.traffic_class,
            hop_limit: param.hop_limit,
            sl: param.sl,
            timeout,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
        };
        let req = self.req(slot, param);
        self.send(slot, &CmMessage::Req(req));
        self.enter(slot, On::SendReq);
        self.await_answer(now, slot);
        Ok(())
    }

    fn req(&self, slot: u32, param: &ConnectParam<'_>) -> req::Repr {
        let id = self.ids.get(slot);
        let [transport, extended_transport] = param.service.codes();
        req::Repr {
            local_comm_id: id.local_comm_id,
            service_id: param.service_id,
            local_ca_guid: self.config.ca_guid,
            local_qkey: 0,
            local_qpn: param.qpn,
            responder_resources: param.responder_resources,
            local_eecn: 0,
            initiator_depth: param.initiator_depth,
            remote_eecn: 0,
            remote_response_timeout: param.response_timeout,
            transport,
            flow_control: param.flow_control,
            starting_psn: param.starting_psn,
            local_response_timeout: param.response_timeout,
            retry_count: param.retry_count,
            pkey: param.pkey,
            path_mtu: param.path_mtu,
            rdc_exists: false,
            rnr_retry_count: param.rnr_retry_count,
            max_cm_retries: param.max_cm_retries,
            srq: param.srq,
            extended_transport,
            primary: param.path(id.attributes.timeout),
            alternate: path::Repr::default(),
            private_data: field(param.ip, param.private_data),
        }
    }

    pub(super) fn receive_rep(&mut self, arrival: &ReceivedMad, rep: &rep::Repr) {
        if self.ids.find(rep.remote_comm_id).is_none() {
            // The peer waits for an RTU that will never be sent.
            self.counters.unknown_ids += 1;
            let local = rep.remote_comm_id;
            let remote = rep.local_comm_id;
            return self.refuse(arrival, Answered::Rep, local, remote, RejectReason::INVALID_COMM_ID, &[]);
        }
        let Some(slot) = self.find_local(arrival, rep.remote_comm_id) else { return };
        if self.allows(slot, On::RecvRep) {
            self.take_rep(arrival, slot, rep);
        } else if self.ids.get(slot).remote_comm_id == rep.local_comm_id {
            self.counters.duplicates += 1;
            self.answer_rep_again(slot);
        } else {
            self.counters.out_of_state += 1;
        }
    }

    fn take_rep(&mut self, arrival: &ReceivedMad, slot: u32, rep: &rep::Repr) {
        let id = self.ids.get_mut(slot);
        id.remote_comm_id = rep.local_comm_id;
        id.remote_ca_guid = Some(rep.local_ca_guid);
        let attributes = &mut id.attributes;
        attributes.remote_qpn = match attributes.service {
            ConnectedService::Xrc => Qpn::new(rep.local_eecn),
            _ => rep.local_qpn,
        };
        attributes.sq_psn = rep.starting_psn;
        attributes.timeout = ack_timeout(rep.target_ack_delay, id.packet_life_time);
        attributes.rnr_retry_count = rep.rnr_retry_count;
        attributes.responder_resources = rep.initiator_depth;
        attributes.initiator_depth = rep.responder_resources;
        let param = ConnParam {
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qpn: attributes.remote_qpn,
            starting_psn: rep.starting_psn,
        };
        let stale = self.by_remote_qp.get(&id.remote_qp());
        if stale.is_some() || !self.register(slot) {
            return self.refuse_stale_rep(arrival.now, slot, stale);
        }
        self.enter(slot, On::RecvRep);
        self.tell(slot, EventKind::ConnectResponse(param), PrivateData::of(&rep.private_data));
    }

    /// Refuses a REP with a queue pair, or a communication id, of a connection that already exists. Both
    /// connections end.
    fn refuse_stale_rep(&mut self, now: Instant, slot: u32, stale: Option<u32>) {
        let reason = RejectReason::STALE_CONNECTION;
        let rej = self.rej(slot, Answered::Rep, reason, &[], &[]);
        self.send(slot, &CmMessage::Rej(rej));
        let info = [0; remora_wire::mad::INFO_LEN];
        self.tell(slot, EventKind::Rejected(Rejection { reason, info, info_len: 0 }), PrivateData::NONE);
        self.enter(slot, On::SendRej);
        if let Some(stale) = stale {
            self.end_stale(now, stale);
        }
    }

    /// Answers a repeated REP: the answer was lost, or the program has not answered yet.
    fn answer_rep_again(&mut self, slot: u32) {
        let id = self.ids.get(slot);
        match id.state {
            CmState::RepRcvd | CmState::MraRepSent => self.send_mra(slot, Answered::Rep),
            CmState::Established if id.is_active && id.sent_is(Attribute::RTU) => self.send_again(slot),
            _ => {}
        }
    }

    /// Sends an MRA: the program needs time to answer.
    pub(super) fn send_mra(&mut self, slot: u32, answered: Answered) {
        let id = self.ids.get(slot);
        let mra = mra::Repr {
            local_comm_id: id.local_comm_id,
            remote_comm_id: id.remote_comm_id,
            answered,
            service_timeout: self.config.service_timeout,
            private_data: [0; mra::PRIVATE_LEN],
        };
        self.send(slot, &CmMessage::Mra(mra));
        self.enter(slot, On::SendMra);
    }

    /// Processes an MRA: the peer has received the REQ or REP and needs time. The next repetition waits for
    /// the time that the MRA names.
    pub(super) fn receive_mra(&mut self, arrival: &ReceivedMad, mra: &mra::Repr) {
        let local = mra.remote_comm_id;
        let remote = mra.local_comm_id;
        let (slot, on) = match mra.answered {
            Answered::Req => (self.find_local(arrival, local), On::RecvMraOfReq),
            Answered::Rep => (self.find(arrival, local, remote), On::RecvMraOfRep),
            // The MRA answers a LAP, which this side never sends.
            Answered::Other | Answered::Reserved => return self.counters.unsupported += 1,
        };
        let Some(slot) = slot else { return };
        if !self.allows(slot, on) {
            // A second MRA without a repetition in between would make this side wait forever.
            self.counters.duplicates += 1;
            return;
        }
        self.enter(slot, on);
        let id = self.ids.get_mut(slot);
        id.interval_ns = interval_ns(mra.service_timeout, id.attributes.timeout);
        let deadline = arrival.now.after(id.interval_ns);
        self.set_deadline(slot, deadline);
        self.checked(slot);
    }

    /// Reports that the program's queue pair is ready, which establishes the connection. `private_data` has
    /// up to 224 bytes.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::WrongState`], [`CmError::OutOfRange`], [`CmError::Busy`].
    pub fn ready_to_use(&mut self, handle: u64, private_data: &[u8]) -> Result<(), CmError> {
        let slot = self.slot_of(handle)?;
        if !self.allows(slot, On::SendRtu) {
            return Err(CmError::WrongState);
        }
        if private_data.len() > rtu::PRIVATE_LEN {
            return Err(CmError::OutOfRange);
        }
        self.space()?;
        let id = self.ids.get(slot);
        let rtu = rtu::Repr {
            local_comm_id: id.local_comm_id,
            remote_comm_id: id.remote_comm_id,
            private_data: field(None, private_data),
        };
        self.send(slot, &CmMessage::Rtu(rtu));
        self.enter(slot, On::SendRtu);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ack_timeout;

    #[test]
    fn ack_timeouts_are_those_of_soft_roce() {
        // Values of the capture: delay 15, packet life time 18, timeout 19.
        assert_eq!(ack_timeout(15, 18), 19);
        assert_eq!((ack_timeout(18, 18), ack_timeout(19, 18), ack_timeout(20, 18)), (20, 20, 21));
        assert_eq!((ack_timeout(25, 18), ack_timeout(0, 0), ack_timeout(31, 30)), (25, 2, 31));
    }
}
