//! The attributes of a queue pair, and which values they may have.

use remora_memory::Access;
use remora_transport::Parameters;
use remora_transport::congestion::Algorithm;
use remora_transport::state::{Attributes, ModifyError, State};
use remora_wire::frame::{Class, Peer, Route};
use remora_wire::{Psn, Qpn};

/// Where a queue pair's packets go: its address vector, resolved for the port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The port's name for the peer.
    pub peer: Peer,
    /// Headers on the way there; the destination address is also what the peer's packets must come from.
    pub route: Route,
    /// The traffic class of its frames (`ibv_ah_attr.sl`), on ports that tell classes apart.
    pub class: Class,
    /// The frames that a connection takes for the peer's.
    pub accepts: PeerFrames,
}

/// The frames with the peer's address that a connection takes for the peer's. Datagrams are taken from
/// anyone.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerFrames {
    /// From any UDP port: RoCE leaves the source port to the sender. Not by a link of a shared address.
    #[default]
    AnyPort,
    /// From this UDP port, by which the peer is known to send.
    Port(u16),
    /// By the link to the program that has the peer's QPN range of the shared address, and in no other way.
    Link,
}

impl AddressVector {
    /// In class 0, with the peer's frames from any UDP port.
    pub const fn new(peer: Peer, route: Route) -> AddressVector {
        AddressVector { peer, route, class: Class::new(0), accepts: PeerFrames::AnyPort }
    }
}

/// What `modify` shall change; `None` leaves an attribute alone (`ibv_qp_attr` and its mask).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Modify {
    /// Next state.
    pub state: Option<State>,
    /// What the peer may do (of [`Access`], the REMOTE_ bits).
    pub access: Option<Access>,
    /// Partition key index: this port has one key, 0xffff, at index 0.
    pub pkey_index: Option<u16>,
    /// Port number: 1.
    pub port: Option<u8>,
    /// Where packets go.
    pub address: Option<AddressVector>,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: Option<u32>,
    /// The peer's queue pair.
    pub dest_qp: Option<Qpn>,
    /// First PSN that the peer will send.
    pub rq_psn: Option<Psn>,
    /// First PSN that we send.
    pub sq_psn: Option<Psn>,
    /// READs and atomics outstanding as requester, 0 to 128.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics held as responder, 0 to 128.
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR NAK timer code that the peer is asked to wait, 0 to 31.
    pub min_rnr_timer: Option<u8>,
    /// Local ACK timeout code, 0 to 31; 0 waits for ever.
    pub timeout: Option<u8>,
    /// Retries after a timeout or sequence NAK, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Retries after RNR, 0 to 7; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// Bits per second at most; 0 is no limit.
    pub rate_limit: Option<u64>,
    /// The Q_Key that datagrams must carry.
    pub qkey: Option<u32>,
    /// The state that the program believes the queue pair to be in; another is an error.
    pub current: Option<State>,
    /// SQD: whether an event shall tell that the send queue has drained. It does unless this is false.
    pub sqd_event: Option<bool>,
    /// A path to fail over to. RoCE has none: any is an error, as the kernel's verbs say of RoCE NICs.
    pub alternate: Option<AddressVector>,
    /// Path migration: kept and shown, and without effect where there is one path only.
    pub path_migration: Option<PathMigration>,
    /// On the way to RTR: IRN is agreed with the peer, which remembers so many packets ahead of the order.
    /// Without it the queue pair is plain RC, which goes back N. Not one of `ibv_qp_attr`'s: set-up agrees on
    /// it.
    pub irn: Option<u32>,
    /// On the way to RTR: PRISM is agreed with the peer. Not one of `ibv_qp_attr`'s: set-up agrees on it.
    pub prism: Option<bool>,
    /// On the way to RTR: StRoM is agreed with the peer. Not one of `ibv_qp_attr`'s: set-up agrees on it.
    pub strom: Option<bool>,
    /// On the way to RTR: packets in flight to this peer at most, where the NIC's own window is not the
    /// peer's. Not one of `ibv_qp_attr`'s either.
    pub window: Option<u32>,
    /// Congestion control, instead of the one that the NIC was configured for. Not one of `ibv_qp_attr`'s
    /// either.
    pub congestion: Option<Algorithm>,
}

/// States of path migration, numbered as `ibv_mig_state`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PathMigration {
    /// On the primary path (IBTA's initial state).
    #[default]
    Migrated = 0,
    /// An alternate path is being loaded.
    Rearm = 1,
    /// Ready to fail over.
    Armed = 2,
}

/// The attributes that a queue pair has been given so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub parameters: Parameters,
    /// All attributes as they were given last.
    pub given: Modify,
}

impl Modify {
    /// The attribute bits that are given, numbered as `ibv_qp_attr_mask`.
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

    /// This, and what the later change gives anew.
    pub(crate) fn followed_by(&self, later: &Modify) -> Modify {
        macro_rules! latest {
            ($($name:ident)*) => { Modify { $($name: later.$name.or(self.$name),)* } };
        }
        latest!(state access pkey_index port address path_mtu dest_qp rq_psn sq_psn max_rd_atomic max_dest_rd_atomic
            min_rnr_timer timeout retry_cnt rnr_retry rate_limit qkey current sqd_event alternate path_migration irn prism strom
            window congestion)
    }

    /// Values that no transition takes.
    pub(crate) fn check_values(&self, state: State, any_path_mtu: bool) -> Result<(), ModifyFault> {
        let over = |value: Option<u8>, most: u8| value.is_some_and(|value| value > most);
        let bad = [
            (self.path_mtu.is_some_and(|mtu| !is_path_mtu(mtu, any_path_mtu)), "path_mtu"),
            (over(self.max_rd_atomic, 128), "max_rd_atomic"),
            (over(self.max_dest_rd_atomic, 128), "max_dest_rd_atomic"),
            (over(self.min_rnr_timer, 31), "min_rnr_timer"),
            (over(self.timeout, 31), "timeout"),
            (over(self.retry_cnt, 7), "retry_cnt"),
            (over(self.rnr_retry, 7), "rnr_retry"),
            (self.pkey_index.is_some_and(|index| index != 0), "pkey_index"),
            (self.port.is_some_and(|port| port != 1), "port"),
            (self.current.is_some_and(|current| current != state), "current"),
            (self.alternate.is_some(), "alternate"),
        ];
        match bad.into_iter().find(|(is_bad, _)| *is_bad) {
            Some((_, name)) => Err(ModifyFault::Value(name)),
            None => Ok(()),
        }
    }
}

/// Is it a path MTU (IBTA vol. 1 §11.2.5.2), or any number between the least and the most?
fn is_path_mtu(mtu: u32, any: bool) -> bool {
    (256..=4096).contains(&mtu) && (any || mtu.is_power_of_two())
}

/// Why `modify` refused; the queue pair is unchanged. EINVAL in the verbs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ModifyFault {
    /// No such queue pair.
    NoQueuePair,
    /// The transition or its attributes.
    Transition(ModifyError),
    /// The value of this attribute.
    Value(&'static str),
}

impl std::fmt::Display for ModifyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ModifyFault::NoQueuePair => f.write_str("no such queue pair"),
            ModifyFault::Transition(error) => error.fmt(f),
            ModifyFault::Value(name) => write!(f, "the value of {name} is out of range"),
        }
    }
}

impl std::error::Error for ModifyFault {}
