//! Connects that are refused because nobody listens. A program's peer may be about to listen: perftest's
//! client connects while its server begins to. So the request is sent again a few times, before its program
//! gets to know.

use remora_cm::{EventKind, Instant};
use remora_wire::mad::{RejectReason, SidrStatus};
use std::collections::{BTreeMap, BTreeSet};

use crate::message::Connect;

/// Times that a request is sent again: for an eighth of a second.
const TIMES: u8 = 6;
/// Nanoseconds until the first of them. Each pause is twice the one before.
const PAUSE_NS: u64 = 2_000_000;

/// A request that has no answer yet.
#[derive(Debug)]
struct PendingConnect {
    client: u32,
    connect: Connect,
    left: u8,
    due: Option<Instant>,
}

/// All of them, by their ids: no more than there are ids.
#[derive(Debug, Default)]
pub(crate) struct ConnectRetries {
    pending: BTreeMap<u64, PendingConnect>,
    due: BTreeSet<(Instant, u64)>,
}

impl ConnectRetries {
    /// An id connects.
    pub fn begin(&mut self, client: u32, id: u64, connect: &Connect) {
        self.forget(id);
        self.pending.insert(id, PendingConnect { client, connect: connect.clone(), left: TIMES, due: None });
    }

    /// The id connects no more.
    pub fn forget(&mut self, id: u64) {
        if let Some(PendingConnect { due: Some(due), .. }) = self.pending.remove(&id) {
            self.due.remove(&(due, id));
        }
    }

    /// An id's answer. Is it that nobody listens, and is the request sent again?
    pub fn is_retried(&mut self, now: Instant, id: u64, answer: &EventKind) -> bool {
        let nobody_listens = match answer {
            EventKind::Rejected(rejection) => rejection.reason == RejectReason::INVALID_SERVICE_ID,
            EventKind::SidrResponse { status, .. } => *status == SidrStatus::UNSUPPORTED,
            _ => false,
        };
        match self.pending.get_mut(&id) {
            Some(pending) if nobody_listens && pending.left > 0 => {
                let due = now.after(PAUSE_NS << (TIMES - pending.left));
                pending.left -= 1;
                pending.due = Some(due);
                self.due.insert((due, id));
                true
            }
            _ => {
                self.forget(id);
                false
            }
        }
    }

    /// When the next request is sent again; [`Instant::NEVER`]: none is.
    pub fn next_deadline(&self) -> Instant {
        self.due.first().map_or(Instant::NEVER, |(due, _)| *due)
    }

    /// A request that is due at `now`: whose, by which id, and what for. The caller sends it again.
    pub fn next_due(&mut self, now: Instant) -> Option<(u32, u64, Connect)> {
        let (due, id) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, id));
        let pending = self.pending.get_mut(&id)?;
        pending.due = None;
        Some((pending.client, id, pending.connect.clone()))
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
    fn a_connect_without_a_listener_is_sent_again_a_few_times_and_then_refused() {
        let mut retries = ConnectRetries::default();
        let mut now = Instant(0);
        retries.begin(7, 1, &connect());
        for time in 0..TIMES {
            assert!(retries.is_retried(now, 1, &refusal(RejectReason::INVALID_SERVICE_ID)), "{time}");
            assert_eq!(retries.next_due(now), None, "after a pause");
            now = retries.next_deadline();
            assert_eq!(retries.next_due(now), Some((7, 1, connect())));
            assert_eq!((retries.next_due(now), retries.next_deadline()), (None, Instant::NEVER));
        }
        assert!(now < Instant(200_000_000), "{now:?}");
        assert!(!retries.is_retried(now, 1, &refusal(RejectReason::INVALID_SERVICE_ID)));
        assert!(retries.pending.is_empty() && retries.due.is_empty());
    }

    #[test]
    fn other_answers_and_ids_that_end_leave_nothing() {
        let mut retries = ConnectRetries::default();
        retries.begin(7, 1, &connect());
        assert!(!retries.is_retried(Instant(0), 1, &refusal(RejectReason::CONSUMER)));
        assert!(!retries.is_retried(Instant(0), 1, &refusal(RejectReason::INVALID_SERVICE_ID)));
        retries.begin(7, 2, &connect());
        assert!(retries.is_retried(Instant(0), 2, &refusal(RejectReason::INVALID_SERVICE_ID)));
        retries.forget(2);
        assert!(retries.pending.is_empty() && retries.due.is_empty());
    }
}
