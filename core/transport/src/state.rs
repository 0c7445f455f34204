//! The states of a queue pair, the behaviour of its queues in each state, and the attributes of each
//! transition.
//!
//! The transitions are a table (IBTA vol. 1 §10.3.1 and §11.2.5.2, as in the verbs API). Other transitions
//! are invalid, and so is an attribute that is neither required nor optional.
//! `docs/reference/queue-pair-states.md` shows the
//! table.

mod transitions;

use serde::{Deserialize, Serialize};
use std::fmt;
pub use transitions::{modify, rule};

/// State of a queue pair, numbered as `ibv_qp_state`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum State {
    /// Newly created: nothing can be posted or received.
    Reset = 0,
    /// Receives may be posted, but no packet is accepted.
    Init = 1,
    /// Ready to receive: requests of the peer are served, but none are sent.
    Rtr = 2,
    /// Ready to send: fully operational.
    Rts = 3,
    /// Send queue drained or draining: requests in progress are finished, and no new ones are started.
    Sqd = 4,
    /// Send queue error: the send side stopped at a failed request, while the receive side continues.
    /// Unreliable services only.
    Sqe = 5,
    /// Error: all posted requests are flushed.
    Err = 6,
}

impl State {
    /// All states, in numeric order.
    pub const ALL: [State; 7] =
        [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];

    /// Returns the state with this number, or `None` if the number is invalid.
    pub const fn from_number(number: u8) -> Option<State> {
        if (number as usize) < State::ALL.len() { Some(State::ALL[number as usize]) } else { None }
    }

    /// Returns the behaviour of the send queue.
    pub const fn send_queue(self) -> Queue {
        match self {
            State::Reset | State::Init | State::Rtr => Queue::Refuses,
            State::Rts => Queue::Works,
            State::Sqd => Queue::Holds,
            State::Sqe | State::Err => Queue::Flushes,
        }
    }

    /// Returns the behaviour of the receive queue.
    pub const fn receive_queue(self) -> Queue {
        match self {
            State::Reset => Queue::Refuses,
            State::Init => Queue::Holds,
            State::Rtr | State::Rts | State::Sqd | State::Sqe => Queue::Works,
            State::Err => Queue::Flushes,
        }
    }

    /// Returns true if packets from the peer are processed. Otherwise they are dropped without an answer.
    pub const fn hears(self) -> bool {
        matches!(self, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"][*self as usize])
    }
}

/// The behaviour of a work queue in a state (IBTA vol. 1 §10.3.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Posting a request is an immediate error.
    Refuses,
    /// Posting is accepted, but no new request is started.
    Holds,
    /// Posted requests are executed.
    Works,
    /// Posted requests complete at once with status "flushed in error".
    Flushes,
}

/// Transport service of a queue pair (`ibv_qp_type`). XRC has separate values for its two sides.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection service.
    Rc = 0,
    /// Unreliable connection service.
    Uc = 1,
    /// Unreliable datagram service.
    Ud = 2,
    /// Extended reliable connection, requester side.
    XrcInitiator = 3,
    /// Extended reliable connection, responder side.
    XrcTarget = 4,
}

impl Service {
    /// All services, in the order of the table's columns.
    pub const ALL: [Service; 5] =
        [Service::Rc, Service::Uc, Service::Ud, Service::XrcInitiator, Service::XrcTarget];
}

/// A set of queue pair attributes, with the bits of `ibv_qp_attr_mask`.
#[derive(Copy, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attributes(pub u32);

macro_rules! attributes {
    ($($name:ident = $bit:literal, $doc:literal;)*) => {
        impl Attributes {
            $(#[doc = $doc] pub const $name: Attributes = Attributes(1 << $bit);)*

            /// All attributes with their names, in the order of the bits.
            pub const NAMED: &[(Attributes, &str)] = &[$((Attributes::$name, stringify!($name))),*];
        }
    };
}

attributes! {
    STATE = 0, "The new state.";
    CUR_STATE = 1, "The state that the caller believes to be current.";
    EN_SQD_ASYNC_NOTIFY = 2, "Requests an event when the send queue has drained.";
    ACCESS_FLAGS = 3, "Remote access rights of the peer.";
    PKEY_INDEX = 4, "Index of the partition key.";
    PORT = 5, "Number of the port.";
    QKEY = 6, "Q_Key that datagrams must carry.";
    AV = 7, "Address vector: the path to the peer.";
    PATH_MTU = 8, "Maximum payload of a packet.";
    TIMEOUT = 9, "Code of the local ACK timeout.";
    RETRY_CNT = 10, "Number of retries without an answer.";
    RNR_RETRY = 11, "Number of retries after RNR NAKs.";
    RQ_PSN = 12, "First PSN of the peer.";
    MAX_QP_RD_ATOMIC = 13, "Maximum number of outstanding READs and atomics as requester.";
    ALT_PATH = 14, "Alternate path, used after a path migration.";
    MIN_RNR_TIMER = 15, "Code of the RNR NAK timer.";
    SQ_PSN = 16, "First PSN of this side.";
    MAX_DEST_RD_ATOMIC = 17, "Maximum number of outstanding READs and atomics as responder.";
    PATH_MIG_STATE = 18, "Path migration state: armed, rearmed or migrated.";
    CAP = 19, "Sizes of the work queues.";
    DEST_QPN = 20, "Queue pair number of the peer.";
    RATE_LIMIT = 25, "Maximum transmission rate.";
}

impl Attributes {
    /// The empty set.
    pub const NONE: Attributes = Attributes(0);

    /// Returns the union of both sets.
    pub const fn and(self, other: Attributes) -> Attributes {
        Attributes(self.0 | other.0)
    }

    /// Returns the attributes of this set that are not in `other`.
    pub const fn without(self, other: Attributes) -> Attributes {
        Attributes(self.0 & !other.0)
    }

    /// Returns true if all attributes of `other` are in this set.
    pub const fn contains(self, other: Attributes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = *self;
        let mut between = "";
        for (attribute, name) in Attributes::NAMED.iter().filter(|(attribute, _)| self.contains(*attribute)) {
            write!(f, "{between}{name}")?;
            left = left.without(*attribute);
            between = " ";
        }
        if left.is_empty() { Ok(()) } else { write!(f, "{between}{:#x}", left.0) }
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attributes({self})")
    }
}

/// The attributes of one transition for one service.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Rule {
    /// Attributes that the caller must supply.
    pub required: Attributes,
    /// Attributes that the caller may supply.
    pub optional: Attributes,
}

/// The reason why a modification is refused. The queue pair is unchanged. The verbs API reports `EINVAL` for
/// all of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ModifyError {
    /// The transition between these states is invalid for every service.
    #[error("a queue pair cannot go from {0} to {1}")]
    NoTransition(State, State),
    /// The transition is invalid for this service.
    #[error("a queue pair of service {2:?} cannot go from {0} to {1}")]
    NotThisService(State, State, Service),
    /// These required attributes are missing.
    #[error("this transition needs {0}")]
    Missing(Attributes),
    /// These attributes are not allowed in this transition.
    #[error("this transition does not take {0}")]
    Excess(Attributes),
}
