//! What happens when no answer comes, and when an id has lingered long enough.

use remora_wire::mad::{Answered, CmMessage, RejectReason, time_ns};

use super::{Cm, Due};
use crate::state::On;
use crate::{Cause, CmState, EventKind, Instant, PrivateData};

/// The code of the time for which an answered SIDR_REQ is remembered: two repetitions of `rdma_cm`'s.
const SIDR_TIMEWAIT: u8 = 21;

/// The shortest time until a message is repeated. Both codes of a peer are a millisecond at least, as in
/// Linux: otherwise one forged request would cause sixteen responses at once.
const MIN_INTERVAL_NS: u64 = 2_000_000;
/// The longest time until a message is repeated, so that a peer's codes hold no id for days.
const MAX_INTERVAL_NS: u64 = 2 * time_ns(24);

/// Nanoseconds until a message is repeated: the sum of two times that its peer or the program gave as codes,
/// within bounds.
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
    /// When [`Cm::expire`] is to be called at the latest; [`Instant::NEVER`] if nothing waits.
    pub fn next_deadline(&self) -> Instant {
        self.timers.first().map_or(Instant::NEVER, |due| due.at)
    }

    /// Repeats, gives up and ends what is due at `now`. It stops while MADs or events have to be taken first.
    pub fn expire(&mut self, now: Instant) {
        while self.has_space()
            && let Some(due) = self.timers.first().copied()
            && due.at <= now
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

    /// Says that this side waits no longer. The peer finds its id by this adapter's GUID.
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

    /// Waits for the answer to the id's last message, and repeats it as often as the id says.
    pub(super) fn await_answer(&mut self, now: Instant, slot: u32) {
        let id = self.ids.get_mut(slot);
        id.interval_ns = id.timeout_ns;
        id.retries_left = id.max_retries;
        let deadline = now.after(id.timeout_ns);
        self.set_deadline(slot, deadline);
        self.checked(slot);
    }

    /// Remembers an answered SIDR_REQ, in case that it comes again.
    pub(super) fn await_repetition(&mut self, now: Instant, slot: u32) {
        self.set_deadline(slot, now.after(time_ns(SIDR_TIMEWAIT)));
        self.checked(slot);
    }

    /// Gives an id a deadline in place of the one that it had.
    pub(super) fn set_deadline(&mut self, slot: u32, at: Instant) {
        let id = self.ids.get_mut(slot);
        let (old, lingers) = (Due { at: id.deadline, slot }, id.state.lingers());
        id.deadline = at;
        self.timers.remove(&old);
        self.lingering.remove(&old);
        if at < Instant::NEVER {
            self.timers.insert(Due { at, slot }, slot);
            if lingers {
                self.lingering.insert(Due { at, slot }, slot);
            }
        }
    }
}
