//! The record of one id: a connection or a service id resolution, up to the end of its lingering.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{Attribute, LEN, ServiceId, header};
use remora_wire::{Address, Psn, Qpn};

use crate::{CmState, GidPair, Instant, QpAttributes};

/// A communication id of a peer. Each manager counts for itself, so the key includes the adapter and the
/// address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteId {
    pub address: Address,
    /// Interface index of a link-local address.
    pub zone: u32,
    /// The GUID of the peer's adapter; `None` for a SIDR_REQ, which does not contain it.
    pub ca_guid: Option<u64>,
    pub comm_id: u32,
}

/// A queue pair of a peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteQp {
    pub address: Address,
    /// Interface index of a link-local address.
    pub zone: u32,
    pub ca_guid: u64,
    pub qpn: Qpn,
}

/// An id. The table has its full number of them from the start; the unused ones are [`CmState::Idle`].
#[derive(Clone, Debug)]
pub(crate) struct CmId {
    pub state: CmState,
    /// The program's handle; `None` if events of the id are no longer reported.
    pub handle: Option<u64>,
    /// Slot of the listener of a pending request; `None` if the listener was destroyed or the request is
    /// not pending.
    pub listener: Option<u32>,
    /// The communication id by which peers name this id; new for each use of the slot.
    pub local_comm_id: u32,
    /// The peer's communication id; 0 until the peer has sent it.
    pub remote_comm_id: u32,
    /// The GUID of the peer's adapter; `None` until the peer has sent it.
    pub remote_ca_guid: Option<u64>,
    /// Addresses of both ends, for messages and queue pairs.
    pub gids: GidPair,
    pub transaction_id: u64,
    pub service_id: ServiceId,
    pub is_active: bool,
    /// Failover code that a REP reports for the alternate path: 0 if the REQ has none, 1 if it is not
    /// supported.
    pub failover: u8,
    pub local_qpn: Qpn,
    pub attributes: QpAttributes,
    /// Nanoseconds until the last message is repeated.
    pub interval_ns: u64,
    /// Repetition interval in nanoseconds when no MRA has prolonged it.
    pub timeout_ns: u64,
    /// Code of the maximum packet life time.
    pub packet_life_time: u8,
    pub max_retries: u8,
    pub retries_left: u8,
    /// Deadline of the timer; `NEVER` if none runs.
    pub deadline: Instant,
    /// True if the id is in the index of peers' communication ids.
    pub has_remote_id: bool,
    /// True if the id is in the index of peers' queue pairs.
    pub has_remote_qp: bool,
    /// The last message that was sent, kept for repetitions.
    pub sent: [u8; LEN],
}

impl CmId {
    /// An unused id.
    pub(crate) const IDLE: CmId = CmId {
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

    /// Returns the peer's communication id with its adapter and address.
    pub(crate) fn remote_id(&self) -> RemoteId {
        RemoteId {
            address: self.gids.remote,
            zone: self.gids.zone,
            ca_guid: self.remote_ca_guid,
            comm_id: self.remote_comm_id,
        }
    }

    /// Returns the peer's queue pair with its adapter and address.
    pub(crate) fn remote_qp(&self) -> RemoteQp {
        RemoteQp {
            address: self.gids.remote,
            zone: self.gids.zone,
            ca_guid: self.remote_ca_guid.unwrap_or_default(),
            qpn: self.attributes.remote_qpn,
        }
    }

    /// Returns whether the last message that was sent has this attribute.
    pub(crate) fn sent_is(&self, attribute: Attribute) -> bool {
        header::View::new(&self.sent).is_ok_and(|view| view.attribute() == attribute)
    }

    /// Asserts the invariants that hold for an id between two events.
    pub(crate) fn check(&self) {
        let CmId { state, deadline, .. } = *self;
        let timed = deadline < Instant::NEVER;
        assert_eq!(timed, state.repeats() || state.lingers(), "{state}: a timer runs: {timed}");
        assert!(self.retries_left <= self.max_retries && self.max_retries < 16, "{state}: retries <= 15");
        assert!(
            self.listener.is_none() || state.is_pending(),
            "{state}: only pending requests have a listener"
        );
        assert!(
            !self.has_remote_qp || state.holds_remote_qpn(),
            "{state}: the peer's queue pair is still indexed"
        );
        match state {
            CmState::Idle => {
                assert!(
                    self.handle.is_none() && !self.has_remote_id && !self.has_remote_qp,
                    "a free id is still in use"
                );
            }
            CmState::DreqSent | CmState::Timewait => {}
            CmState::SidrRepSent => assert!(self.handle.is_none(), "SIDR_REP_SENT: the handle is released"),
            _ => assert!(self.handle.is_some(), "{state}: the id has a handle"),
        }
        let knows_peer = !matches!(
            state,
            CmState::Idle | CmState::ReqSent | CmState::MraReqRcvd | CmState::SidrReqSent | CmState::Timewait
        );
        assert!(!knows_peer || self.has_remote_id, "{state}: the peer's id is indexed");
    }
}
