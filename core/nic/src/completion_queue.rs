//! The NIC's side of the completion queue, which writes the entries.

use crate::cqe::{self, Cqe};
use crate::ring::{Ring, Word};
use crate::wqe::SLOT;
use remora_transport::Instant;
use remora_wire::Qpn;
use serde::{Deserialize, Serialize};

/// The completions for which the program asks to be woken (`ibv_req_notify_cq`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notify {
    /// No completion is written.
    #[default]
    Never,
    /// The next completion.
    Any,
    /// The next completion that is solicited or has an error status.
    Solicited,
}

/// Optional features of a completion queue.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CqFlags {
    /// The queue may overrun: new entries overwrite the oldest ones (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    /// Used by chains that only count completions.
    pub ignores_overrun: bool,
    /// Entries have a timestamp (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub timestamps: bool,
}

/// The result of writing a completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The completion was written.
    Quietly,
    /// The completion was written, and the program asked to be woken.
    Wake,
    /// The queue is full: the completion is lost and the queue is in error.
    Overrun,
}

/// A completion queue, the NIC's side.
pub(crate) struct CompletionQueue {
    ring: Ring,
    written: u64,
    /// The consumer index as last read. It is read again only when the queue seems full.
    consumed: u64,
    notify: Notify,
    overrun: bool,
    /// A wake-up is pending: the driver has not taken it yet.
    waking: bool,
    ignores_overrun: bool,
    timestamps: bool,
    /// The smallest completion count that a WAIT is waiting for; `u64::MAX` if none waits.
    awaited: u64,
    /// Head of the list of queue pairs that wait.
    waiting: u32,
}

/// The end of a list of waiting queue pairs.
pub(crate) const NOBODY: u32 = u32::MAX;

impl CompletionQueue {
    /// Creates a queue over `ring`.
    pub(crate) fn new(ring: Ring) -> Self {
        CompletionQueue {
            ring,
            written: 0,
            consumed: 0,
            notify: Notify::Never,
            overrun: false,
            waking: false,
            ignores_overrun: false,
            timestamps: false,
            awaited: u64::MAX,
            waiting: NOBODY,
        }
    }

    /// Creates a queue over `ring` with optional features.
    pub(crate) fn with_flags(ring: Ring, flags: CqFlags) -> Self {
        let CqFlags { ignores_overrun, timestamps } = flags;
        CompletionQueue { ignores_overrun, timestamps, ..CompletionQueue::new(ring) }
    }

    /// Adds a queue pair that waits for `count` completions to the head of the list. Returns the previous
    /// head.
    pub(crate) fn wait(&mut self, index: u32, count: u64) -> u32 {
        self.awaited = self.awaited.min(count);
        std::mem::replace(&mut self.waiting, index)
    }

    /// Returns true if a WAIT has reached its count.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.written >= self.awaited
    }

    /// Empties the list of waiting queue pairs and returns its head.
    pub(crate) fn release(&mut self) -> u32 {
        self.awaited = u64::MAX;
        std::mem::replace(&mut self.waiting, NOBODY)
    }

    /// Returns the number of completions written since the queue was created, which WAIT compares. The count
    /// never wraps.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns true while a wake-up is pending.
    pub(crate) fn is_waking(&self) -> bool {
        self.waking
    }

    /// Sets whether a wake-up is pending.
    pub(crate) fn set_waking(&mut self, waking: bool) {
        self.waking = waking;
    }

    /// Returns true if completions were lost.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Requests one wake-up.
    pub(crate) fn notify(&mut self, notify: Notify) {
        // A later request for solicited completions does not weaken a request for any completion.
        if self.notify != Notify::Any {
            self.notify = notify;
        }
    }

    /// Writes a completion at the time `now`.
    #[inline]
    pub(crate) fn write(&mut self, cqe: &Cqe, now: Instant) -> Written {
        if self.overrun {
            return Written::Overrun;
        }
        if self.written - self.consumed >= self.ring.slots() && !self.ignores_overrun {
            self.consumed = self.ring.word(Word::Consumed).clamp(self.consumed, self.written);
            if self.written - self.consumed >= self.ring.slots() {
                self.overrun = true;
                self.ring.set_word(Word::Error, 1);
                return Written::Overrun;
            }
        }
        let mut words = cqe.words(0);
        if self.timestamps {
            words[5] |= cqe::stamp(now);
        }
        let mut slot = [0; SLOT];
        for (chunk, word) in slot.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        self.ring.store(self.written, &slot);
        self.ring.publish(self.written, self.written + 1);
        self.written += 1;
        self.wakes(cqe)
    }

    /// Invalidates the completions of a queue pair that are not polled yet, as `ibv_destroy_qp` demands. The
    /// entries remain in the ring, so the count for WAIT does not change. A program that polls concurrently
    /// sees each entry either whole or invalidated. The runtime is linear in the size of the ring.
    pub(crate) fn remove(&mut self, number: Qpn) {
        self.consumed = self.ring.word(Word::Consumed).clamp(self.consumed, self.written);
        let oldest = self.consumed.max(self.written.saturating_sub(self.ring.slots()));
        for index in oldest..self.written {
            if cqe::queue_pair(self.ring.words(index)[3]) == number.get() {
                self.ring.set_first(index, cqe::REMOVED.into());
            }
        }
    }

    /// Asserts that the entries fit the ring, and that a count is awaited only while a queue pair waits.
    pub(crate) fn check(&self) {
        let CompletionQueue { written, consumed, ignores_overrun, awaited, waiting, .. } = *self;
        assert!(consumed <= written, "completions that were polled were written");
        assert!(
            ignores_overrun || written - consumed <= self.ring.slots(),
            "completions that are not polled <= slots of the ring"
        );
        // A WAIT may ask for `u64::MAX`, a count that no completion queue reaches.
        assert!(waiting != NOBODY || awaited == u64::MAX, "a queue pair waits if a count is waited for");
    }

    #[inline]
    fn wakes(&mut self, cqe: &Cqe) -> Written {
        let wanted = match self.notify {
            Notify::Never => false,
            Notify::Any => true,
            Notify::Solicited => cqe.solicited || cqe.completion.status != crate::request::Status::Success,
        };
        if !wanted {
            return Written::Quietly;
        }
        self.notify = Notify::Never;
        Written::Wake
    }

    /// Moves the queue to another ring, with the completions that are not polled yet. Returns false, and
    /// changes nothing, if they do not fit.
    pub(crate) fn resize(&mut self, ring: Ring) -> bool {
        self.consumed = self.ring.word(Word::Consumed).clamp(self.consumed, self.written);
        if self.written - self.consumed > ring.slots() {
            return false;
        }
        for index in self.consumed..self.written {
            let mut slot = [0; SLOT];
            self.ring.load(index, &mut slot);
            ring.store(index, &slot);
        }
        ring.set_word(Word::Consumed, self.consumed);
        ring.set_word(Word::Error, self.overrun.into());
        self.ring = ring;
        true
    }
}

#[cfg(test)]
mod tests;
