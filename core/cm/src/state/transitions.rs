//! The table of an id's transitions: a row for each state and each event that is possible in it.

use super::{CmState, On};

/// A row of the table.
pub(super) struct Transition {
    pub(super) source: CmState,
    pub(super) on: On,
    pub(super) target: CmState,
}

const fn row(source: CmState, on: On, target: CmState) -> Transition {
    Transition { source, on, target }
}

/// The transitions of both sides of a connection.
pub(super) const TRANSITIONS: [Transition; 56] = {
    use CmState::*;
    use On::*;
    [
        row(Idle, SendReq, ReqSent),
        row(Idle, RecvReq, ReqRcvd),
        row(Idle, SendSidrReq, SidrReqSent),
        row(Idle, RecvSidrReq, SidrReqRcvd),
        // The active side.
        row(ReqSent, RecvMraOfReq, MraReqRcvd),
        row(ReqSent, RecvRep, RepRcvd),
        row(ReqSent, RecvRej, Idle),
        row(ReqSent, SendRej, Idle),
        row(ReqSent, TimedOut, Idle),
        row(MraReqRcvd, RecvRep, RepRcvd),
        row(MraReqRcvd, RecvRej, Idle),
        row(MraReqRcvd, SendRej, Idle),
        row(MraReqRcvd, TimedOut, Idle),
        row(RepRcvd, SendMra, MraRepSent),
        row(RepRcvd, SendRtu, Established),
        row(RepRcvd, SendRej, Idle),
        row(RepRcvd, RecvRej, Timewait),
        row(MraRepSent, SendMra, MraRepSent),
        row(MraRepSent, SendRtu, Established),
        row(MraRepSent, SendRej, Idle),
        row(MraRepSent, RecvRej, Timewait),
        // The passive side.
        row(ReqRcvd, SendMra, MraReqSent),
        row(ReqRcvd, SendRep, RepSent),
        row(ReqRcvd, SendRej, Idle),
        row(ReqRcvd, RecvRej, Idle),
        row(MraReqSent, SendMra, MraReqSent),
        row(MraReqSent, SendRep, RepSent),
        row(MraReqSent, SendRej, Idle),
        row(MraReqSent, RecvRej, Idle),
        row(RepSent, RecvMraOfRep, MraRepRcvd),
        row(RepSent, RecvRtu, Established),
        row(RepSent, CommEst, Established),
        row(RepSent, SendRej, Timewait),
        row(RepSent, RecvRej, Idle),
        row(RepSent, RecvDreq, DreqRcvd),
        row(RepSent, TimedOut, Timewait),
        row(MraRepRcvd, RecvRtu, Established),
        row(MraRepRcvd, CommEst, Established),
        row(MraRepRcvd, SendRej, Timewait),
        row(MraRepRcvd, RecvRej, Idle),
        row(MraRepRcvd, RecvDreq, DreqRcvd),
        row(MraRepRcvd, TimedOut, Timewait),
        // Both sides. A peer that refuses an established connection has lost it.
        row(Established, SendDreq, DreqSent),
        row(Established, RecvDreq, DreqRcvd),
        row(Established, RecvRej, Timewait),
        // If both sides ask at once, each answers and does not wait for the other's answer.
        row(DreqSent, RecvDreq, Timewait),
        row(DreqSent, RecvDrep, Timewait),
        row(DreqSent, RecvRej, Timewait),
        row(DreqSent, TimedOut, Timewait),
        row(DreqRcvd, SendDrep, Timewait),
        row(Timewait, TimewaitOver, Idle),
        // Datagram services.
        row(SidrReqSent, RecvSidrRep, Idle),
        row(SidrReqSent, TimedOut, Idle),
        row(SidrReqSent, Cancel, Idle),
        row(SidrReqRcvd, SendSidrRep, SidrRepSent),
        row(SidrRepSent, TimewaitOver, Idle),
    ]
};

impl CmState {
    /// Returns the state after `on`; `None` if the state has no transition for it.
    pub(crate) fn after(self, on: On) -> Option<CmState> {
        TRANSITIONS.iter().find(|row| row.source == self && row.on == on).map(|row| row.target)
    }
}
