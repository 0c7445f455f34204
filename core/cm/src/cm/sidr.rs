//! SIDR (service id resolution): finds the queue pair of a datagram service.

use remora_wire::Qpn;
use remora_wire::mad::{CmMessage, INFO_LEN, PortSpace, SidrStatus, ip_cm, sidr_rep, sidr_req};

use super::Cm;
use super::timers::interval_ns;
use crate::cm_id::RemoteId;
use crate::private_data::field;
use crate::received_mad::ReceivedMad;
use crate::state::On;
use crate::{CmError, CmState, EventKind, Instant, PrivateData, SidrReplyParam, SidrRequestParam};

impl SidrReplyParam<'_> {
    /// Returns a reply that refuses the service with this status.
    pub(super) const fn refusal(status: SidrStatus) -> SidrReplyParam<'static> {
        SidrReplyParam { status, qpn: Qpn::new(0), qkey: 0, private_data: &[] }
    }

    fn message(&self, request_id: u32, service_id: remora_wire::mad::ServiceId) -> CmMessage {
        CmMessage::SidrRep(sidr_rep::Repr {
            request_id,
            status: self.status,
            info_len: 0,
            qpn: self.qpn,
            service_id,
            qkey: self.qkey,
            info: [0; INFO_LEN],
            private_data: field(None, self.private_data),
        })
    }
}

impl Cm {
    /// Asks a peer for the queue pair of a datagram service, under this handle.
    ///
    /// # Errors
    /// [`CmError::HandleInUse`], [`CmError::OutOfRange`], [`CmError::NoResources`], [`CmError::Busy`].
    pub fn sidr_request(
        &mut self,
        now: Instant,
        handle: u64,
        param: &SidrRequestParam<'_>,
    ) -> Result<(), CmError> {
        self.unused(handle)?;
        param.check()?;
        self.space()?;
        let slot = self.take(handle).ok_or(CmError::NoResources)?;
        let transaction_id = self.own_transaction(slot);
        let id = self.ids.get_mut(slot);
        id.gids = param.gids;
        id.transaction_id = transaction_id;
        id.service_id = param.service_id;
        id.is_active = true;
        id.attributes.traffic_class = param.traffic_class;
        id.timeout_ns = interval_ns(param.response_timeout, 0);
        id.max_retries = param.max_cm_retries;
        let private_data = field(param.ip, param.private_data);
        let request_id = id.local_comm_id;
        let service_id = param.service_id;
        let req = sidr_req::Repr { request_id, pkey: param.pkey, service_id, private_data };
        self.send(slot, &CmMessage::SidrReq(req));
        self.enter(slot, On::SendSidrReq);
        self.await_answer(now, slot);
        Ok(())
    }

    pub(super) fn receive_sidr_req(
        &mut self,
        arrival: &ReceivedMad,
        req: &sidr_req::Repr,
        fresh: u64,
    ) -> bool {
        let key = RemoteId {
            address: arrival.gids.remote,
            zone: arrival.gids.zone,
            ca_guid: None,
            comm_id: req.request_id,
        };
        if let Some(slot) = self.by_remote_id.get(&key) {
            self.counters.duplicates += 1;
            if self.ids.get(slot).state == CmState::SidrRepSent {
                self.send_again(slot);
            }
            return false;
        }
        let has_datagrams = req.service_id.port_space().is_none_or(PortSpace::has_datagrams);
        let listener = self.listeners.find(req.service_id, arrival.gids).filter(|_| has_datagrams);
        let Some(listener) = listener else {
            self.refuse_sidr(arrival, req, SidrStatus::UNSUPPORTED);
            return false;
        };
        let ip = match ip_cm::View::new(&req.private_data) {
            Ok(view) if req.service_id.is_rdma_ip() => Some(ip_cm::Repr::parse(&view)),
            Err(_) if req.service_id.is_rdma_ip() => {
                self.refuse_sidr(arrival, req, SidrStatus::REJECTED);
                return false;
            }
            _ => None,
        };
        if !self.listeners.has_space(listener) {
            self.counters.backlog_full += 1;
            self.refuse_sidr(arrival, req, SidrStatus::REJECTED);
            return false;
        }
        let slot = if self.unused(fresh).is_ok() { self.take(fresh) } else { None };
        let Some(slot) = slot else {
            self.counters.no_resources += 1;
            self.refuse_sidr(arrival, req, SidrStatus::NO_QP);
            return false;
        };
        self.take_sidr_req(arrival, slot, listener, req, ip);
        true
    }

    fn take_sidr_req(
        &mut self,
        arrival: &ReceivedMad,
        slot: u32,
        listener: u32,
        req: &sidr_req::Repr,
        ip: Option<ip_cm::Repr>,
    ) {
        let id = self.ids.get_mut(slot);
        id.listener = Some(listener);
        id.remote_comm_id = req.request_id;
        id.gids = arrival.gids;
        id.transaction_id = arrival.transaction_id;
        id.service_id = req.service_id;
        id.attributes.traffic_class = arrival.traffic_class;
        self.listeners.add_pending(listener);
        self.register(slot);
        self.enter(slot, On::RecvSidrReq);
        let kind = EventKind::SidrRequest {
            listener: self.listeners.handle(listener),
            gids: arrival.gids,
            service_id: req.service_id,
            ip,
            pkey: req.pkey,
        };
        let header = if ip.is_some() { ip_cm::LEN } else { 0 };
        self.tell(slot, kind, PrivateData::of(&req.private_data[header..]));
    }

    fn refuse_sidr(&mut self, arrival: &ReceivedMad, req: &sidr_req::Repr, status: SidrStatus) {
        let message = SidrReplyParam::refusal(status).message(req.request_id, req.service_id);
        self.answer(arrival, &message);
    }

    /// Answers a request for a datagram service, and frees the handle.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::WrongState`], [`CmError::OutOfRange`], [`CmError::Busy`].
    pub fn sidr_reply(
        &mut self,
        now: Instant,
        handle: u64,
        param: &SidrReplyParam<'_>,
    ) -> Result<(), CmError> {
        let slot = self.slot_of(handle)?;
        if !self.allows(slot, On::SendSidrRep) {
            return Err(CmError::WrongState);
        }
        if param.private_data.len() > sidr_rep::PRIVATE_LEN {
            return Err(CmError::OutOfRange);
        }
        self.space()?;
        self.send_sidr_rep(now, slot, param);
        Ok(())
    }

    pub(super) fn send_sidr_rep(&mut self, now: Instant, slot: u32, param: &SidrReplyParam<'_>) {
        let id = self.ids.get(slot);
        let message = param.message(id.remote_comm_id, id.service_id);
        self.send(slot, &message);
        self.forget_handle(slot);
        self.enter(slot, On::SendSidrRep);
        self.await_repetition(now, slot);
    }

    pub(super) fn receive_sidr_rep(&mut self, arrival: &ReceivedMad, rep: &sidr_rep::Repr) {
        let Some(slot) = self.find_local(arrival, rep.request_id) else { return };
        if !self.allows(slot, On::RecvSidrRep) {
            self.counters.out_of_state += 1;
            return;
        }
        let kind = EventKind::SidrResponse { status: rep.status, qpn: rep.qpn, qkey: rep.qkey };
        self.tell(slot, kind, PrivateData::of(&rep.private_data));
        self.enter(slot, On::RecvSidrRep);
    }
}
