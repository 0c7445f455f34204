//! The local ACK timer: it measures the peer's silence, and no time for which packets wait on this side.
//!
//! The peer owes an answer from when a packet leaves that asks for one. The timer starts then, and anew with each answer, as TCP's
//! does (RFC 6298 §5). A packet that waits, for a rate, its turn or the port's room, is not on the way: a repetition that has
//! not left starts no timer. What has left without asking owes nothing: the timer then only finds out why nothing follows it. If
//! more may leave, it is held back on this side, and the next packet asks: so a slow sender finds a dead peer, too. If nothing
//! may, the last packet leaves again and asks.
//!
//! A peer that makes no room for a packet, on a port where each has its own, is as silent as one that does not answer.

use super::Requester;
use crate::rc::Seq;
use crate::{Counters, Instant, Status};

/// As if so many packets had not asked: the next one does.
const ASK_NOW: u32 = u32::MAX >> 1;

impl<D: Copy> Requester<D> {
    /// Does the peer owe an answer?
    #[inline(always)]
    pub(super) fn is_owed(&self) -> bool {
        self.asked > self.go.una
    }

    /// The packets up to the cursor have left, and the last of them asks for an answer or not.
    #[inline(always)]
    pub(super) fn left(&mut self, now: Instant, asks: bool) {
        if asks {
            self.unasked = 0;
            if !self.is_owed() {
                self.ack_deadline = now.after(self.parameters.timeout_ns);
            }
            self.asked = self.go.cursor;
        } else {
            self.unasked += 1;
            if self.ack_deadline == Instant::NEVER {
                self.ack_deadline = now.after(self.parameters.timeout_ns);
            }
        }
    }

    /// The peer was heard, or what is on the way has changed: silence begins now, if anything is on the way.
    #[inline(always)]
    pub(super) fn listen(&mut self, now: Instant) {
        self.ack_deadline =
            if self.go.in_flight() > 0 { now.after(self.parameters.timeout_ns) } else { Instant::NEVER };
    }

    /// The peer has no room for the packet that would leave now.
    #[cold]
    pub fn stuck(&mut self, now: Instant) {
        let known = self.stuck_at == self.go.cursor && self.ack_deadline < Instant::NEVER;
        if known || self.go.una == self.go.high || now < self.rnr_until {
            return;
        }
        self.stuck_at = self.go.cursor;
        if !self.is_owed() {
            self.ack_deadline = now.after(self.parameters.timeout_ns);
        }
    }

    /// When `expire` wants to be called.
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.rnr_until > Instant(0) { self.ack_deadline.min(self.rnr_until) } else { self.ack_deadline }
    }

    /// Time has come to `now`; what had arrived at `heard` has been taken.
    pub fn expire(&mut self, now: Instant, heard: Instant, counters: &mut Counters) {
        if self.rnr_until > Instant(0) && now >= self.rnr_until {
            self.rnr_until = Instant(0);
        }
        if heard < self.ack_deadline {
            return;
        }
        self.ack_deadline = Instant::NEVER;
        if self.go.una == self.go.high {
            return;
        }
        if !self.is_owed() && self.stuck_at != self.go.cursor {
            return self.see_why_nothing_follows(now);
        }
        counters.local_ack_timeout_err += 1;
        if self.retries == 0 {
            counters.retry_exceeded_err += 1;
            self.fail(self.window.bounds().0, Status::RetryExceeded);
            return;
        }
        self.retries -= 1;
        self.go.restart();
        self.rewind();
    }

    /// What is on the way does not ask for an answer, and nothing that does has followed for long.
    #[cold]
    fn see_why_nothing_follows(&mut self, now: Instant) {
        if self.go.in_flight() == 0 {
            // The next packet sets the timer.
            return;
        }
        if self.may_send() {
            self.unasked = ASK_NOW;
            self.listen(now);
        } else {
            self.ask_again();
        }
    }

    /// Would a packet leave if it was its turn?
    fn may_send(&self) -> bool {
        let placed = self.window.get(self.at).filter(|_| !self.failing.bars(self.at));
        placed.is_some_and(|placed| {
            let index = (self.go.cursor - placed.first) as u32;
            !self.waits(placed, index, 1)
        })
    }

    /// The last packet leaves once more, and asks.
    fn ask_again(&mut self) {
        let last: Seq = self.go.cursor;
        self.ask_at = last;
        self.go.repeat_from(last - 1);
        self.rewind();
    }
}
