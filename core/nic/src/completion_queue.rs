//! The completion queue: the NIC's end (write) and the program's end (poll).

use crate::cqe::{self, Cqe};
use crate::ring::{Ring, Word};
use crate::wqe::SLOT;
use remora_transport::Instant;
use remora_wire::Qpn;

/// For which completions the program wants to be woken (`ibv_req_notify_cq`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// None.
    #[default]
    Never,
    /// The next completion.
    Any,
    /// The next one that is solicited or in error.
    Solicited,
}

/// How a completion queue differs from a plain one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CqFlags {
    /// It is counted and need not be polled: its newest entries stand over the oldest
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub ignores_overrun: bool,
    /// Its entries say when they were written (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub timestamps: bool,
}

/// The result of writing a completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is written.
    Quietly,
    /// It is written, and the program asked to be woken.
    Wake,
    /// The queue is full: the completion is lost and the queue is in error.
    Overrun,
}

/// A completion queue as the NIC sees it.
pub struct CompletionQueue {
    ring: Ring,
    written: u64,
    /// The consumer index as last read: read again only when the queue looks full.
    consumed: u64,
    notify: Notify,
    overrun: bool,
    /// Its wake-up has not been taken yet.
    waking: bool,
    /// It need not be polled: the newest entries overwrite the oldest.
    ignores_overrun: bool,
    /// Its entries say when they were written.
    timestamps: bool,
    /// The first count that a WAIT waits for.
    awaited: u64,
    /// The first queue pair in the line of those that wait.
    waiting: u32,
}

/// No queue pair waits.
pub(crate) const NOBODY: u32 = u32::MAX;

impl CompletionQueue {
    /// A queue over `ring`.
    pub fn new(ring: Ring) -> Self {
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

    /// A queue over `ring` with these flags.
    pub fn with_flags(ring: Ring, flags: CqFlags) -> Self {
        let CqFlags { ignores_overrun, timestamps } = flags;
        CompletionQueue { ignores_overrun, timestamps, ..CompletionQueue::new(ring) }
    }

    /// A queue pair waits for `count` completions; the one before it in line.
    pub(crate) fn wait(&mut self, index: u32, count: u64) -> u32 {
        self.awaited = self.awaited.min(count);
        std::mem::replace(&mut self.waiting, index)
    }

    /// Is a WAIT over?
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.written >= self.awaited
    }

    /// Releases all queue pairs in line; returns the last one.
    pub(crate) fn release(&mut self) -> u32 {
        self.awaited = u64::MAX;
        std::mem::replace(&mut self.waiting, NOBODY)
    }

    /// Completions written since its creation: 64 bits, never wraps. This is what a WAIT counts.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Does a wake-up of it wait to be taken?
    pub fn is_waking(&self) -> bool {
        self.waking
    }

    /// A wake-up of it waits to be taken, or has been taken.
    pub fn set_waking(&mut self, waking: bool) {
        self.waking = waking;
    }

    /// Has it lost completions?
    pub fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Asks for one wake-up.
    pub fn notify(&mut self, notify: Notify) {
        // Asking for any completion is not weakened by a later request for solicited ones.
        if self.notify != Notify::Any {
            self.notify = notify;
        }
    }

    /// Writes a completion at the time `now`.
    #[inline]
    pub fn write(&mut self, cqe: &Cqe, now: Instant) -> Written {
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

    /// Removes the completions of a queue pair that are not polled yet, as `ibv_destroy_qp` demands. They
    /// keep their places, so the count that a WAIT waits for stays. A program that polls meanwhile sees each
    /// of them whole or not at all. Looks at each entry of the ring once at most.
    pub(crate) fn remove(&mut self, number: Qpn) {
        self.consumed = self.ring.word(Word::Consumed).clamp(self.consumed, self.written);
        let oldest = self.consumed.max(self.written.saturating_sub(self.ring.slots()));
        for index in oldest..self.written {
            if cqe::queue_pair(load(&self.ring, index)[3]) == number.get() {
                self.ring.set_first(index, cqe::REMOVED.into());
            }
        }
    }

    /// Asserts that its entries fit the ring, and that it has a count to wait for if a queue pair waits.
    pub(crate) fn check(&self) {
        let CompletionQueue { written, consumed, ignores_overrun, awaited, waiting, .. } = *self;
        assert!(consumed <= written, "completions that were polled were written");
        assert!(
            ignores_overrun || written - consumed <= self.ring.slots(),
            "completions that are not polled <= slots of the ring"
        );
        // A WAIT may ask for the last count that there is, which no completion queue reaches.
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

    /// Moves to another ring, with the completions that are not polled yet. False, and nothing changed, if
    /// they do not fit.
    pub fn resize(&mut self, ring: Ring) -> bool {
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

/// The words of an entry.
#[inline]
fn load(ring: &Ring, index: u64) -> [u64; 8] {
    let mut slot = [0; SLOT];
    ring.load(index, &mut slot);
    let mut words = [0; 8];
    for (word, chunk) in words.iter_mut().zip(slot.chunks_exact(8)) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        *word = u64::from_le_bytes(bytes);
    }
    words
}

#[inline]
fn is_removed(words: &[u64; 8]) -> bool {
    words[0] as u8 == cqe::REMOVED
}

/// A completion queue as the program sees it.
#[derive(Debug)]
pub struct Poller {
    ring: Ring,
    next: u64,
}

impl Poller {
    /// Polls the queue over `ring` from its first completion on.
    pub fn new(ring: Ring) -> Self {
        Poller { ring, next: 0 }
    }

    /// Goes on where the poller before it gave entries back: for a program that was started again.
    pub fn resume(ring: Ring) -> Self {
        let next = ring.word(Word::Consumed);
        Poller { ring, next }
    }

    /// The queue's memory.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Completions were lost; no more will come.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.ring.word(Word::Error) != 0
    }

    /// The next completion, if it is there. Steps over those whose queue pair is gone.
    #[inline]
    pub fn poll(&mut self) -> Option<Cqe> {
        let words = self.take()?;
        if is_removed(&words) { self.poll_behind_removed() } else { Some(Cqe::parse(&words)) }
    }

    #[inline]
    fn take(&mut self) -> Option<[u64; 8]> {
        if self.ring.published(self.next) != self.next + 1 {
            return None;
        }
        let words = load(&self.ring, self.next);
        self.next += 1;
        Some(words)
    }

    /// An entry that was removed has just been taken: the next one that was not, one round of the ring at
    /// most. What is stepped over is given back at once: who polls in vain does not call `free`.
    #[cold]
    #[inline(never)]
    fn poll_behind_removed(&mut self) -> Option<Cqe> {
        for _ in 0..self.ring.slots() {
            self.free();
            let words = self.take()?;
            if !is_removed(&words) {
                return Some(Cqe::parse(&words));
            }
        }
        None
    }

    /// Gives entries that were removed back to the NIC although nobody polls: the others move behind them.
    /// The NIC may write completions meanwhile, but must neither remove any nor resize the queue.
    pub fn reclaim(&mut self) {
        let mut end = self.next;
        while end - self.next < self.ring.slots() && self.ring.published(end) == end + 1 {
            end += 1;
        }
        let mut to = end;
        for from in (self.next..end).rev() {
            let mut slot = [0; SLOT];
            self.ring.load(from, &mut slot);
            if slot[0] == cqe::REMOVED {
                continue;
            }
            to -= 1;
            if to != from {
                self.ring.store(to, &slot);
                self.ring.publish(to, to + 1);
            }
        }
        if to > self.next {
            self.next = to;
            self.free();
        }
    }

    /// Gives the polled entries back to the NIC: once per batch is enough.
    #[inline]
    pub fn free(&self) {
        self.ring.set_word(Word::Consumed, self.next);
    }

    /// Goes on in the ring that the queue was resized to.
    pub fn moved(&mut self, ring: Ring) {
        self.ring = ring;
    }
}

#[cfg(test)]
mod tests;
