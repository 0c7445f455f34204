//! The states of a queue pair, what each lets its queues do, and which attributes each transition takes.
//!
//! The transitions are a table (IBTA vol. 1 §10.3.1 and §11.2.5.2, as the verbs API has it): a transition
//! that is not in the table does not exist; an attribute that is neither required nor optional may not be
//! given. `docs/QP_STATES.md` is this table, drawn.

mod transitions;

use std::fmt;
use transitions::TRANSITIONS;

/// A queue pair's state, numbered as `ibv_qp_state`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// As created: nothing is accepted.
    Reset = 0,
    /// Receives may be posted; nothing arrives yet.
    Init = 1,
    /// Ready to receive: requests are served, none are made.
    Rtr = 2,
    /// Ready to send: all of it works.
    Rts = 3,
    /// Send queue drained (or draining): what was begun is finished, nothing new is begun.
    Sqd = 4,
    /// Send queue error: the send side stopped at a failed request, the receive side goes on. Not for
    /// reliable services.
    Sqe = 5,
    /// Everything posted is flushed.
    Err = 6,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; 7] =
        [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];

    /// The state of this number.
    pub const fn from_number(number: u8) -> Option<State> {
        if (number as usize) < State::ALL.len() { Some(State::ALL[number as usize]) } else { None }
    }

    /// What the send queue does.
    pub const fn send_queue(self) -> Queue {
        match self {
            State::Reset | State::Init | State::Rtr => Queue::Refuses,
            State::Rts => Queue::Works,
            State::Sqd => Queue::Holds,
            State::Sqe | State::Err => Queue::Flushes,
        }
    }

    /// What the receive queue does.
    pub const fn receive_queue(self) -> Queue {
        match self {
            State::Reset => Queue::Refuses,
            State::Init => Queue::Holds,
            State::Rtr | State::Rts | State::Sqd | State::Sqe => Queue::Works,
            State::Err => Queue::Flushes,
        }
    }

    /// Are packets from the peer looked at? Where not, they are dropped without an answer.
    pub const fn hears(self) -> bool {
        matches!(self, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"][*self as usize])
    }
}

/// What a work queue does with what is posted to it (IBTA vol. 1 §10.3.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Posting is an error at once.
    Refuses,
    /// Posting is accepted; nothing new is begun.
    Holds,
    /// Posted requests are executed.
    Works,
    /// Posted requests complete at once with "flushed in error".
    Flushes,
}

/// A queue pair's transport service, the requester's and the responder's half of XRC apart (`ibv_qp_type`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 2,
    /// Extended reliable connection, the side that requests.
    XrcInitiator = 3,
    /// Extended reliable connection, the side that responds.
    XrcTarget = 4,
}

impl Service {
    /// All services, in the order of the table's columns.
    pub const ALL: [Service; 5] =
        [Service::Rc, Service::Uc, Service::Ud, Service::XrcInitiator, Service::XrcTarget];
}

/// A set of queue pair attributes, its bits numbered as `ibv_qp_attr_mask`.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct Attributes(pub u32);

macro_rules! attributes {
    ($($name:ident = $bit:literal, $doc:literal;)*) => {
        impl Attributes {
            $(#[doc = $doc] pub const $name: Attributes = Attributes(1 << $bit);)*

            /// Each attribute by its name, in the order of the bits.
            pub const NAMED: &[(Attributes, &str)] = &[$((Attributes::$name, stringify!($name))),*];
        }
    };
}

attributes! {
    STATE = 0, "The state to go to.";
    CUR_STATE = 1, "The state the caller believes it is in.";
    EN_SQD_ASYNC_NOTIFY = 2, "Ask for an event when the send queue has drained.";
    ACCESS_FLAGS = 3, "What the peer may do to memory.";
    PKEY_INDEX = 4, "Which partition key.";
    PORT = 5, "Which port.";
    QKEY = 6, "The key a datagram must carry.";
    AV = 7, "The path to the peer.";
    PATH_MTU = 8, "Payload bytes in a packet at most.";
    TIMEOUT = 9, "The local ACK timeout's code.";
    RETRY_CNT = 10, "Times to send again without an answer.";
    RNR_RETRY = 11, "Times to send again after \"receiver not ready\".";
    RQ_PSN = 12, "The PSN the peer starts with.";
    MAX_QP_RD_ATOMIC = 13, "READs and atomics outstanding as requester.";
    ALT_PATH = 14, "The path to fail over to.";
    MIN_RNR_TIMER = 15, "The RNR NAK timer's code.";
    SQ_PSN = 16, "The PSN this side starts with.";
    MAX_DEST_RD_ATOMIC = 17, "READs and atomics held as responder.";
    PATH_MIG_STATE = 18, "Path migration: armed, rearmed or migrated.";
    CAP = 19, "The sizes of the work queues.";
    DEST_QPN = 20, "The peer's queue pair number.";
    RATE_LIMIT = 25, "Pacing.";
}

impl Attributes {
    /// No attribute.
    pub const NONE: Attributes = Attributes(0);

    /// Both sets together.
    pub const fn and(self, other: Attributes) -> Attributes {
        Attributes(self.0 | other.0)
    }

    /// This set without the other.
    pub const fn without(self, other: Attributes) -> Attributes {
        Attributes(self.0 & !other.0)
    }

    /// Are all of `other` in this set?
    pub const fn contains(self, other: Attributes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is the set empty?
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

/// The attributes of one transition of one service.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Rule {
    /// Must be given.
    pub required: Attributes,
    /// May be given.
    pub optional: Attributes,
}

/// Why a modification is refused; the queue pair stays as it was. In the verbs API all of them are `EINVAL`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// No queue pair goes from the one state to the other.
    NoTransition(State, State),
    /// Queue pairs do, but not those of this service.
    NotThisService(State, State, Service),
    /// These attributes are required and were not given.
    Missing(Attributes),
    /// These attributes have no place in this transition.
    Excess(Attributes),
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModifyError::NoTransition(from, to) => write!(f, "a queue pair cannot go from {from} to {to}"),
            ModifyError::NotThisService(from, to, service) => {
                write!(f, "a queue pair of service {service:?} cannot go from {from} to {to}")
            }
            ModifyError::Missing(attributes) => write!(f, "this transition needs {attributes}"),
            ModifyError::Excess(attributes) => write!(f, "this transition does not take {attributes}"),
        }
    }
}

impl std::error::Error for ModifyError {}

/// May a queue pair of this service go from `current` to `target` with these attributes?
///
/// `given` is the mask of the call; whether `STATE` is in it does not matter (without it, `target` is
/// `current`).
///
/// # Errors
/// See [`ModifyError`]; the first of its reasons that holds.
pub fn modify(current: State, target: State, service: Service, given: Attributes) -> Result<(), ModifyError> {
    let Some(row) = TRANSITIONS.iter().find(|row| row.from == current && row.to == target) else {
        return Err(ModifyError::NoTransition(current, target));
    };
    let Some(rule) = row.rules[service as usize] else {
        return Err(ModifyError::NotThisService(current, target, service));
    };
    let missing = rule.required.without(given);
    if !missing.is_empty() {
        return Err(ModifyError::Missing(missing));
    }
    let excess = given.without(rule.required.and(rule.optional).and(Attributes::STATE));
    if excess.is_empty() { Ok(()) } else { Err(ModifyError::Excess(excess)) }
}

/// The attributes of a transition, or `None` where there is none.
pub fn rule(current: State, target: State, service: Service) -> Option<Rule> {
    TRANSITIONS.iter().find(|row| row.from == current && row.to == target)?.rules[service as usize]
}
