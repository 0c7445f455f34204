//! The table of queue pair transitions: a row for each pair of states, a column for each service.

use crate::state::{Attributes, Rule, State};

/// One row of the table.
pub(crate) struct Transition {
    pub(crate) from: State,
    pub(crate) to: State,
    /// By [`Service`](crate::state::Service), in its order; `None`: not for this service.
    pub(crate) rules: [Option<Rule>; 5],
}

/// A set named by its members.
macro_rules! set {
    ($($name:ident)*) => { Attributes(0 $(| Attributes::$name.0)*) };
}

/// Both sets.
const fn with(a: Attributes, b: Attributes) -> Attributes {
    a.and(b)
}

const fn rule(required: Attributes, optional: Attributes) -> Option<Rule> {
    Some(Rule { required, optional })
}

const NONE: Attributes = Attributes::NONE;
/// Where a queue pair sits.
const PLACE: Attributes = set![PKEY_INDEX PORT];
/// How a connection's packets reach the peer and are numbered.
const PATH: Attributes = set![AV PATH_MTU DEST_QPN RQ_PSN];
/// What a reliable responder needs.
const RESPONDER: Attributes = set![MAX_DEST_RD_ATOMIC MIN_RNR_TIMER];
/// What a reliable requester needs.
const REQUESTER: Attributes = set![TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC];
/// What a running connection may change.
const RUNNING: Attributes = set![CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
/// And one that answers with RNR NAKs.
const RUNNING_RNR: Attributes = with(RUNNING, set![MIN_RNR_TIMER]);
/// And one that sends requests too: each such queue pair is paced.
const RUNNING_RC: Attributes = with(RUNNING_RNR, set![RATE_LIMIT]);
/// What a running datagram queue pair may change.
const RUNNING_UD: Attributes = set![CUR_STATE QKEY];
/// What a drained connection may change.
const DRAINED: Attributes = set![AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE];
/// And a reliable one.
const DRAINED_RC: Attributes = with(DRAINED, set![PORT TIMEOUT]);

/// A transition that takes nothing, for every service.
const fn plain(from: State, to: State) -> Transition {
    Transition { from, to, rules: [rule(NONE, NONE); 5] }
}

/// A transition with nothing required: the optional attributes of RC, UC, UD, XRC initiator, XRC target.
const fn optional(from: State, to: State, sets: [Attributes; 5]) -> Transition {
    let [rc, uc, ud, ini, tgt] = sets;
    let rules = [rule(NONE, rc), rule(NONE, uc), rule(NONE, ud), rule(NONE, ini), rule(NONE, tgt)];
    Transition { from, to, rules }
}

/// Every transition there is.
pub(crate) const TRANSITIONS: [Transition; 22] = {
    use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let access = set![ACCESS_FLAGS];
    let place_access = with(PLACE, access);
    let place_qkey = with(PLACE, set![QKEY]);
    [
        // Back to the start, and to the end, from anywhere; a queue pair in RESET holds nothing that could be
        // flushed.
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
            from: Reset,
            to: Init,
            rules: [
                rule(place_access, NONE),
                rule(place_access, NONE),
                rule(place_qkey, NONE),
                rule(place_access, NONE),
                rule(place_access, NONE),
            ],
        },
        optional(Init, Init, [place_access, place_access, place_qkey, place_access, place_access]),
        Transition {
            from: Init,
            to: Rtr,
            rules: [
                rule(with(PATH, RESPONDER), set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
                rule(PATH, set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
                rule(NONE, set![PKEY_INDEX QKEY]),
                rule(PATH, set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
                rule(with(PATH, RESPONDER), set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
            ],
        },
        Transition {
            from: Rtr,
            to: Rts,
            rules: [
                rule(with(REQUESTER, set![SQ_PSN]), RUNNING_RC),
                rule(set![SQ_PSN], RUNNING),
                rule(set![SQ_PSN], RUNNING_UD),
                rule(with(REQUESTER, set![SQ_PSN]), RUNNING),
                rule(set![TIMEOUT SQ_PSN], RUNNING_RNR),
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
        // A reliable service has no SQE: it goes to ERR whole.
        Transition {
            from: Sqe,
            to: Rts,
            rules: [None, rule(NONE, set![CUR_STATE ACCESS_FLAGS]), rule(NONE, RUNNING_UD), None, None],
        },
    ]
};
