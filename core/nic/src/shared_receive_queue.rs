//! Shared receive queues, whose work requests are taken by any of several queue pairs (IBTA vol. 1 §10.2.9).
//!
//! When a message takes a work request, the request is copied into slots of the queue pair. So the request
//! leaves the shared queue immediately and in order, and its slots are free, however long the message takes.

use remora_memory::Pd;
use remora_wire::Qpn;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::config::NicError;
use crate::part_number::PartNumber;
use crate::receive_queue::{Receive, ReceiveQueue, received_at};
use crate::ring::{Ring, Word};
use crate::wqe::SLOT;

/// The parameters with which a shared receive queue is created.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrqInit {
    /// Protection domain; the local keys of the work requests must belong to it.
    pub pd: Pd,
    /// Memory of the queue.
    pub ring: PartNumber,
    /// Maximum number of scatter/gather elements per work request.
    pub max_sge: u32,
    /// XRC parameters; `None` for a shared receive queue of other services.
    pub xrc: Option<XrcSrq>,
}

/// The XRC part of a shared receive queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XrcSrq {
    /// XRC domain; only queue pairs of the same domain can use the queue.
    pub domain: u32,
    /// Number of the completion queue for received messages.
    pub cq: u32,
}

/// The attributes that `ibv_query_srq` returns.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrqFacts {
    /// Maximum number of work requests.
    pub max_wr: u32,
    /// The armed limit; 0 if none is armed.
    pub limit: u32,
    /// Number of posted work requests that no message has taken.
    pub waiting: u32,
}

/// A shared receive queue, the NIC's side.
pub(crate) struct SharedReceiveQueue {
    pub number: Qpn,
    pub pd: Pd,
    pub xrc: Option<XrcSrq>,
    pub ring: Ring,
    pub stride: u64,
    pub produced: u64,
    pub taken: u64,
    pub limit: u32,
    /// Number of queue pairs that use the queue.
    pub users: u32,
}

impl SharedReceiveQueue {
    /// Returns true if a work request is posted. The producer index is read only when no posted request is
    /// known.
    #[inline]
    fn ready(&mut self) -> bool {
        if self.taken + self.stride > self.produced {
            self.look();
        }
        self.taken + self.stride <= self.produced
    }

    #[inline]
    fn look(&mut self) {
        // A producer index beyond the ring would make the NIC take slots twice, so it is limited.
        let produced = self.ring.word(Word::Produced).min(self.taken + self.ring.slots());
        self.produced = self.produced.max(produced);
    }

    pub(crate) fn waiting(&mut self) -> u32 {
        self.look();
        (self.produced.saturating_sub(self.taken) / self.stride) as u32
    }

    pub(crate) fn max_wr(&self) -> u32 {
        (self.ring.slots() / self.stride) as u32
    }

    /// Copies the next work request into `place`, to slot `target`, or with `None` to the slot index that the
    /// request has in this queue. Returns `None` if the queue is empty.
    pub(crate) fn take(&mut self, place: &ReceiveQueue, target: Option<u64>) -> Option<Receive> {
        if !self.ready() {
            return None;
        }
        let index = self.taken;
        self.taken += self.stride;
        let mut slot = [0; SLOT];
        for offset in (0..self.stride).rev() {
            self.ring.load(index + offset, &mut slot);
            place.keep(target.unwrap_or(index) + offset, &slot);
        }
        self.ring.set_word(Word::Consumed, self.taken);
        Some(received_at(target.unwrap_or(index), &slot, self.stride))
    }

    /// Returns true, and disarms the limit, if fewer work requests than the armed limit are left.
    pub(crate) fn limit_reached(&mut self) -> bool {
        let reached = self.limit > 0 && self.waiting() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// Asserts that the indices are within one ring, and the limit within the capacity.
    pub(crate) fn check(&self) {
        let waiting = self.produced.checked_sub(self.taken);
        assert!(
            waiting.is_some_and(|waiting| waiting <= self.ring.slots()),
            "0 <= posted slots that are not taken <= slots of the ring: {}, {}",
            self.produced,
            self.taken
        );
        assert!(self.limit <= self.max_wr(), "the armed limit <= work requests of the queue");
    }

    pub(crate) fn resize(&mut self, ring: Ring) -> bool {
        self.look();
        if self.produced - self.taken > ring.slots() {
            return false;
        }
        let mut slot = [0; SLOT];
        for index in self.taken..self.produced {
            self.ring.load(index, &mut slot);
            ring.store(index, &slot);
        }
        ring.set_word(Word::Produced, self.produced);
        ring.set_word(Word::Consumed, self.taken);
        self.ring = ring;
        true
    }
}

/// The shared receive queues of an engine.
pub(crate) struct SharedReceiveQueues {
    pub places: Vec<Option<SharedReceiveQueue>>,
    pub generations: Vec<u8>,
    pub free: VecDeque<u32>,
    pub index_bits: u32,
}

impl SharedReceiveQueues {
    pub(crate) fn new(max: u32) -> Self {
        let max = max.min(1 << 16) as usize;
        SharedReceiveQueues {
            places: (0..max).map(|_| None).collect(),
            generations: vec![0; max],
            free: (0..max as u32).collect(),
            index_bits: max.next_power_of_two().trailing_zeros(),
        }
    }

    /// Returns the table index of the queue with this number.
    #[inline]
    pub(crate) fn place(&self, number: Qpn) -> Option<u32> {
        let place = number.get() & ((1 << self.index_bits) - 1);
        let queue = self.places.get(place as usize)?.as_ref()?;
        (queue.number == number).then_some(place)
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> Option<&SharedReceiveQueue> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: Qpn) -> Result<&mut SharedReceiveQueue, NicError> {
        let place = self.place(number).ok_or(NicError::Unknown)?;
        self.places[place as usize].as_mut().ok_or(NicError::Unknown)
    }

    /// Registers a queue pair as a user of the queue. Returns the queue's table index and the number of slots
    /// that the queue pair needs for a message that is being received.
    pub(crate) fn join(&mut self, number: Qpn) -> Result<(u32, u64), NicError> {
        let place = self.place(number).ok_or(NicError::Unknown)?;
        let queue = self.get_mut(number)?;
        if queue.xrc.is_some() {
            // XRC packets carry the number of the shared receive queue, so no queue pair may be bound to it.
            return Err(NicError::Unknown);
        }
        queue.users += 1;
        Ok((place, queue.stride))
    }

    pub(crate) fn leave(&mut self, place: u32) {
        if let Some(Some(queue)) = self.places.get_mut(place as usize) {
            queue.users = queue.users.saturating_sub(1);
        }
    }

    #[inline]
    pub(crate) fn ready(&mut self, place: u32) -> bool {
        let queue = self.places.get_mut(place as usize).and_then(Option::as_mut);
        queue.is_some_and(SharedReceiveQueue::ready)
    }
}
