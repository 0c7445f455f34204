//! READs and atomics of an IRN requester that were sent and are not fully answered.

use super::super::receiver::Tracker;
use crate::rc::Seq;
use std::collections::VecDeque;

/// A READ or atomic that was sent and is not fully answered.
#[derive(Copy, Clone, Debug)]
pub(super) struct Fetch {
    pub first: Seq,
    pub end: Seq,
    /// End of the responses that will arrive; before `end` if the answer is shorter than requested.
    pub answer_end: Seq,
    pub message: u64,
}

/// Removes the oldest READs and atomics that are fully answered, and skips the PSNs that they reserved but
/// did not use.
#[inline]
pub(super) fn forget_answered(fetches: &mut VecDeque<Fetch>, tracker: &mut Tracker) {
    while let Some(fetch) = fetches.front().filter(|fetch| fetch.answer_end <= tracker.rcv_nxt()) {
        if fetch.end > tracker.rcv_nxt() {
            tracker.skip(fetch.end);
        }
        fetches.pop_front();
    }
}
