//! The completion queues of an engine, their users, and those whose programs are to be woken.

use std::collections::VecDeque;

use remora_memory::Pd;
use remora_transport::Instant;

use crate::completion_queue::{CompletionQueue, CqFlags, Written};
use crate::config::NicError;
use crate::cqe::Cqe;
use crate::ring::Ring;

/// The result of writing a completion.
pub(crate) struct WriteResult {
    pub written: Written,
    /// The completion overran the queue, which was not overrun before.
    pub overruns_now: bool,
    /// Queue pairs WAIT for the queue.
    pub is_awaited: bool,
}

/// The completion queues of an engine.
pub(crate) struct CompletionQueues {
    places: Vec<Option<CompletionQueue>>,
    /// For each completion queue, the protection domains of its users, with the number of these users.
    users: Vec<Vec<(Pd, u32)>>,
    wakes: VecDeque<u32>,
}

impl CompletionQueues {
    pub(crate) fn new(max_cqs: u32) -> Self {
        CompletionQueues {
            places: (0..max_cqs).map(|_| None).collect(),
            users: vec![Vec::new(); max_cqs as usize],
            wakes: VecDeque::with_capacity(max_cqs as usize),
        }
    }

    /// Creates a completion queue and returns its number.
    pub(crate) fn create(&mut self, ring: Ring, flags: CqFlags) -> Result<u32, NicError> {
        let place = self.places.iter().position(Option::is_none).ok_or(NicError::Full)?;
        self.places[place] = Some(CompletionQueue::with_flags(ring, flags));
        Ok(place as u32)
    }

    /// Removes a completion queue.
    pub(crate) fn remove(&mut self, cq: u32) -> Result<(), NicError> {
        let place = self.places.get_mut(cq as usize).ok_or(NicError::Unknown)?;
        place.take().map(|_| ()).ok_or(NicError::Unknown)
    }

    /// Returns true if anything completes into the completion queue.
    pub(crate) fn is_used(&self, cq: u32) -> bool {
        self.users.get(cq as usize).is_some_and(|users| !users.is_empty())
    }

    /// Returns a completion queue by number.
    pub(crate) fn get(&self, cq: u32) -> Result<&CompletionQueue, NicError> {
        self.places.get(cq as usize).and_then(Option::as_ref).ok_or(NicError::Unknown)
    }

    /// Returns a completion queue by number for modification.
    pub(crate) fn get_mut(&mut self, cq: u32) -> Result<&mut CompletionQueue, NicError> {
        self.places.get_mut(cq as usize).and_then(Option::as_mut).ok_or(NicError::Unknown)
    }

    /// Returns the numbers of all possible completion queues.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.places.len() as u32
    }

    /// Registers a user of a completion queue, by protection domain.
    pub(crate) fn join(&mut self, cq: u32, pd: Pd) -> Result<(), NicError> {
        self.get(cq)?;
        let users = &mut self.users[cq as usize];
        match users.iter_mut().find(|(known, _)| *known == pd) {
            Some((_, count)) => *count += 1,
            None => users.push((pd, 1)),
        }
        Ok(())
    }

    /// Removes a user of a completion queue.
    pub(crate) fn leave(&mut self, cq: u32, pd: Pd) {
        let Some(users) = self.users.get_mut(cq as usize) else { return };
        if let Some((_, count)) = users.iter_mut().find(|(known, _)| *known == pd) {
            *count -= 1;
        }
        users.retain(|(_, count)| *count > 0);
    }

    /// Returns true if queue pairs of this protection domain may WAIT for the completion queue. A WAIT
    /// reveals when the queue's users are active, so it is allowed only if one of them belongs to the same
    /// domain or there are none.
    pub(crate) fn may_wait(&self, cq: u32, pd: Pd) -> bool {
        let users = self.users.get(cq as usize);
        users.is_some_and(|users| users.is_empty() || users.iter().any(|(known, _)| *known == pd))
    }

    /// Writes a completion; a queue without a pending wake-up gets one if its program asked for it.
    #[inline]
    pub(crate) fn write(&mut self, cq: u32, cqe: &Cqe, now: Instant) -> WriteResult {
        let Some(Some(queue)) = self.places.get_mut(cq as usize) else {
            return WriteResult { written: Written::Overrun, overruns_now: false, is_awaited: false };
        };
        let before = queue.is_overrun();
        let written = queue.write(cqe, now);
        if written == Written::Wake && !queue.is_waking() {
            queue.set_waking(true);
            self.wakes.push_back(cq);
        }
        let overruns_now = written == Written::Overrun && !before;
        WriteResult { written, overruns_now, is_awaited: queue.is_awaited() }
    }

    /// Takes the number of the next completion queue whose program is to be woken; `None` if there is none.
    #[inline]
    pub(crate) fn next_wake(&mut self) -> Option<u32> {
        let cq = self.wakes.pop_front()?;
        if let Some(Some(queue)) = self.places.get_mut(cq as usize) {
            queue.set_waking(false);
        }
        Some(cq)
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        assert!(self.wakes.len() <= self.places.len(), "a completion queue is woken once");
    }
}
