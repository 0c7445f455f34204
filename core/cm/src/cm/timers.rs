//! Timers: repetition of unanswered messages, and the end of ids that have lingered long enough.

use remora_wire::mad::{Answered, CmMessage, RejectReason, time_ns};

use super::{Cm, Due};
use crate::state::On;
use crate::{Cause, CmState, EventKind, Instant, PrivateData};

/// Code of the time for which an answered SIDR_REQ is remembered: two repetition intervals of `rdma_cm`.
const SIDR_TIMEWAIT: u8 = 21;

/// Shortest time until a message is repeated. Like Linux, each of a peer's two codes counts as at least one
/// millisecond: otherwise a forged request could cause sixteen responses at once.
const MIN_INTERVAL_NS: u64 = 2_000_000;
/// Longest time until a message is repeated, so that a peer's codes cannot hold an id for days.
const MAX_INTERVAL_NS: u64 = 2 * time_ns(24);

/// Returns the nanoseconds until a message is repeated: the sum of two times that the peer or the program
/// gave as codes, clamped to the bounds above.
pub(super) const fn interval_ns(response_time: u8, other: u8) -> u64 {
    let ns = time_ns(response_time) + time_ns(other);
    if ns < MIN_INTERVAL_NS {
        MIN_INTERVAL_NS
    } else if ns > MAX_INTERVAL_NS {
        MAX_INTERVAL_NS
    } else {
        ns
    }
}

impl Cm {
    /// Returns the time of the earliest timer, when [`Cm::expire`] must be called; [`Instant::NEVER`] if no
    /// timer runs.
    pub fn next_deadline(&self) -> Instant {
        self.timers.first().map_or(Instant::NEVER, |due| due.deadline)
    }

    /// Processes all timers that are due at `now`: repeats messages, gives up, or ends ids. Stops early if
    /// MADs or events must be taken first.
    pub fn expire(&mut self, now: Instant) {
        while self.has_space()
            && let Some(due) = self.timers.first().copied()
            && due.deadline <= now
        {
            self.expire_one(now, due.slot);
        }
    }

    fn expire_one(&mut self, now: Instant, slot: u32) {
        let id = self.ids.get_mut(slot);
        if id.state.lingers() {
            return self.end_timewait(slot);
        }
        if id.retries_left > 0 {
            id.retries_left -= 1;
            let ns = id.interval_ns;
            self.counters.retransmitted += 1;
            self.send_again(slot);
            return self.set_deadline(slot, now.after(ns));
        }
        match id.state {
            CmState::ReqSent | CmState::MraReqRcvd => {
                self.send_timeout(slot, Answered::Req);
                self.tell(slot, EventKind::Unreachable, PrivateData::NONE);
                self.enter(slot, On::TimedOut);
            }
            CmState::RepSent | CmState::MraRepRcvd => {
                self.send_timeout(slot, Answered::Other);
                self.tell(slot, EventKind::Unreachable, PrivateData::NONE);
                self.enter_timewait(now, slot, On::TimedOut);
            }
            CmState::DreqSent => {
                self.tell(slot, EventKind::Disconnected(Cause::Unanswered), PrivateData::NONE);
                self.enter_timewait(now, slot, On::TimedOut);
            }
            _ => {
                self.tell(slot, EventKind::Unreachable, PrivateData::NONE);
                self.enter(slot, On::TimedOut);
            }
        }
    }

    /// Sends a REJ because this side no longer waits. The peer finds its id by this adapter's GUID.
    pub(super) fn send_timeout(&mut self, slot: u32, answered: Answered) {
        let guid = self.config.ca_guid.to_be_bytes();
        let rej = self.rej(slot, answered, RejectReason::TIMEOUT, &guid, &[]);
        self.send(slot, &CmMessage::Rej(rej));
    }

    /// Ends an id that lingers.
    pub(super) fn end_timewait(&mut self, slot: u32) {
        self.tell(slot, EventKind::TimewaitExit, PrivateData::NONE);
        self.enter(slot, On::TimewaitOver);
    }

    /// Starts the timer for the answer to the id's last message, with the configured number of repetitions.
    pub(super) fn await_answer(&mut self, now: Instant, slot: u32) {
        let id = self.ids.get_mut(slot);
        id.interval_ns = id.timeout_ns;
        id.retries_left = id.max_retries;
        let deadline = now.after(id.timeout_ns);
        self.set_deadline(slot, deadline);
        self.checked(slot);
    }

    /// Keeps an answered SIDR_REQ for a while, in case it is repeated.
    pub(super) fn await_repetition(&mut self, now: Instant, slot: u32) {
        self.set_deadline(slot, now.after(time_ns(SIDR_TIMEWAIT)));
        self.checked(slot);
    }

    /// Replaces the deadline of an id.
    pub(super) fn set_deadline(&mut self, slot: u32, deadline: Instant) {
        let id = self.ids.get_mut(slot);
        let old = Due { deadline: id.deadline, slot };
        let lingers = id.state.lingers();
        id.deadline = deadline;
        self.timers.remove(&old);
        self.lingering.remove(&old);
        if deadline < Instant::NEVER {
            self.timers.insert(Due { deadline, slot }, slot);
            if lingers {
                self.lingering.insert(Due { deadline, slot }, slot);
            }
        }
    }
}
