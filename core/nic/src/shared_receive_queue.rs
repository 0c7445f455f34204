//! Shared receive queues: receive work requests that any of several queue pairs takes (IBTA vol. 1 §10.2.9).
//!
//! A work request is copied out when a message takes it, into the slots that its queue pair keeps for the message under way.
//! So it leaves the shared queue at once and in order, however long the message takes, and its slots are free again.

use remora_memory::Pd;
use remora_wire::Qpn;
use std::collections::VecDeque;

use crate::event::AsyncEvent;
use crate::nic::{Nic, NicError, Shared};
use crate::receive_queue::{Receive, ReceiveQueue, received_at, stride};
use crate::ring::{Ring, Word};
use crate::wqe::{MAX_SGE, SLOT};

/// What a shared receive queue is made of.
pub struct SrqInit {
    /// Its domain: the local keys of its work requests must be of it.
    pub pd: Pd,
    /// Memory of the queue.
    pub ring: Ring,
    /// Elements per work request.
    pub max_sge: u32,
    /// For extended reliable connections.
    pub xrc: Option<XrcSrq>,
}

/// What a shared receive queue of an XRC domain has beside.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct XrcSrq {
    /// Its domain: only queue pairs of the same one reach it.
    pub domain: u32,
    /// Where its completions go.
    pub cq: u32,
}

/// What `ibv_query_srq` tells.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SrqFacts {
    /// Work requests that it holds at most.
    pub max_wr: u32,
    /// The limit that is armed; 0: none.
    pub limit: u32,
    /// Work requests that wait in it.
    pub waiting: u32,
}

/// A shared receive queue as the NIC sees it.
pub(crate) struct SharedReceiveQueue {
    pub number: Qpn,
    pub pd: Pd,
    pub xrc: Option<XrcSrq>,
    ring: Ring,
    stride: u64,
    produced: u64,
    taken: u64,
    limit: u32,
    /// Queue pairs that were made with it.
    users: u32,
}

impl SharedReceiveQueue {
    /// Does a work request wait? The index is read again only when none is known.
    #[inline]
    fn ready(&mut self) -> bool {
        if self.taken + self.stride > self.produced {
            self.look();
        }
        self.taken + self.stride <= self.produced
    }

    #[inline]
    fn look(&mut self) {
        // An index that runs ahead of the ring would only make us read slots twice.
        let produced = self.ring.word(Word::Produced).min(self.taken + self.ring.slots());
        self.produced = self.produced.max(produced);
    }

    fn waiting(&mut self) -> u32 {
        self.look();
        (self.produced.saturating_sub(self.taken) / self.stride) as u32
    }

    fn max_wr(&self) -> u32 {
        (self.ring.slots() / self.stride) as u32
    }

    /// Moves the next work request into `place`: to slot `to`, or where it stands here.
    fn take(&mut self, place: &ReceiveQueue, to: Option<u64>) -> Option<Receive> {
        if !self.ready() {
            return None;
        }
        let index = self.taken;
        self.taken += self.stride;
        let mut slot = [0; SLOT];
        for at in (0..self.stride).rev() {
            self.ring.load(index + at, &mut slot);
            place.keep(to.unwrap_or(index) + at, &slot);
        }
        self.ring.set_word(Word::Consumed, self.taken);
        Some(received_at(to.unwrap_or(index), &slot, self.stride))
    }

    /// Is the armed limit reached? Then it is disarmed.
    fn limit_reached(&mut self) -> bool {
        let reached = self.limit > 0 && self.waiting() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    fn resize(&mut self, ring: Ring) -> bool {
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

/// All shared receive queues of an engine.
pub(crate) struct SharedReceiveQueues {
    places: Vec<Option<SharedReceiveQueue>>,
    generations: Vec<u8>,
    free: VecDeque<u32>,
    index_bits: u32,
}

impl SharedReceiveQueues {
    pub fn new(max: u32) -> Self {
        let max = max.min(1 << 16) as usize;
        SharedReceiveQueues {
            places: (0..max).map(|_| None).collect(),
            generations: vec![0; max],
            free: (0..max as u32).collect(),
            index_bits: max.next_power_of_two().trailing_zeros(),
        }
    }

    /// The place of the queue with this number.
    #[inline]
    pub fn place(&self, number: Qpn) -> Option<u32> {
        let place = number.get() & ((1 << self.index_bits) - 1);
        let queue = self.places.get(place as usize)?.as_ref()?;
        (queue.number == number).then_some(place)
    }

    #[inline]
    pub fn get(&self, place: u32) -> Option<&SharedReceiveQueue> {
        self.places.get(place as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: Qpn) -> Result<&mut SharedReceiveQueue, NicError> {
        let place = self.place(number).ok_or(NicError::Unknown)?;
        self.places[place as usize].as_mut().ok_or(NicError::Unknown)
    }

    /// A queue pair takes from it from now on. Slots that the queue pair must keep for a message under way.
    pub fn join(&mut self, number: Qpn) -> Result<(u32, u64), NicError> {
        let place = self.place(number).ok_or(NicError::Unknown)?;
        let queue = self.get_mut(number)?;
        if queue.xrc.is_some() {
            // Those are named by packets, not by queue pairs.
            return Err(NicError::Unknown);
        }
        queue.users += 1;
        Ok((place, queue.stride))
    }

    pub fn leave(&mut self, place: u32) {
        if let Some(Some(queue)) = self.places.get_mut(place as usize) {
            queue.users = queue.users.saturating_sub(1);
        }
    }

    #[inline]
    pub fn ready(&mut self, place: u32) -> bool {
        let queue = self.places.get_mut(place as usize).and_then(Option::as_mut);
        queue.is_some_and(SharedReceiveQueue::ready)
    }
}

impl Nic {
    /// Makes a shared receive queue; its number.
    ///
    /// # Errors
    /// `Full`; `TooSmall`: the ring holds no work request; `Unknown`: the XRC domain or completion queue.
    pub fn create_srq(&mut self, init: SrqInit) -> Result<Qpn, NicError> {
        self.shared.create_srq(init)
    }

    /// Removes a shared receive queue.
    ///
    /// # Errors
    /// `Busy` while a queue pair that was made with it exists.
    pub fn destroy_srq(&mut self, srq: Qpn) -> Result<(), NicError> {
        self.shared.destroy_srq(srq)
    }

    /// Arms the limit: one event when fewer work requests are left, at once if they are already; 0 disarms it.
    ///
    /// # Errors
    /// `TooSmall`: the queue never holds so many.
    pub fn arm_srq(&mut self, srq: Qpn, limit: u32) -> Result<(), NicError> {
        self.shared.arm_srq(srq, limit)
    }

    /// Moves a shared receive queue to another ring, with what waits in it.
    ///
    /// # Errors
    /// `TooSmall` for what waits, or for the limit.
    pub fn resize_srq(&mut self, srq: Qpn, ring: Ring) -> Result<(), NicError> {
        self.shared.resize_srq(srq, ring)
    }

    /// What a shared receive queue holds and what its limit is.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn query_srq(&mut self, srq: Qpn) -> Result<SrqFacts, NicError> {
        self.shared.query_srq(srq)
    }
}

impl Shared {
    /// Takes a work request of a shared receive queue for a message; `keep` is its queue pair's room for it.
    #[inline]
    pub fn take_shared(&mut self, place: u32, keep: &ReceiveQueue) -> Option<Receive> {
        self.take_shared_to(place, keep, None)
    }

    /// The same, into slot `to` of that room: for who has several messages under way.
    pub fn take_shared_to(&mut self, place: u32, keep: &ReceiveQueue, to: Option<u64>) -> Option<Receive> {
        let queue = self.srqs.places.get_mut(place as usize)?.as_mut()?;
        let taken = queue.take(keep, to)?;
        if queue.limit_reached() {
            let number = queue.number;
            self.event(AsyncEvent::SrqLimit(number));
        }
        Some(taken)
    }

    fn create_srq(&mut self, init: SrqInit) -> Result<Qpn, NicError> {
        let stride = stride(init.max_sge.min(MAX_SGE as u32));
        let max_wr = init.ring.slots() / stride;
        if max_wr == 0 {
            return Err(NicError::TooSmall);
        }
        if let Some(xrc) = init.xrc {
            self.use_cq(xrc.cq, init.pd)?;
            if let Err(error) = self.xrc_domains.join(xrc.domain) {
                self.release_cq(xrc.cq, init.pd);
                return Err(error);
            }
        }
        let Some(place) = self.srqs.free.pop_front() else {
            self.forget(init.xrc, init.pd);
            return Err(NicError::Full);
        };
        let generation = u32::from(self.srqs.generations[place as usize]);
        let number = Qpn::new((generation << self.srqs.index_bits | place) & 0x00ff_ffff);
        let SrqInit { pd, ring, xrc, .. } = init;
        let queue =
            SharedReceiveQueue { number, pd, xrc, ring, stride, produced: 0, taken: 0, limit: 0, users: 0 };
        self.srqs.places[place as usize] = Some(queue);
        Ok(number)
    }

    fn destroy_srq(&mut self, number: Qpn) -> Result<(), NicError> {
        if self.srqs.get_mut(number)?.users > 0 {
            return Err(NicError::Busy);
        }
        let place = self.srqs.place(number).ok_or(NicError::Unknown)?;
        let queue = self.srqs.places[place as usize].take().ok_or(NicError::Unknown)?;
        let generation = &mut self.srqs.generations[place as usize];
        *generation = generation.wrapping_add(1);
        self.srqs.free.push_back(place);
        self.forget(queue.xrc, queue.pd);
        Ok(())
    }

    fn forget(&mut self, xrc: Option<XrcSrq>, pd: Pd) {
        if let Some(xrc) = xrc {
            self.release_cq(xrc.cq, pd);
            self.xrc_domains.leave(xrc.domain);
        }
    }

    fn arm_srq(&mut self, number: Qpn, limit: u32) -> Result<(), NicError> {
        let queue = self.srqs.get_mut(number)?;
        if limit > queue.max_wr() {
            return Err(NicError::TooSmall);
        }
        queue.limit = limit;
        if queue.limit_reached() {
            self.event(AsyncEvent::SrqLimit(number));
        }
        Ok(())
    }

    fn resize_srq(&mut self, number: Qpn, ring: Ring) -> Result<(), NicError> {
        let queue = self.srqs.get_mut(number)?;
        let too_small = ring.slots() / queue.stride < u64::from(queue.limit.max(1));
        if too_small || !queue.resize(ring) { Err(NicError::TooSmall) } else { Ok(()) }
    }

    fn query_srq(&mut self, number: Qpn) -> Result<SrqFacts, NicError> {
        let queue = self.srqs.get_mut(number)?;
        Ok(SrqFacts { max_wr: queue.max_wr(), limit: queue.limit, waiting: queue.waiting() })
    }
}
