//! The state of a requester that does not depend on loss recovery: the submitted messages, the message that
//! is sent next, and the reasons for which messages wait or fail. Go-back-N and IRN each add their sequence
//! numbers and timers.

use super::ending::{Failing, may_wait};
use super::message::{Message, Placed, Window};
use super::{Parameters, Seq};
use crate::{Counters, Instant, Status};

/// The messages of a requester, each with the context `D`.
pub(super) struct Messages<D> {
    pub parameters: Parameters,
    pub window: Window<D>,
    /// The PSN after the last submitted request packet.
    pub write_seq: Seq,
    /// Number of the message that contains the next packet in order.
    pub next_message: u64,
    /// Number of READs, atomics and PRISM operations that are submitted and not retired.
    pub fetch_messages: u32,
    /// Remaining RNR retries.
    pub rnr_retries: u8,
    /// Time until which nothing is sent after an RNR NAK; 0 if none is in effect.
    pub rnr_until: Instant,
    /// Number of RNR NAKs received.
    rnr_waits: u32,
    pub failing: Failing,
}

impl<D: Copy> Messages<D> {
    /// Returns no messages. The first packet will have PSN `first`; `capacity` is the maximum number of
    /// outstanding messages.
    pub(crate) fn new(first: Seq, capacity: u32, parameters: Parameters) -> Self {
        Messages {
            window: Window::new(capacity),
            write_seq: first,
            next_message: 0,
            fetch_messages: 0,
            rnr_retries: parameters.rnr_retry,
            rnr_until: Instant(0),
            rnr_waits: 0,
            failing: Failing::default(),
            parameters,
        }
    }

    /// Changes `timeout`, `retry_cnt` and `rnr_retry` of a running queue pair.
    pub(crate) fn retune(&mut self, parameters: Parameters) {
        self.parameters = parameters;
        self.rnr_retries = parameters.rnr_retry;
    }

    /// Returns the number of RNR NAKs received.
    pub(crate) fn rnr_waits(&self) -> u32 {
        self.rnr_waits
    }

    /// Returns true if another message can be submitted.
    #[inline(always)]
    pub(crate) fn has_capacity(&self) -> bool {
        !self.window.is_full() && !self.failing.any()
    }

    /// Appends a message whose packets end before `end`, and advances `write_seq` to `end`. If the message
    /// has no packets, advances `next_message` over it; `snd_nxt` is the next packet in order.
    #[inline(always)]
    pub(crate) fn append(&mut self, message: Message<D>, end: Seq, snd_nxt: Seq) {
        let first = self.write_seq;
        self.write_seq = end;
        self.fetch_messages += u32::from(message.kind.is_fetch());
        self.window.push(Placed { first, end, message });
        if first == end {
            self.step_over_local(snd_nxt);
        }
    }

    /// Advances `next_message` over local work, which has no packets.
    #[inline(always)]
    pub(crate) fn step_over_local(&mut self, snd_nxt: Seq) {
        while self.window.get(self.next_message).is_some_and(|placed| placed.end <= snd_nxt) {
            self.next_message += 1;
        }
    }

    /// Makes message `number` fail with `status` after all earlier messages have ended.
    pub(crate) fn fail(&mut self, number: u64, status: Status) {
        self.failing.add(number, status);
    }

    /// Removes the oldest message if it failed or `is_complete` returns true for it.
    #[inline(always)]
    pub(crate) fn retire(
        &mut self,
        is_complete: impl FnOnce(&Placed<D>) -> bool,
    ) -> Option<(Message<D>, Status)> {
        let (head, _) = self.window.bounds();
        let front = self.window.front()?;
        let status = match self.failing.status(head) {
            Some(status) => status,
            None if is_complete(front) => Status::Success,
            None => return None,
        };
        let Placed { message, .. } = self.window.pop()?;
        self.fetch_messages -= u32::from(message.kind.is_fetch());
        self.next_message = self.next_message.max(head + 1);
        Some((message, status))
    }

    /// Removes the oldest message unfinished (flush).
    pub(crate) fn flush(&mut self) -> Option<Message<D>> {
        let Placed { message, .. } = self.window.pop()?;
        self.rnr_until = Instant(0);
        Some(message)
    }

    /// Returns the number of the message that contains `seq`, searching from message `hint`; the number of
    /// the oldest message if none contains it.
    pub(crate) fn number_of(&self, seq: Seq, hint: u64) -> u64 {
        self.window.find(seq, hint).unwrap_or(self.window.bounds().0)
    }

    /// Counts an RNR NAK.
    pub(crate) fn count_rnr_nak(&mut self, counters: &mut Counters) {
        counters.rnr_nak_retry_err += 1;
        self.rnr_waits = self.rnr_waits.saturating_add(1);
    }

    /// Uses an RNR retry. Returns false if none remains.
    pub(crate) fn may_wait(&mut self, counters: &mut Counters) -> bool {
        may_wait(&mut self.rnr_retries, &self.parameters, counters)
    }

    /// Asserts that the next message was submitted and is not retired, and that the window is consistent.
    pub(crate) fn check(&self, snd_max: Seq) {
        assert!(snd_max <= self.write_seq, "packets that were sent were submitted: snd_max is {snd_max}");
        self.window.check(self.next_message, self.write_seq);
        let (head, tail) = self.window.bounds();
        let next = self.next_message;
        assert!(head <= next && next <= tail, "the next message was submitted and is not retired");
    }
}

/// The methods of both requesters that concern their `messages` alone.
macro_rules! message_methods {
    () => {
        /// Returns the number of RNR NAKs received.
        pub fn rnr_waits(&self) -> u32 {
            self.messages.rnr_waits()
        }

        /// Returns true if another message can be submitted.
        #[inline]
        pub fn has_capacity(&self) -> bool {
            self.messages.has_capacity()
        }

        /// Returns the number of messages submitted and not retired.
        #[inline]
        pub fn outstanding(&self) -> usize {
            self.messages.window.len()
        }

        /// Returns the number of the oldest message that is not retired, and the number of the next
        /// submission.
        pub fn numbers(&self) -> (u64, u64) {
            self.messages.window.bounds()
        }

        /// Submits a message that cannot be executed. It completes with `status` after all earlier messages.
        /// The caller has checked `has_capacity`.
        pub fn submit_failing(&mut self, message: Message<D>, status: Status) {
            let number = self.messages.window.bounds().1;
            self.submit(message);
            self.fail(number, status);
        }

        /// Makes message `number` fail with `status` after all earlier messages have ended, because its local
        /// memory is not accessible or a response is invalid.
        pub fn fail(&mut self, number: u64, status: Status) {
            self.messages.fail(number, status);
        }
    };
}

pub(super) use message_methods;
