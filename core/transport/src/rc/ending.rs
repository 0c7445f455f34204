//! How messages end, for go-back-N and IRN alike: the status behind each NAK code, the RNR retry limit, and
//! the choice of the message that fails first.

use super::Parameters;
use super::message::{Message, Retired};
use crate::{Counters, Status};
use remora_wire::NakCode;
use remora_wire::prism::Verdict;

impl<N> Message<N> {
    /// Returns the finished message with `status` and the NIC's own `context`.
    #[inline]
    pub(crate) fn retired<D>(&self, context: D, status: Status) -> Retired<D>
    where
        N: Copy,
    {
        Retired { context, len: self.len, kind: self.kind, status, verdict: Verdict::Done }
    }
}

/// The earliest message that is known to fail. It completes in error after all earlier messages have ended.
/// No packet of this message or of a later one is sent.
#[derive(Copy, Clone, Debug)]
pub(super) struct Failing {
    /// Number of the failing message; `u64::MAX` while none fails, so that `bars` needs one comparison.
    number: u64,
    status: Option<Status>,
}

impl Default for Failing {
    fn default() -> Failing {
        Failing { number: u64::MAX, status: None }
    }
}

impl Failing {
    /// Records that message `number` fails with `status`, unless an earlier message fails.
    pub(crate) fn add(&mut self, number: u64, status: Status) {
        if number < self.number {
            *self = Failing { number, status: Some(status) };
        }
    }

    /// Returns true if any message fails.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.status.is_some()
    }

    /// Returns true if message `number` or an earlier one fails.
    #[inline]
    pub(crate) fn bars(&self, number: u64) -> bool {
        number >= self.number
    }

    /// Returns the status of message `number` if that is the failing message.
    #[inline]
    pub(crate) fn status(&self, number: u64) -> Option<Status> {
        if number == self.number { self.status } else { None }
    }
}

/// Returns the status of a request that the peer refused with `code`, and counts it. Sequence errors are
/// handled elsewhere.
pub(super) fn refusal_status(code: NakCode, counters: &mut Counters) -> Status {
    match code {
        NakCode::INVALID_REQUEST => {
            counters.req_remote_invalid_request += 1;
            Status::RemoteInvalidRequest
        }
        NakCode::REMOTE_ACCESS_ERROR => {
            counters.req_remote_access_errors += 1;
            Status::RemoteAccess
        }
        NakCode::REMOTE_OPERATIONAL_ERROR => {
            counters.req_remote_op_errors += 1;
            Status::RemoteOperation
        }
        // "Invalid RD Request" and reserved codes never occur on RC.
        _ => Status::BadResponse,
    }
}

/// Counts a request of the peer that was refused with `code`.
pub(super) fn count_refusal(code: NakCode, counters: &mut Counters) {
    match code {
        NakCode::REMOTE_ACCESS_ERROR => counters.resp_remote_access_errors += 1,
        NakCode::REMOTE_OPERATIONAL_ERROR => counters.resp_remote_op_errors += 1,
        _ => counters.resp_remote_invalid_request += 1,
    }
}

/// Uses one of the `remaining` RNR retries. Returns false if none remains.
pub(super) fn may_wait(remaining: &mut u8, parameters: &Parameters, counters: &mut Counters) -> bool {
    // A value of 7 retries without a limit (IBTA vol. 1 §9.7.5.2.8).
    if parameters.rnr_retry == 7 {
        return true;
    }
    let Some(less) = remaining.checked_sub(1) else {
        counters.retry_rnr_exceeded_err += 1;
        return false;
    };
    *remaining = less;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_failure_counts_and_keeps_its_status() {
        let mut failing = Failing::default();
        assert!(!failing.any() && !failing.bars(u64::MAX - 1), "numbers count up from 0");
        failing.add(5, Status::RemoteAccess);
        failing.add(7, Status::BadResponse);
        failing.add(5, Status::BadResponse);
        assert_eq!((failing.status(5), failing.status(7)), (Some(Status::RemoteAccess), None));
        failing.add(3, Status::RetryExceeded);
        assert_eq!((failing.status(3), failing.status(5)), (Some(Status::RetryExceeded), None));
        assert_eq!([2, 3, 4].map(|number| failing.bars(number)), [false, true, true]);
    }

    #[test]
    fn a_peer_that_is_not_ready_is_waited_for_as_often_as_agreed_and_with_seven_for_ever() {
        for (rnr_retry, times) in [(0, 0), (3, 3), (7, 100)] {
            let parameters = Parameters { rnr_retry, ..Parameters::default() };
            let mut remaining = rnr_retry;
            let mut counters = Counters::default();
            let waited =
                (0..100).take_while(|_| may_wait(&mut remaining, &parameters, &mut counters)).count();
            assert_eq!((waited, counters.retry_rnr_exceeded_err), (times, u64::from(times < 100)));
        }
    }
}
