//! How messages end, with any loss recovery: what a NAK means on either side, how often RNR is retried, and
//! which message fails first.

use super::Parameters;
use super::message::{Message, Retired};
use crate::{Counters, Status};
use remora_wire::NakCode;
use remora_wire::prism::Verdict;

impl<N> Message<N> {
    /// This message, ended with `status`. `context` is the NIC's.
    #[inline]
    pub(crate) fn retired<D>(&self, context: D, status: Status) -> Retired<D>
    where
        N: Copy,
    {
        Retired { context, len: self.len, kind: self.kind, status, verdict: Verdict::Done }
    }
}

/// The earliest message that is known to fail: it ends once everything before it has ended, and nothing of it
/// or behind it leaves.
#[derive(Copy, Clone, Debug)]
pub(super) struct Failing {
    /// Beyond all messages while none fails, so that one comparison bars.
    number: u64,
    status: Option<Status>,
}

impl Default for Failing {
    fn default() -> Failing {
        Failing { number: u64::MAX, status: None }
    }
}

impl Failing {
    /// Message `number` fails with `status`, unless an earlier one fails.
    pub fn add(&mut self, number: u64, status: Status) {
        if number < self.number {
            *self = Failing { number, status: Some(status) };
        }
    }

    /// Does any message fail?
    #[inline]
    pub fn any(&self) -> bool {
        self.status.is_some()
    }

    /// Does message `number`, or one before it?
    #[inline]
    pub fn bars(&self, number: u64) -> bool {
        number >= self.number
    }

    /// How message `number` ends, if it is the one.
    #[inline]
    pub fn status(&self, number: u64) -> Option<Status> {
        if number == self.number { self.status } else { None }
    }
}

/// The status of a request that the peer refused with `code`, other than a sequence error.
pub(super) fn refused(code: NakCode, counters: &mut Counters) -> Status {
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
        // Invalid RD request and the reserved codes have no place here.
        _ => Status::BadResponse,
    }
}

/// Counts a request of the peer that is refused with `code`.
pub(super) fn count_refusal(code: NakCode, counters: &mut Counters) {
    match code {
        NakCode::REMOTE_ACCESS_ERROR => counters.resp_remote_access_errors += 1,
        NakCode::REMOTE_OPERATIONAL_ERROR => counters.resp_remote_op_errors += 1,
        _ => counters.resp_remote_invalid_request += 1,
    }
}

/// The peer is not ready once more; `left` retries remain. False: none remained.
pub(super) fn may_wait(left: &mut u8, parameters: &Parameters, counters: &mut Counters) -> bool {
    // 7 is for ever (IBTA vol. 1 §9.7.5.2.8).
    if parameters.rnr_retry == 7 {
        return true;
    }
    let Some(less) = left.checked_sub(1) else {
        counters.retry_rnr_exceeded_err += 1;
        return false;
    };
    *left = less;
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
            let (mut left, mut counters) = (rnr_retry, Counters::default());
            let waited = (0..100).take_while(|_| may_wait(&mut left, &parameters, &mut counters)).count();
            assert_eq!((waited, counters.retry_rnr_exceeded_err), (times, u64::from(times < 100)));
        }
    }
}
