//! One id: a connection, a question for a datagram service, or what is left of it.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{Attribute, LEN, ServiceId, header};
use remora_wire::{Address, Psn, Qpn};

use crate::{CmState, GidPair, Instant, QpAttributes};

/// A communication id of a peer. Managers count alone, so it needs the adapter and the address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteId {
    pub address: Address,
    /// The interface of a link-local address.
    pub zone: u32,
    /// Of a SIDR_REQ, which does not say it: `None`.
    pub ca_guid: Option<u64>,
    pub comm_id: u32,
}

/// A queue pair of a peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteQp {
    pub address: Address,
    /// The interface of a link-local address.
    pub zone: u32,
    pub ca_guid: u64,
    pub qpn: Qpn,
}

/// One id. The table has as many as there may be, and those without use are [`CmState::Idle`].
#[derive(Clone, Debug)]
pub(crate) struct CmId {
    pub state: CmState,
    /// Whose it is; `None`: nobody gets to know what happens to it.
    pub handle: Option<u64>,
    /// While a request is pending: the slot of its listener, if that is still there.
    pub listener: Option<u32>,
    /// What peers call it; new each time.
    pub local_comm_id: u32,
    /// What the peer calls it; 0 until it has said so.
    pub remote_comm_id: u32,
    /// The peer's adapter; `None` until it has said so.
    pub remote_ca_guid: Option<u64>,
    /// Both ends of messages and queue pairs.
    pub gids: GidPair,
    pub transaction_id: u64,
    pub service_id: ServiceId,
    pub is_active: bool,
    /// What a REP says of the alternate path: 0 if the REQ has none, 1 that none is supported.
    pub failover: u8,
    pub local_qpn: Qpn,
    pub attributes: QpAttributes,
    /// Nanoseconds until the last message is repeated.
    pub interval_ns: u64,
    /// The same without MRA.
    pub timeout_ns: u64,
    /// The code of the time that a packet lives at most.
    pub packet_life_time: u8,
    pub max_retries: u8,
    pub retries_left: u8,
    /// When it is to be looked at again; `NEVER` if not.
    pub deadline: Instant,
    /// Stands it in the index of the peers' ids?
    pub has_remote_id: bool,
    /// Stands it in the index of the peers' queue pairs?
    pub has_remote_qp: bool,
    /// The last message that left: it is repeated as it was.
    pub sent: [u8; LEN],
}

impl CmId {
    /// An id without use.
    pub const IDLE: CmId = CmId {
        state: CmState::Idle,
        handle: None,
        listener: None,
        local_comm_id: 0,
        remote_comm_id: 0,
        remote_ca_guid: None,
        gids: GidPair::new(Address([0; 16]), Address([0; 16])),
        transaction_id: 0,
        service_id: ServiceId(0),
        is_active: false,
        failover: 0,
        local_qpn: Qpn::new(0),
        attributes: QpAttributes {
            gids: GidPair::new(Address([0; 16]), Address([0; 16])),
            service: ConnectedService::Rc,
            remote_qpn: Qpn::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: 0,
            pkey: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 0,
            sl: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            responder_resources: 0,
            initiator_depth: 0,
        },
        interval_ns: 0,
        timeout_ns: 0,
        packet_life_time: 0,
        max_retries: 0,
        retries_left: 0,
        deadline: Instant::NEVER,
        has_remote_id: false,
        has_remote_qp: false,
        sent: [0; LEN],
    };

    /// What the peer calls it.
    pub fn remote_id(&self) -> RemoteId {
        RemoteId {
            address: self.gids.remote,
            zone: self.gids.zone,
            ca_guid: self.remote_ca_guid,
            comm_id: self.remote_comm_id,
        }
    }

    /// The peer's queue pair.
    pub fn remote_qp(&self) -> RemoteQp {
        RemoteQp {
            address: self.gids.remote,
            zone: self.gids.zone,
            ca_guid: self.remote_ca_guid.unwrap_or_default(),
            qpn: self.attributes.remote_qpn,
        }
    }

    /// Is it this message that left last?
    pub fn sent_is(&self, attribute: Attribute) -> bool {
        header::View::new(&self.sent).is_ok_and(|view| view.attribute() == attribute)
    }

    /// Asserts what holds of it between two events.
    pub fn check(&self) {
        let CmId { state, deadline, .. } = *self;
        let timed = deadline < Instant::NEVER;
        assert_eq!(timed, state.repeats() || state.lingers(), "{state} has a timer: {timed}");
        assert!(self.retries_left <= self.max_retries && self.max_retries < 16, "{state}: retries <= 15");
        assert!(self.listener.is_none() || state.is_pending(), "{state} is in no backlog");
        assert!(!self.has_remote_qp || state.holds_remote_qpn(), "{state} holds no queue pair of the peer");
        match state {
            CmState::Idle => {
                assert!(self.handle.is_none() && !self.has_remote_id && !self.has_remote_qp, "a free id");
            }
            CmState::DreqSent | CmState::Timewait => {}
            CmState::SidrRepSent => assert!(self.handle.is_none(), "an answered question belongs to nobody"),
            _ => assert!(self.handle.is_some(), "{state} belongs to somebody"),
        }
        let knows_peer = !matches!(
            state,
            CmState::Idle | CmState::ReqSent | CmState::MraReqRcvd | CmState::SidrReqSent | CmState::Timewait
        );
        assert!(!knows_peer || self.has_remote_id, "{state} knows what the peer calls it");
    }
}
