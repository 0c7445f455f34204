//! The passive side of a connection: a REQ arrives, the program accepts it, and the peer becomes ready.

use remora_wire::Qpn;
use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{Answered, Attribute, CmMessage, PortSpace, RejectReason, ip_cm, rep, req, rtu};

use super::Cm;
use super::timers::interval_ns;
use crate::cm_id::{RemoteId, RemoteQp};
use crate::private_data::field;
use crate::received_mad::ReceivedMad;
use crate::state::On;
use crate::{
    AcceptParam, CmError, CmState, ConnParam, ConnectRequest, EventKind, GidPair, Instant, PrivateData,
    QpAttributes,
};

/// The default partition, without its membership bit.
const DEFAULT_PARTITION: u16 = 0x7fff;

/// Facts about a REQ that passed all checks and may be handed to a program.
struct Checked {
    listener: u32,
    service: ConnectedService,
    ip: Option<ip_cm::Repr>,
}

/// The answer to a REQ that is refused.
struct ReqRefusal {
    reason: RejectReason,
    /// Additional information of the REJ: an acceptable value for the refused field.
    info: [u8; 16],
    info_len: usize,
}

impl ReqRefusal {
    const fn new(reason: RejectReason) -> ReqRefusal {
        ReqRefusal { reason, info: [0; 16], info_len: 0 }
    }
}

impl Cm {
    pub(super) fn receive_req(&mut self, arrival: &ReceivedMad, req: &req::Repr, fresh: u64) -> bool {
        let GidPair { remote: address, zone, .. } = arrival.gids;
        let guid = req.local_ca_guid;
        let id = RemoteId { address, zone, ca_guid: Some(guid), comm_id: req.local_comm_id };
        if let Some(slot) = self.by_remote_id.get(&id) {
            self.receive_req_again(arrival, slot, req);
            return false;
        }
        if let Some(slot) =
            self.by_remote_qp.get(&RemoteQp { address, zone, ca_guid: guid, qpn: req.local_qpn })
        {
            // The peer must have forgotten that connection: otherwise it would not use the queue pair a
            // second time.
            self.refuse_req(arrival, req, &ReqRefusal::new(RejectReason::STALE_CONNECTION));
            self.end_stale(arrival.now, slot);
            return false;
        }
        let checked = match self.check_req(arrival, req) {
            Ok(checked) => checked,
            Err(refusal) => {
                self.refuse_req(arrival, req, &refusal);
                return false;
            }
        };
        if !self.listeners.has_space(checked.listener) {
            self.counters.backlog_full += 1;
            // Linux refuses a request beyond the backlog for this reason.
            self.refuse_req(arrival, req, &ReqRefusal::new(RejectReason::CONSUMER));
            return false;
        }
        let slot = if self.unused(fresh).is_ok() { self.take(fresh) } else { None };
        let Some(slot) = slot else {
            self.counters.no_resources += 1;
            self.refuse_req(arrival, req, &ReqRefusal::new(RejectReason::NO_RESOURCES));
            return false;
        };
        self.take_req(arrival, slot, req, &checked);
        true
    }

    /// Answers a repeated REQ: the answer was lost, or the program has not answered yet.
    fn receive_req_again(&mut self, arrival: &ReceivedMad, slot: u32, req: &req::Repr) {
        let id = self.ids.get(slot);
        let is_same =
            id.service_id == req.service_id && id.attributes.remote_qpn == req.local_qpn && !id.is_active;
        self.counters.duplicates += 1;
        match id.state {
            CmState::Timewait => {
                self.refuse_req(arrival, req, &ReqRefusal::new(RejectReason::STALE_CONNECTION))
            }
            _ if !is_same => self.refuse_req(arrival, req, &ReqRefusal::new(RejectReason::DUPLICATE_COMM_ID)),
            CmState::ReqRcvd | CmState::MraReqSent => self.send_mra(slot, Answered::Req),
            CmState::RepSent | CmState::MraRepRcvd => self.send_again(slot),
            _ => {}
        }
    }

    fn refuse_req(&mut self, arrival: &ReceivedMad, req: &req::Repr, refusal: &ReqRefusal) {
        let info = &refusal.info[..refusal.info_len];
        self.refuse(arrival, Answered::Req, 0, req.local_comm_id, refusal.reason, info);
    }

    /// Checks whether a REQ can be handed to a program.
    fn check_req(&self, arrival: &ReceivedMad, req: &req::Repr) -> Result<Checked, ReqRefusal> {
        let refuse = |reason| Err(ReqRefusal::new(reason));
        let service = match req.service() {
            Some(service) if service != ConnectedService::Rd => service,
            _ => return refuse(RejectReason::INVALID_TRANSPORT),
        };
        if req.pkey & DEFAULT_PARTITION != DEFAULT_PARTITION {
            return refuse(RejectReason::UNSUPPORTED_REQUEST);
        }
        let has_connections = req.service_id.port_space().is_none_or(PortSpace::has_connections);
        let listener = self.listeners.find(req.service_id, arrival.gids).filter(|_| has_connections);
        let Some(listener) = listener else { return refuse(RejectReason::INVALID_SERVICE_ID) };
        // Over RoCE both GIDs are the addresses of the datagram. Another GID would make the program's queue
        // pair send to a host that has not asked for it.
        let path = GidPair { local: req.primary.remote_gid, remote: req.primary.local_gid, ..arrival.gids };
        if path != arrival.gids || !path.are_hosts() {
            let info = arrival.gids.local.0;
            return Err(ReqRefusal { reason: RejectReason::PRIMARY_GID, info, info_len: info.len() });
        }
        if req.path_mtu == 0 || req.path_mtu > self.config.max_mtu {
            let mut refusal = ReqRefusal::new(RejectReason::INVALID_MTU);
            (refusal.info[0], refusal.info_len) = (self.config.max_mtu, 1);
            return Err(refusal);
        }
        let ip = if req.service_id.is_rdma_ip() {
            match ip_cm::View::new(&req.private_data) {
                Ok(view) => Some(ip_cm::Repr::parse(&view)),
                // Linux refuses a bad IP header for this reason.
                Err(_) => return refuse(RejectReason::CONSUMER),
            }
        } else {
            None
        };
        Ok(Checked { listener, service, ip })
    }

    fn take_req(&mut self, arrival: &ReceivedMad, slot: u32, req: &req::Repr, checked: &Checked) {
        let Checked { listener, service, ip } = *checked;
        let timeout = req.primary.ack_timeout;
        let id = self.ids.get_mut(slot);
        id.listener = Some(listener);
        id.remote_comm_id = req.local_comm_id;
        id.remote_ca_guid = Some(req.local_ca_guid);
        id.gids = arrival.gids;
        id.transaction_id = arrival.transaction_id;
        id.service_id = req.service_id;
        id.failover = u8::from(req.alternate.is_present());
        id.packet_life_time = timeout.saturating_sub(1);
        id.timeout_ns = interval_ns(req.local_response_timeout, timeout);
        id.max_retries = req.max_cm_retries;
        id.attributes = QpAttributes {
            gids: arrival.gids,
            service,
            remote_qpn: req.local_qpn,
            rq_psn: remora_wire::Psn::new(0),
            sq_psn: req.starting_psn,
            path_mtu: req.path_mtu,
            pkey: req.pkey,
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit,
            sl: req.primary.sl,
            timeout,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
        };
        self.listeners.add_pending(listener);
        self.register(slot);
        self.enter(slot, On::RecvReq);
        let request = ConnectRequest {
            listener: self.listeners.handle(listener),
            gids: arrival.gids,
            service_id: req.service_id,
            ip,
            service,
            param: ConnParam {
                responder_resources: req.initiator_depth,
                initiator_depth: req.responder_resources,
                flow_control: req.flow_control,
                retry_count: req.retry_count,
                rnr_retry_count: req.rnr_retry_count,
                srq: req.srq,
                qpn: req.local_qpn,
                starting_psn: req.starting_psn,
            },
        };
        let header = if ip.is_some() { ip_cm::LEN } else { 0 };
        self.tell(slot, EventKind::ConnectRequest(request), PrivateData::of(&req.private_data[header..]));
    }

    /// Removes a request from its listener's backlog, because the program has taken the event. The program
    /// may answer later. Does nothing if the request has ended or was answered meanwhile.
    pub fn taken(&mut self, handle: u64) {
        let Some(slot) = self.by_handle.get(&handle) else { return };
        if let Some(listener) = self.ids.get_mut(slot).listener.take() {
            self.listeners.remove_pending(listener);
        }
    }

    /// Accepts a request for a connection.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::WrongState`], [`CmError::OutOfRange`], [`CmError::Busy`].
    pub fn accept(&mut self, now: Instant, handle: u64, param: &AcceptParam<'_>) -> Result<(), CmError> {
        let slot = self.slot_of(handle)?;
        if !self.allows(slot, On::SendRep) {
            return Err(CmError::WrongState);
        }
        if param.rnr_retry_count > 7 || param.private_data.len() > rep::PRIVATE_LEN {
            return Err(CmError::OutOfRange);
        }
        self.space()?;
        let id = self.ids.get_mut(slot);
        id.local_qpn = param.qpn;
        id.attributes.rq_psn = param.starting_psn;
        id.attributes.responder_resources = param.responder_resources;
        id.attributes.initiator_depth = param.initiator_depth;
        let is_xrc = id.attributes.service == ConnectedService::Xrc;
        let rep = rep::Repr {
            local_comm_id: id.local_comm_id,
            remote_comm_id: id.remote_comm_id,
            local_qkey: 0,
            local_qpn: if is_xrc { Qpn::new(0) } else { param.qpn },
            local_eecn: if is_xrc { param.qpn.get() } else { 0 },
            starting_psn: param.starting_psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            target_ack_delay: self.config.target_ack_delay,
            failover: id.failover,
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq || is_xrc,
            local_ca_guid: self.config.ca_guid,
            private_data: field(None, param.private_data),
        };
        self.send(slot, &CmMessage::Rep(rep));
        self.enter(slot, On::SendRep);
        self.await_answer(now, slot);
        Ok(())
    }

    pub(super) fn receive_rtu(&mut self, arrival: &ReceivedMad, rtu: &rtu::Repr) {
        if self.ids.find(rtu.remote_comm_id).is_none() {
            // The peer considers the connection established; it has not received this side's message that
            // gave up.
            self.counters.unknown_ids += 1;
            let local = rtu.remote_comm_id;
            let remote = rtu.local_comm_id;
            return self.refuse(arrival, Answered::Other, local, remote, RejectReason::INVALID_COMM_ID, &[]);
        }
        let Some(slot) = self.find(arrival, rtu.remote_comm_id, rtu.local_comm_id) else { return };
        let id = self.ids.get(slot);
        if self.allows(slot, On::RecvRtu) {
            self.tell(slot, EventKind::Established, PrivateData::of(&rtu.private_data));
            self.enter(slot, On::RecvRtu);
        } else if id.state == CmState::Timewait && id.sent_is(Attribute::REJ) {
            self.send_again(slot);
        } else {
            self.counters.duplicates += 1;
        }
    }

    /// Establishes a connection because the program's queue pair has received a packet
    /// (`IBV_EVENT_COMM_EST`): the RTU was lost or is late, and is not needed.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`], [`CmError::Busy`]; [`CmError::WrongState`] unless this side has sent a
    /// REP and the connection is not established yet.
    pub fn establish(&mut self, handle: u64) -> Result<(), CmError> {
        let slot = self.slot_of(handle)?;
        if !self.allows(slot, On::CommEst) {
            return Err(CmError::WrongState);
        }
        self.space()?;
        self.tell(slot, EventKind::Established, PrivateData::NONE);
        self.enter(slot, On::CommEst);
        Ok(())
    }
}
