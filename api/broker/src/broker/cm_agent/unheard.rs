//! Requests that met nobody who listens. A program's peer may be about to listen: perftest's client connects
//! while its server begins to. So such a request is made again a few times, before its program gets to know.

use remora_cm::{EventKind, Instant};
use remora_wire::mad::{RejectReason, SidrStatus};
use std::collections::{BTreeMap, BTreeSet};

use crate::message::Connect;

/// Times that a request is made again: for an eighth of a second.
const TIMES: u8 = 6;
/// Nanoseconds until the first of them. Each pause is twice the one before.
const PAUSE_NS: u64 = 2_000_000;

/// A request that has no answer yet.
#[derive(Debug)]
struct Asked {
    client: u32,
    connect: Connect,
    left: u8,
    due: Option<Instant>,
}

/// All of them, by their ids: no more than there are ids.
#[derive(Debug, Default)]
pub(crate) struct Unheard {
    asked: BTreeMap<u64, Asked>,
    due: BTreeSet<(Instant, u64)>,
}

impl Unheard {
    /// An id asks.
    pub fn ask(&mut self, client: u32, id: u64, connect: &Connect) {
        self.forget(id);
        self.asked.insert(id, Asked { client, connect: connect.clone(), left: TIMES, due: None });
    }

    /// The id asks no more.
    pub fn forget(&mut self, id: u64) {
        if let Some(Asked { due: Some(due), .. }) = self.asked.remove(&id) {
            self.due.remove(&(due, id));
        }
    }

    /// An id's answer. Is it that nobody listens, and will the request be made again?
    pub fn is_postponed(&mut self, now: Instant, id: u64, answer: &EventKind) -> bool {
        let is_unheard = match answer {
            EventKind::Rejected(rejection) => rejection.reason == RejectReason::INVALID_SERVICE_ID,
            EventKind::SidrResponse { status, .. } => *status == SidrStatus::UNSUPPORTED,
            _ => false,
        };
        match self.asked.get_mut(&id) {
            Some(asked) if is_unheard && asked.left > 0 => {
                let due = now.after(PAUSE_NS << (TIMES - asked.left));
                asked.left -= 1;
                asked.due = Some(due);
                self.due.insert((due, id));
                true
            }
            _ => {
                self.forget(id);
                false
            }
        }
    }

    /// When the next request is made again; [`Instant::NEVER`]: none is.
    pub fn next_deadline(&self) -> Instant {
        self.due.first().map_or(Instant::NEVER, |(due, _)| *due)
    }

    /// A request that is due at `now`: whose, by which id, and what for. It is made again by the caller.
    pub fn next_due(&mut self, now: Instant) -> Option<(u32, u64, Connect)> {
        let (due, id) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, id));
        let asked = self.asked.get_mut(&id)?;
        asked.due = None;
        Some((asked.client, id, asked.connect.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cm::{ConnParam, Rejection};
    use remora_wire::mad::req::ConnectedService;
    use remora_wire::{Psn, Qpn};

    fn connect() -> Connect {
        let param = ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qpn: Qpn::new(2),
            starting_psn: Psn::new(0),
        };
        let destination = "10.0.0.1:7174".parse().unwrap();
        let service = ConnectedService::Rc;
        Connect { destination, service, path_mtu: 3, traffic_class: 0, param, private_data: Vec::new() }
    }

    fn refusal(reason: RejectReason) -> EventKind {
        EventKind::Rejected(Rejection { reason, info: [0; remora_wire::mad::INFO_LEN], info_len: 0 })
    }

    #[test]
    fn a_request_that_nobody_heard_is_made_again_a_few_times_and_then_refused() {
        let mut unheard = Unheard::default();
        let mut now = Instant(0);
        unheard.ask(7, 1, &connect());
        for time in 0..TIMES {
            assert!(unheard.is_postponed(now, 1, &refusal(RejectReason::INVALID_SERVICE_ID)), "{time}");
            assert_eq!(unheard.next_due(now), None, "after a pause");
            now = unheard.next_deadline();
            assert_eq!(unheard.next_due(now), Some((7, 1, connect())));
            assert_eq!((unheard.next_due(now), unheard.next_deadline()), (None, Instant::NEVER));
        }
        assert!(now < Instant(200_000_000), "{now:?}");
        assert!(!unheard.is_postponed(now, 1, &refusal(RejectReason::INVALID_SERVICE_ID)));
        assert!(unheard.asked.is_empty() && unheard.due.is_empty());
    }

    #[test]
    fn other_answers_and_ids_that_end_leave_nothing() {
        let mut unheard = Unheard::default();
        unheard.ask(7, 1, &connect());
        assert!(!unheard.is_postponed(Instant(0), 1, &refusal(RejectReason::CONSUMER)));
        assert!(!unheard.is_postponed(Instant(0), 1, &refusal(RejectReason::INVALID_SERVICE_ID)));
        unheard.ask(7, 2, &connect());
        assert!(unheard.is_postponed(Instant(0), 2, &refusal(RejectReason::INVALID_SERVICE_ID)));
        unheard.forget(2);
        assert!(unheard.asked.is_empty() && unheard.due.is_empty());
    }
}
