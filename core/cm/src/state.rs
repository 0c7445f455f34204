//! The states of an id, and the transitions between them (IBTA volume 1, chapter 12.9.7).
//!
//! The transitions are a table, and only these transitions are possible: a message without a row in the
//! current state is dropped, a call without one is refused. `docs/reference/cm-states.md` shows the table.

mod transitions;

use std::fmt;

/// The state of an id, named as in IBTA and Linux.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CmState {
    /// No connection: the id is free.
    Idle,
    /// Active side: the REQ was sent and is not answered yet.
    ReqSent,
    /// Active side: the peer has received the REQ and needs time to answer (MRA).
    MraReqRcvd,
    /// Passive side: a REQ was received; the program must accept or refuse it.
    ReqRcvd,
    /// Passive side: like `ReqRcvd`, and an MRA has told the peer that the answer takes time.
    MraReqSent,
    /// Passive side: the REP was sent and is not answered yet.
    RepSent,
    /// Passive side: the peer has received the REP and needs time to answer (MRA).
    MraRepRcvd,
    /// Active side: a REP was received; the program makes its queue pair ready.
    RepRcvd,
    /// Active side: like `RepRcvd`, and an MRA has told the peer that the answer takes time.
    MraRepSent,
    /// The connection is established.
    Established,
    /// The DREQ was sent and is not answered yet.
    DreqSent,
    /// A DREQ was received; the program must answer it.
    DreqRcvd,
    /// The connection has ended; packets of it may still be in flight.
    Timewait,
    /// The SIDR_REQ was sent and is not answered yet.
    SidrReqSent,
    /// A SIDR_REQ was received; the program must answer it.
    SidrReqRcvd,
    /// A SIDR_REQ was answered; a repetition of it may still arrive.
    SidrRepSent,
}

impl CmState {
    /// All states in the order of their declaration.
    pub const ALL: [CmState; 16] = [
        CmState::Idle,
        CmState::ReqSent,
        CmState::MraReqRcvd,
        CmState::ReqRcvd,
        CmState::MraReqSent,
        CmState::RepSent,
        CmState::MraRepRcvd,
        CmState::RepRcvd,
        CmState::MraRepSent,
        CmState::Established,
        CmState::DreqSent,
        CmState::DreqRcvd,
        CmState::Timewait,
        CmState::SidrReqSent,
        CmState::SidrReqRcvd,
        CmState::SidrRepSent,
    ];

    /// Returns whether the last message waits for an answer and is repeated.
    pub const fn repeats(self) -> bool {
        matches!(
            self,
            CmState::ReqSent
                | CmState::MraReqRcvd
                | CmState::RepSent
                | CmState::MraRepRcvd
                | CmState::DreqSent
                | CmState::SidrReqSent
        )
    }

    /// Returns whether the id is kept only to answer late messages. Such an id may be ended early to make
    /// space.
    pub const fn lingers(self) -> bool {
        matches!(self, CmState::Timewait | CmState::SidrRepSent)
    }

    /// Returns whether a request waits for the program, in a listener's backlog.
    pub const fn is_pending(self) -> bool {
        matches!(self, CmState::ReqRcvd | CmState::MraReqSent | CmState::SidrReqRcvd)
    }

    /// Returns whether a connection was requested but is not established yet.
    pub(crate) const fn precedes_established(self) -> bool {
        matches!(
            self,
            CmState::ReqSent
                | CmState::MraReqRcvd
                | CmState::ReqRcvd
                | CmState::MraReqSent
                | CmState::RepSent
                | CmState::MraRepRcvd
                | CmState::RepRcvd
                | CmState::MraRepSent
        )
    }

    /// Returns whether the connection uses the peer's queue pair. A second connection with that queue pair
    /// then shows that this one is stale.
    pub(crate) const fn holds_remote_qpn(self) -> bool {
        matches!(
            self,
            CmState::ReqRcvd
                | CmState::MraReqSent
                | CmState::RepSent
                | CmState::MraRepRcvd
                | CmState::RepRcvd
                | CmState::MraRepSent
                | CmState::Established
                | CmState::DreqSent
                | CmState::DreqRcvd
        )
    }
}

impl fmt::Display for CmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CmState::Idle => "IDLE",
            CmState::ReqSent => "REQ_SENT",
            CmState::MraReqRcvd => "MRA_REQ_RCVD",
            CmState::ReqRcvd => "REQ_RCVD",
            CmState::MraReqSent => "MRA_REQ_SENT",
            CmState::RepSent => "REP_SENT",
            CmState::MraRepRcvd => "MRA_REP_RCVD",
            CmState::RepRcvd => "REP_RCVD",
            CmState::MraRepSent => "MRA_REP_SENT",
            CmState::Established => "ESTABLISHED",
            CmState::DreqSent => "DREQ_SENT",
            CmState::DreqRcvd => "DREQ_RCVD",
            CmState::Timewait => "TIMEWAIT",
            CmState::SidrReqSent => "SIDR_REQ_SENT",
            CmState::SidrReqRcvd => "SIDR_REQ_RCVD",
            CmState::SidrRepSent => "SIDR_REP_SENT",
        })
    }
}

/// An event that moves an id from one state to the next.
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
    /// The queue pair has received a packet before the RTU arrived.
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
    /// No answer arrived in spite of all repetitions.
    TimedOut,
    /// The time for which an id lingers is over.
    TimewaitOver,
    /// The program does not need the answer any more.
    Cancel,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            On::SendReq => "send REQ",
            On::RecvReq => "receive REQ",
            On::SendMra => "send MRA",
            On::RecvMraOfReq => "receive MRA for REQ",
            On::RecvMraOfRep => "receive MRA for REP",
            On::SendRep => "send REP",
            On::RecvRep => "receive REP",
            On::SendRtu => "send RTU",
            On::RecvRtu => "receive RTU",
            On::CommEst => "communication established",
            On::SendRej => "send REJ",
            On::RecvRej => "receive REJ",
            On::SendDreq => "send DREQ",
            On::RecvDreq => "receive DREQ",
            On::SendDrep => "send DREP",
            On::RecvDrep => "receive DREP",
            On::SendSidrReq => "send SIDR_REQ",
            On::RecvSidrReq => "receive SIDR_REQ",
            On::SendSidrRep => "send SIDR_REP",
            On::RecvSidrRep => "receive SIDR_REP",
            On::TimedOut => "no answer",
            On::TimewaitOver => "time over",
            On::Cancel => "cancel",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::transitions::TRANSITIONS;
    use super::*;

    const TITLE: &str = "\
# States of the connection manager's ids

This page lists the states of an id of the connection manager and the messages that change them. An id is one side of a
connection or of a datagram service. The page is drawn from `core/cm/src/state/transitions.rs` by a test in
`core/cm/src/state.rs`.

The active side goes from IDLE by REQ_SENT and REP_RCVD to ESTABLISHED, the passive side by REQ_RCVD and REP_SENT. A
message that has no row in a state is dropped. A repeated message changes no state and is answered as follows:

| state | repeated message | answer |
|---|---|---|
| REQ_RCVD, MRA_REQ_SENT | REQ | MRA |
| REP_SENT, MRA_REP_RCVD | REQ | the same REP |
| REP_RCVD, MRA_REP_SENT | REP | MRA |
| ESTABLISHED, active | REP | the same RTU |
| TIMEWAIT | DREQ | the same DREP |
| TIMEWAIT after a REJ | RTU | the same REJ |
| TIMEWAIT | REQ | REJ: stale connection |
| SIDR_REP_SENT | SIDR_REQ | the same SIDR_REP |
| no such id | DREQ | DREP |
| no such id | REP, RTU | REJ: invalid communication id |

A REJ for a timeout that contains the peer's GUID needs no id of this side while the connection is not ESTABLISHED. From
then on each message needs the ids of both sides. Ids are not predictable.
";

    fn drawn() -> String {
        let mut drawn = format!("{TITLE}\n| from | event | to |\n|---|---|---|\n");
        for row in &TRANSITIONS {
            writeln!(drawn, "| {} | {} | {} |", row.source, row.on, row.target).unwrap();
        }
        drawn.push_str("\n| state | repeats its last message | ends by itself |\n|---|---|---|\n");
        let yes = |is: bool| if is { "yes" } else { "" };
        for state in CmState::ALL {
            writeln!(drawn, "| {state} | {} | {} |", yes(state.repeats()), yes(state.lingers())).unwrap();
        }
        drawn
    }

    #[test]
    fn the_document_draws_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cm-states.md");
        if std::env::var_os("REMORA_BLESS").is_some() {
            std::fs::write(path, drawn()).expect("docs/ is writable");
        }
        let kept = std::fs::read_to_string(path).expect("docs/reference/cm-states.md exists");
        assert!(
            kept == drawn(),
            "docs/reference/cm-states.md shows another table: run with REMORA_BLESS=1 and look"
        );
    }

    #[test]
    fn each_row_of_the_table_stands_there_once() {
        for (index, row) in TRANSITIONS.iter().enumerate() {
            let again = TRANSITIONS
                .iter()
                .skip(index + 1)
                .any(|other| other.source == row.source && other.on == row.on);
            assert!(!again, "{} on {:?}", row.source, row.on);
        }
    }

    /// Returns the states that can be reached from `start`.
    fn reached(start: CmState) -> Vec<CmState> {
        let mut reached = vec![start];
        let mut index = 0;
        while index < reached.len() {
            let rows = TRANSITIONS.iter().filter(|row| row.source == reached[index]);
            let new: Vec<CmState> =
                rows.map(|row| row.target).filter(|state| !reached.contains(state)).collect();
            reached.extend(new);
            index += 1;
            reached.dedup();
        }
        reached
    }

    #[test]
    fn every_state_is_reached_from_idle_and_leads_back_to_it() {
        for state in CmState::ALL {
            assert!(reached(CmState::Idle).contains(&state), "{state} is never reached");
            assert!(reached(state).contains(&CmState::Idle), "{state} never ends");
        }
    }

    #[test]
    fn what_repeats_times_out_what_lingers_ends_and_nothing_else_does() {
        for state in CmState::ALL {
            assert_eq!(state.after(On::TimedOut).is_some(), state.repeats(), "{state}");
            assert_eq!(state.after(On::TimewaitOver).is_some(), state.lingers(), "{state}");
        }
    }

    #[test]
    fn only_one_side_of_a_connection_gets_a_req_or_rep() {
        let on = |on: On| CmState::ALL.into_iter().filter(move |state| state.after(on).is_some());
        assert!(on(On::RecvReq).eq([CmState::Idle]));
        assert!(on(On::RecvRep).eq([CmState::ReqSent, CmState::MraReqRcvd]));
        assert!(on(On::RecvRtu).eq([CmState::RepSent, CmState::MraRepRcvd]));
    }
}
