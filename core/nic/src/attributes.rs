//! The attributes that `modify` sets on a queue pair, and the checks of their values.

use remora_memory::Access;
use remora_transport::Parameters;
use remora_transport::congestion::Algorithm;
use remora_transport::rc::Allowed;
use remora_transport::state::{Attributes, ModifyError, State};
use remora_wire::frame::{Class, Peer, Route};
use remora_wire::{Psn, Qpn};
use serde::{Deserialize, Serialize};

/// The address vector of a queue pair: its peer, resolved to a route of the port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressVector {
    /// The peer, as the port identifies it.
    pub peer: Peer,
    /// The headers of packets to the peer. Packets from the peer must come from the route's destination
    /// address.
    pub route: Route,
    /// Traffic class of the frames (`ibv_ah_attr.sl`), on ports that have traffic classes.
    pub class: Class,
    /// Condition under which a connection accepts a frame as its peer's.
    pub accepts: PeerFrames,
}

/// The condition under which a connection accepts a frame that carries the peer's IP address. Datagrams are
/// accepted from any sender.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerFrames {
    /// Frames from any UDP source port, because RoCE lets the sender choose the port. Frames from a link
    /// between NICs that share an address are rejected.
    #[default]
    AnyPort,
    /// Frames from this UDP source port only.
    Port(u16),
    /// Frames from the link to the NIC that owns the peer's QPN range of the shared IP address only.
    Link,
}

impl AddressVector {
    /// Creates an address vector of traffic class 0 that accepts frames from any UDP port.
    pub const fn new(peer: Peer, route: Route) -> AddressVector {
        AddressVector { peer, route, class: Class::new(0), accepts: PeerFrames::AnyPort }
    }
}

/// The attributes that `modify` changes (`ibv_qp_attr` and its mask). `None` leaves an attribute unchanged.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modify {
    /// The state to enter.
    pub state: Option<State>,
    /// Remote access rights of the peer (the REMOTE_ bits of [`Access`]).
    pub access: Option<Access>,
    /// Partition key index; only 0 is valid. The port has one key, 0xffff.
    pub pkey_index: Option<u16>,
    /// Port number; only 1 is valid.
    pub port: Option<u8>,
    /// Address vector of the peer.
    pub address: Option<AddressVector>,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: Option<u32>,
    /// Number of the peer's queue pair.
    pub dest_qp: Option<Qpn>,
    /// First PSN that the peer will send.
    pub rq_psn: Option<Psn>,
    /// First PSN that this queue pair sends.
    pub sq_psn: Option<Psn>,
    /// Maximum number of outstanding READs and atomics as requester, 0 to 128.
    pub max_rd_atomic: Option<u8>,
    /// Maximum number of READs and atomics that the responder holds, 0 to 128.
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR NAK timer code, 0 to 31: the delay that the peer must wait before it retries.
    pub min_rnr_timer: Option<u8>,
    /// Local ACK timeout code, 0 to 31: 4.096 µs · 2^code; 0 disables the timeout.
    pub timeout: Option<u8>,
    /// Number of retries after a timeout or sequence-error NAK, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Number of retries after an RNR NAK, 0 to 7; 7 means without limit.
    pub rnr_retry: Option<u8>,
    /// Maximum rate in bits per second; 0 means no limit.
    pub rate_limit: Option<u64>,
    /// The Q_Key that received datagrams must carry.
    pub qkey: Option<u32>,
    /// The current state as the program assumes it; `modify` fails if the queue pair is in another state.
    pub current: Option<State>,
    /// Reports an event when the send queue has drained (transition to SQD). `None` counts as true.
    pub sqd_event: Option<bool>,
    /// Alternate path. RoCE has no path migration, so any value is an error, as with RoCE NICs in Linux.
    pub alternate: Option<AddressVector>,
    /// Path migration state. The value is stored and returned by queries, but has no effect.
    pub path_migration: Option<PathMigration>,
    /// Enables IRN, set at the transition to RTR. The value is the number of packets beyond the expected PSN
    /// that the peer tracks. With `None` the queue pair uses RC's go-back-N. Not part of `ibv_qp_attr`: the
    /// two ends agree on IRN during connection set-up.
    pub irn: Option<u32>,
    /// Enables PRISM, set at the transition to RTR. Not part of `ibv_qp_attr`: agreed during connection
    /// set-up.
    pub prism: Option<bool>,
    /// Enables StRoM, set at the transition to RTR. Not part of `ibv_qp_attr`: agreed during connection
    /// set-up.
    pub strom: Option<bool>,
    /// Maximum number of packets in flight to this peer, set at the transition to RTR. `None` uses the NIC's
    /// own window. Not part of `ibv_qp_attr`.
    pub window: Option<u32>,
    /// Congestion control algorithm. `None` uses the NIC's configured algorithm. Not part of `ibv_qp_attr`.
    pub congestion: Option<Algorithm>,
}

/// A queue pair's attributes and measures.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairFacts {
    /// The state and the attributes that were set.
    pub attributes: Modify,
    /// Number of times that the queue pair had to wait because the peer had no receive work request (RNR
    /// NAK), since it was connected.
    pub rnr_waits: u32,
    /// Number of packets of submitted requests that have not been sent for the first time.
    pub backlog: u64,
    /// Number of the tenant.
    pub tenant: u32,
}

/// A state of path migration, numbered as `ibv_mig_state`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum PathMigration {
    /// The connection uses the primary path (the initial state of IBTA).
    #[default]
    Migrated = 0,
    /// The program is loading an alternate path.
    Rearm = 1,
    /// An alternate path is ready for use.
    Armed = 2,
}

/// The attributes that have been set on a queue pair.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub parameters: Parameters,
    /// Latest value of each attribute.
    pub given: Modify,
}

impl Modify {
    /// Returns the peer's rights.
    pub(crate) fn allowed(&self) -> Allowed {
        let access = self.access.unwrap_or(Access::NONE);
        Allowed {
            write: access.contains(Access::REMOTE_WRITE),
            read: access.contains(Access::REMOTE_READ),
            atomic: access.contains(Access::REMOTE_ATOMIC),
        }
    }

    /// Returns the mask of the attributes that are set, numbered as `ibv_qp_attr_mask`.
    pub(crate) fn given(&self) -> Attributes {
        let bits = [
            (self.access.is_some(), Attributes::ACCESS_FLAGS),
            (self.pkey_index.is_some(), Attributes::PKEY_INDEX),
            (self.port.is_some(), Attributes::PORT),
            (self.address.is_some(), Attributes::AV),
            (self.path_mtu.is_some(), Attributes::PATH_MTU),
            (self.dest_qp.is_some(), Attributes::DEST_QPN),
            (self.rq_psn.is_some(), Attributes::RQ_PSN),
            (self.sq_psn.is_some(), Attributes::SQ_PSN),
            (self.max_rd_atomic.is_some(), Attributes::MAX_QP_RD_ATOMIC),
            (self.max_dest_rd_atomic.is_some(), Attributes::MAX_DEST_RD_ATOMIC),
            (self.min_rnr_timer.is_some(), Attributes::MIN_RNR_TIMER),
            (self.timeout.is_some(), Attributes::TIMEOUT),
            (self.retry_cnt.is_some(), Attributes::RETRY_CNT),
            (self.rnr_retry.is_some(), Attributes::RNR_RETRY),
            (self.rate_limit.is_some(), Attributes::RATE_LIMIT),
            (self.qkey.is_some(), Attributes::QKEY),
            (self.current.is_some(), Attributes::CUR_STATE),
            (self.sqd_event.is_some(), Attributes::EN_SQD_ASYNC_NOTIFY),
            (self.alternate.is_some(), Attributes::ALT_PATH),
            (self.path_migration.is_some(), Attributes::PATH_MIG_STATE),
        ];
        bits.into_iter().filter(|(given, _)| *given).fold(Attributes::NONE, |all, (_, bit)| all.and(bit))
    }

    /// Returns these attributes, overridden by those that `later` sets.
    pub(crate) fn followed_by(&self, later: &Modify) -> Modify {
        macro_rules! latest {
            ($($name:ident)*) => { Modify { $($name: later.$name.or(self.$name),)* } };
        }
        latest!(state access pkey_index port address path_mtu dest_qp rq_psn sq_psn max_rd_atomic max_dest_rd_atomic
            min_rnr_timer timeout retry_cnt rnr_retry rate_limit qkey current sqd_event alternate path_migration irn prism strom
            window congestion)
    }

    /// Checks the values that are invalid in every transition. `state` is the current state.
    pub(crate) fn check_values(&self, state: State, any_path_mtu: bool) -> Result<(), ModifyFault> {
        let over = |value: Option<u8>, most: u8| value.is_some_and(|value| value > most);
        let bad = [
            (self.path_mtu.is_some_and(|mtu| !is_path_mtu(mtu, any_path_mtu)), Attributes::PATH_MTU),
            (over(self.max_rd_atomic, 128), Attributes::MAX_QP_RD_ATOMIC),
            (over(self.max_dest_rd_atomic, 128), Attributes::MAX_DEST_RD_ATOMIC),
            (over(self.min_rnr_timer, 31), Attributes::MIN_RNR_TIMER),
            (over(self.timeout, 31), Attributes::TIMEOUT),
            (over(self.retry_cnt, 7), Attributes::RETRY_CNT),
            (over(self.rnr_retry, 7), Attributes::RNR_RETRY),
            (self.pkey_index.is_some_and(|index| index != 0), Attributes::PKEY_INDEX),
            (self.port.is_some_and(|port| port != 1), Attributes::PORT),
            (self.current.is_some_and(|current| current != state), Attributes::CUR_STATE),
            (self.alternate.is_some(), Attributes::ALT_PATH),
        ];
        match bad.into_iter().find(|(is_bad, _)| *is_bad) {
            Some((_, attribute)) => Err(ModifyFault::Value(attribute)),
            None => Ok(()),
        }
    }
}

/// Returns true for a valid path MTU: a power of two from 256 to 4096 (IBTA vol. 1 §11.2.5.2), or with `any`
/// every number in that range.
fn is_path_mtu(mtu: u32, any: bool) -> bool {
    (256..=4096).contains(&mtu) && (any || mtu.is_power_of_two())
}

/// The reason why `modify` failed; the queue pair is unchanged. The verbs return EINVAL.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ModifyFault {
    /// The queue pair does not exist.
    #[error("no such queue pair")]
    NoQueuePair,
    /// The transition is not allowed, or an attribute is missing or not allowed in it.
    #[error("{0}")]
    Transition(ModifyError),
    /// The value of the attribute is out of range.
    #[error("the value of {0} is out of range")]
    Value(Attributes),
}
