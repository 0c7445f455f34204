//! The program's side of the completion queue, which polls the entries.

use crate::cqe::{self, Cqe};
use crate::ring::{Ring, Word};
use crate::wqe::SLOT;

/// A completion queue, the program's side.
#[derive(Debug)]
pub struct CompletionPoller {
    ring: Ring,
    next: u64,
}

impl CompletionPoller {
    /// Creates a poller that starts with the first completion of the queue.
    pub fn new(ring: Ring) -> Self {
        CompletionPoller { ring, next: 0 }
    }

    /// Creates a poller that continues where the previous one freed entries, for a restarted program.
    pub fn resume(ring: Ring) -> Self {
        let next = ring.word(Word::Consumed);
        CompletionPoller { ring, next }
    }

    /// Returns the memory of the queue.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns true if completions were lost. No further completions follow.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.ring.word(Word::Error) != 0
    }

    /// Returns the next completion; `None` if the queue is empty. Entries of destroyed queue pairs are
    /// skipped.
    #[inline]
    pub fn poll(&mut self) -> Option<Cqe> {
        let words = self.take()?;
        if cqe::is_removed(&words) { self.poll_behind_removed() } else { Some(Cqe::parse(&words)) }
    }

    #[inline]
    fn take(&mut self) -> Option<[u64; 8]> {
        if self.ring.published(self.next) != self.next + 1 {
            return None;
        }
        let words = self.ring.words(self.next);
        self.next += 1;
        Some(words)
    }

    /// Skips invalidated entries, at most one round of the ring, and returns the next valid one. Skipped
    /// entries are freed immediately, because a program that polls without result does not call `free`.
    #[cold]
    #[inline(never)]
    fn poll_behind_removed(&mut self) -> Option<Cqe> {
        for _ in 0..self.ring.slots() {
            self.free();
            let words = self.take()?;
            if !cqe::is_removed(&words) {
                return Some(Cqe::parse(&words));
            }
        }
        None
    }

    /// Frees invalidated entries without polling: the valid entries move to later slots. The NIC may write
    /// completions concurrently, but must not remove entries or resize the queue.
    pub fn reclaim(&mut self) {
        let mut end = self.next;
        while end - self.next < self.ring.slots() && self.ring.published(end) == end + 1 {
            end += 1;
        }
        let mut target = end;
        for source in (self.next..end).rev() {
            let mut slot = [0; SLOT];
            self.ring.load(source, &mut slot);
            if slot[0] == cqe::REMOVED {
                continue;
            }
            target -= 1;
            if target != source {
                self.ring.store(target, &slot);
                self.ring.publish(target, target + 1);
            }
        }
        if target > self.next {
            self.next = target;
            self.free();
        }
    }

    /// Returns the polled entries to the NIC. One call per batch is enough.
    #[inline]
    pub fn free(&self) {
        self.ring.set_word(Word::Consumed, self.next);
    }

    /// Continues in the ring to which the queue was resized.
    pub fn moved(&mut self, ring: Ring) {
        self.ring = ring;
    }
}
