//! The states of an id, and what takes it from one to the next (IBTA volume 1, chapter 12.9.7).
//!
//! The transitions are a table: what is not in it does not happen. A message without a row is dropped, a call
//! without one is refused.

mod transitions;

use std::fmt;

use transitions::TRANSITIONS;

/// The state of an id, as IBTA and Linux name them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No connection: the id is free.
    Idle,
    /// Active: the REQ waits for its answer.
    ReqSent,
    /// Active: the peer has the REQ, and needs time.
    MraReqRcvd,
    /// Passive: the program has to accept or refuse.
    ReqRcvd,
    /// Passive: the same, and the peer knows that it takes time.
    MraReqSent,
    /// Passive: the REP waits for its answer.
    RepSent,
    /// Passive: the peer has the REP, and needs time.
    MraRepRcvd,
    /// Active: the program makes its queue pair ready.
    RepRcvd,
    /// Active: the same, and the peer knows that it takes time.
    MraRepSent,
    /// Both sides are ready.
    Established,
    /// The DREQ waits for its answer.
    DreqSent,
    /// The program has to answer a DREQ.
    DreqRcvd,
    /// Packets of the connection may be on their way.
    Timewait,
    /// A SIDR_REQ waits for its answer.
    SidrReqSent,
    /// The program has to answer a SIDR_REQ.
    SidrReqRcvd,
    /// A SIDR_REQ was answered, and may come again.
    SidrRepSent,
}

impl State {
    /// All states.
    pub const ALL: [State; 16] = [
        State::Idle,
        State::ReqSent,
        State::MraReqRcvd,
        State::ReqRcvd,
        State::MraReqSent,
        State::RepSent,
        State::MraRepRcvd,
        State::RepRcvd,
        State::MraRepSent,
        State::Established,
        State::DreqSent,
        State::DreqRcvd,
        State::Timewait,
        State::SidrReqSent,
        State::SidrReqRcvd,
        State::SidrRepSent,
    ];

    /// The state after `on`; `None`: it has no place in this state.
    pub(crate) fn after(self, on: On) -> Option<State> {
        TRANSITIONS.iter().find(|row| row.from == self && row.on == on).map(|row| row.to)
    }

    /// Does a message wait for its answer, to be repeated?
    pub const fn repeats(self) -> bool {
        matches!(
            self,
            State::ReqSent
                | State::MraReqRcvd
                | State::RepSent
                | State::MraRepRcvd
                | State::DreqSent
                | State::SidrReqSent
        )
    }

    /// Is the id kept only to answer what comes late? Then it may end early, to make space.
    pub const fn lingers(self) -> bool {
        matches!(self, State::Timewait | State::SidrRepSent)
    }

    /// Does a request wait for the program, in a listener's backlog?
    pub const fn is_pending(self) -> bool {
        matches!(self, State::ReqRcvd | State::MraReqSent | State::SidrReqRcvd)
    }

    /// Is the peer's queue pair in use by this connection, so that a second one with it shows that this one is
    /// stale?
    pub(crate) const fn holds_remote_qpn(self) -> bool {
        matches!(
            self,
            State::ReqRcvd
                | State::MraReqSent
                | State::RepSent
                | State::MraRepRcvd
                | State::RepRcvd
                | State::MraRepSent
                | State::Established
                | State::DreqSent
                | State::DreqRcvd
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Idle => "IDLE",
            State::ReqSent => "REQ_SENT",
            State::MraReqRcvd => "MRA_REQ_RCVD",
            State::ReqRcvd => "REQ_RCVD",
            State::MraReqSent => "MRA_REQ_SENT",
            State::RepSent => "REP_SENT",
            State::MraRepRcvd => "MRA_REP_RCVD",
            State::RepRcvd => "REP_RCVD",
            State::MraRepSent => "MRA_REP_SENT",
            State::Established => "ESTABLISHED",
            State::DreqSent => "DREQ_SENT",
            State::DreqRcvd => "DREQ_RCVD",
            State::Timewait => "TIMEWAIT",
            State::SidrReqSent => "SIDR_REQ_SENT",
            State::SidrReqRcvd => "SIDR_REQ_RCVD",
            State::SidrRepSent => "SIDR_REP_SENT",
        })
    }
}

/// What takes an id from one state to the next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum On {
    SendReq,
    RecvReq,
    SendMra,
    RecvMraOfReq,
    RecvMraOfRep,
    SendRep,
    RecvRep,
    SendRtu,
    RecvRtu,
    /// The queue pair received before the RTU came.
    CommEst,
    SendRej,
    RecvRej,
    SendDreq,
    RecvDreq,
    SendDrep,
    RecvDrep,
    SendSidrReq,
    RecvSidrReq,
    SendSidrRep,
    RecvSidrRep,
    /// No answer came, however often the message was repeated.
    TimedOut,
    /// The time of an id that lingers is over.
    TimewaitOver,
    /// The program has no use for the answer.
    Cancel,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_table_stands_there_once() {
        for (at, row) in TRANSITIONS.iter().enumerate() {
            let again =
                TRANSITIONS.iter().skip(at + 1).any(|other| other.from == row.from && other.on == row.on);
            assert!(!again, "{} on {:?}", row.from, row.on);
        }
    }

    /// The states that can be reached from `start`.
    fn reached(start: State) -> Vec<State> {
        let mut reached = vec![start];
        let mut at = 0;
        while at < reached.len() {
            let rows = TRANSITIONS.iter().filter(|row| row.from == reached[at]);
            let new: Vec<State> = rows.map(|row| row.to).filter(|to| !reached.contains(to)).collect();
            reached.extend(new);
            at += 1;
            reached.dedup();
        }
        reached
    }

    #[test]
    fn every_state_is_reached_from_idle_and_leads_back_to_it() {
        for state in State::ALL {
            assert!(reached(State::Idle).contains(&state), "{state} is never reached");
            assert!(reached(state).contains(&State::Idle), "{state} never ends");
        }
    }

    #[test]
    fn what_repeats_times_out_what_lingers_ends_and_nothing_else_does() {
        for state in State::ALL {
            assert_eq!(state.after(On::TimedOut).is_some(), state.repeats(), "{state}");
            assert_eq!(state.after(On::TimewaitOver).is_some(), state.lingers(), "{state}");
        }
    }

    #[test]
    fn only_one_side_of_a_connection_gets_a_req_or_rep() {
        let on = |on: On| State::ALL.into_iter().filter(move |state| state.after(on).is_some());
        assert!(on(On::RecvReq).eq([State::Idle]));
        assert!(on(On::RecvRep).eq([State::ReqSent, State::MraReqRcvd]));
        assert!(on(On::RecvRtu).eq([State::RepSent, State::MraRepRcvd]));
    }
}
