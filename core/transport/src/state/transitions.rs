//! The table of queue pair transitions, with a row per pair of states and a column per service.

use crate::state::{Attributes, ModifyError, Rule, Service, State};

/// A row of the table.
pub(crate) struct Transition {
    pub(crate) source: State,
    pub(crate) target: State,
    /// Rules in the order of [`Service`](crate::state::Service); `None` if the service has no such
    /// transition.
    pub(crate) rules: [Option<Rule>; 5],
}

/// Returns the set of the named attributes.
macro_rules! set {
    ($($name:ident)*) => { Attributes(0 $(| Attributes::$name.0)*) };
}

/// Returns the union of both sets.
const fn with(a: Attributes, b: Attributes) -> Attributes {
    a.and(b)
}

const fn needs(required: Attributes, optional: Attributes) -> Option<Rule> {
    Some(Rule { required, optional })
}

const NONE: Attributes = Attributes::NONE;
/// Attributes that bind a queue pair to a port and a partition.
const PLACE: Attributes = set![PKEY_INDEX PORT];
/// Attributes of a connection's path and packet sequence.
const PATH: Attributes = set![AV PATH_MTU DEST_QPN RQ_PSN];
/// Attributes of a reliable responder.
const RESPONDER: Attributes = set![MAX_DEST_RD_ATOMIC MIN_RNR_TIMER];
/// Attributes of a reliable requester.
const REQUESTER: Attributes = set![TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC];
/// Attributes that may change while a connection is running.
const RUNNING: Attributes = set![CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
/// `RUNNING` and the RNR timer, for services that send RNR NAKs.
const RUNNING_RNR: Attributes = with(RUNNING, set![MIN_RNR_TIMER]);
/// `RUNNING_RNR` and the rate limit, for services that also send requests.
const RUNNING_RC: Attributes = with(RUNNING_RNR, set![RATE_LIMIT]);
/// Attributes that may change while a datagram queue pair is running.
const RUNNING_UD: Attributes = set![CUR_STATE QKEY];
/// Attributes that may change while the send queue of a connection is drained.
const DRAINED: Attributes = set![AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE];
/// `DRAINED` and the additional attributes of reliable services.
const DRAINED_RC: Attributes = with(DRAINED, set![PORT TIMEOUT]);

/// Returns a transition without attributes for every service.
const fn plain(source: State, target: State) -> Transition {
    Transition { source, target, rules: [needs(NONE, NONE); 5] }
}

/// Returns a transition without required attributes. `sets` has the optional attributes of RC, UC, UD, XRC
/// initiator and XRC target.
const fn optional(source: State, target: State, sets: [Attributes; 5]) -> Transition {
    let [rc, uc, ud, ini, tgt] = sets;
    let rules = [needs(NONE, rc), needs(NONE, uc), needs(NONE, ud), needs(NONE, ini), needs(NONE, tgt)];
    Transition { source, target, rules }
}

/// All valid transitions.
pub(crate) const TRANSITIONS: [Transition; 22] = {
    use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let access = set![ACCESS_FLAGS];
    let place_access = with(PLACE, access);
    let place_qkey = with(PLACE, set![QKEY]);
    [
        // Every state may go to RESET, and every state but RESET to ERR, because a queue pair in RESET has
        // nothing to flush.
        plain(Reset, Reset),
        plain(Init, Reset),
        plain(Rtr, Reset),
        plain(Rts, Reset),
        plain(Sqd, Reset),
        plain(Sqe, Reset),
        plain(Err, Reset),
        plain(Init, Err),
        plain(Rtr, Err),
        plain(Rts, Err),
        plain(Sqd, Err),
        plain(Sqe, Err),
        plain(Err, Err),
        Transition {
            source: Reset,
            target: Init,
            rules: [
                needs(place_access, NONE),
                needs(place_access, NONE),
                needs(place_qkey, NONE),
                needs(place_access, NONE),
                needs(place_access, NONE),
            ],
        },
        optional(Init, Init, [place_access, place_access, place_qkey, place_access, place_access]),
        Transition {
            source: Init,
            target: Rtr,
            rules: [
                needs(with(PATH, RESPONDER), set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
                needs(PATH, set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
                needs(NONE, set![PKEY_INDEX QKEY]),
                needs(PATH, set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
                needs(with(PATH, RESPONDER), set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
            ],
        },
        Transition {
            source: Rtr,
            target: Rts,
            rules: [
                needs(with(REQUESTER, set![SQ_PSN]), RUNNING_RC),
                needs(set![SQ_PSN], RUNNING),
                needs(set![SQ_PSN], RUNNING_UD),
                needs(with(REQUESTER, set![SQ_PSN]), RUNNING),
                needs(set![TIMEOUT SQ_PSN], RUNNING_RNR),
            ],
        },
        optional(Rts, Rts, [RUNNING_RC, RUNNING, RUNNING_UD, RUNNING, RUNNING_RNR]),
        optional(Rts, Sqd, [set![EN_SQD_ASYNC_NOTIFY]; 5]),
        optional(Sqd, Rts, [RUNNING_RC, RUNNING, RUNNING_UD, RUNNING, RUNNING_RNR]),
        optional(
            Sqd,
            Sqd,
            [
                with(DRAINED_RC, with(REQUESTER, RESPONDER)),
                DRAINED,
                set![PKEY_INDEX QKEY],
                with(DRAINED_RC, REQUESTER),
                with(DRAINED_RC, RESPONDER),
            ],
        ),
        // Reliable services have no SQE; their queue pairs go to ERR instead.
        Transition {
            source: Sqe,
            target: Rts,
            rules: [None, needs(NONE, set![CUR_STATE ACCESS_FLAGS]), needs(NONE, RUNNING_UD), None, None],
        },
    ]
};

/// Checks that a queue pair of this service may go from `current` to `target` with these attributes.
///
/// `given` is the attribute mask of the call. `STATE` in the mask is ignored; a call without `STATE` has
/// `target` equal to `current`.
///
/// # Errors
/// The first applicable [`ModifyError`], in the order of its variants.
pub fn modify(current: State, target: State, service: Service, given: Attributes) -> Result<(), ModifyError> {
    let Some(row) = TRANSITIONS.iter().find(|row| row.source == current && row.target == target) else {
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

/// Returns the attributes of a transition, or `None` if the transition is invalid.
pub fn rule(current: State, target: State, service: Service) -> Option<Rule> {
    TRANSITIONS.iter().find(|row| row.source == current && row.target == target)?.rules[service as usize]
}
