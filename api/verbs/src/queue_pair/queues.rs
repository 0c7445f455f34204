//! The program's sides of the two work queues.

use remora_nic::wqe::{self, Bounds};
use remora_nic::{PostError, ReceiveRequest, Ring, Target, WorkRequest, prism, write_receive};

/// The send queue: slots are filled, then published together by the producer index.
#[derive(Debug)]
pub(crate) struct SendSide {
    ring: Ring,
    /// Slots that it may use: all of the ring's, or none.
    slots: u64,
    bounds: Bounds,
    produced: u64,
    published: u64,
    /// The consumer index as last read: read again only when the queue looks full.
    consumed: u64,
}

impl SendSide {
    pub fn new(ring: Ring, bounds: Bounds) -> SendSide {
        SendSide { slots: ring.slots(), ring, bounds, produced: 0, published: 0, consumed: 0 }
    }

    /// The side of a queue pair that only receives: it is always full.
    pub fn closed(self) -> SendSide {
        SendSide { slots: 0, ..self }
    }

    /// Goes on from the index that an earlier program has published.
    pub fn resumed(self) -> SendSide {
        let (produced, consumed) =
            (self.ring.word(remora_nic::Word::Produced), self.ring.word(remora_nic::Word::Consumed));
        SendSide { produced, published: produced, consumed, ..self }
    }

    /// The queue's memory.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Fills the slots of one request, unpublished.
    #[inline]
    pub fn push(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.push_to(request, &Target::Peer)
    }

    /// As [`push`](SendSide::push), for a target beside the connected peer.
    #[inline]
    pub fn push_to(&mut self, request: &WorkRequest<'_>, target: &Target) -> Result<(), PostError> {
        match self.try_push(request, target) {
            Err(PostError::QueueFull) => {
                self.consumed = self.ring.word(remora_nic::Word::Consumed);
                self.try_push(request, target)
            }
            done => done,
        }
    }

    #[inline]
    fn try_push(&mut self, request: &WorkRequest<'_>, target: &Target) -> Result<(), PostError> {
        let free = self.slots.saturating_sub(self.produced - self.consumed);
        let (ring, first) = (&self.ring, self.produced);
        let slots = wqe::write_to(request, target, &self.bounds, free as usize, |slot, bytes| {
            ring.store(first + slot as u64, bytes)
        })?;
        self.produced += slots as u64;
        Ok(())
    }

    /// Fills the slots of an operation of PRISM, unpublished.
    pub fn push_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.consumed = self.ring.word(remora_nic::Word::Consumed);
        let free = self.slots.saturating_sub(self.produced - self.consumed);
        let (ring, first) = (&self.ring, self.produced);
        let store = |slot: usize, bytes: &[u8; wqe::SLOT]| ring.store(first + slot as u64, bytes);
        self.produced += prism::write(request, &self.bounds, free as usize, store)? as u64;
        Ok(())
    }

    /// Slots published so far.
    #[inline]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Takes back what was published beyond `published`. The NIC was not told, and cannot look: the calling
    /// thread is inside its engine.
    #[cold]
    pub fn withdraw(&mut self, published: u64) {
        (self.produced, self.published) = (published, published);
        self.ring.set_word(remora_nic::Word::Produced, published);
    }

    /// Drops the slots that were filled since the last publication.
    pub fn take_back(&mut self) {
        self.produced = self.published;
    }

    /// Fills slots with the bytes of work requests, unpublished. False: the queue has not so many free slots.
    pub fn push_slots(&mut self, slots: &[[u8; wqe::SLOT]]) -> bool {
        self.consumed = self.ring.word(remora_nic::Word::Consumed);
        if self.produced - self.consumed + slots.len() as u64 > self.slots {
            return false;
        }
        for slot in slots {
            self.ring.store(self.produced, slot);
            self.produced += 1;
        }
        true
    }

    /// Publishes the filled slots by the index. False: nothing new.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.produced == self.published {
            return false;
        }
        self.published = self.produced;
        self.ring.set_word(remora_nic::Word::Produced, self.produced);
        true
    }
}

/// The receive queue: each request takes the same number of slots.
#[derive(Debug)]
pub(crate) struct ReceiveSide {
    ring: Ring,
    /// Slots that it may use: all of the ring's, or none.
    slots: u64,
    stride: u64,
    max_sge: u32,
    produced: u64,
    consumed: u64,
}

impl ReceiveSide {
    pub fn new(ring: Ring, stride: u64, max_sge: u32) -> ReceiveSide {
        ReceiveSide { slots: ring.slots(), ring, stride, max_sge, produced: 0, consumed: 0 }
    }

    /// The side of a queue pair that only sends: it is always full.
    pub fn closed(self) -> ReceiveSide {
        ReceiveSide { slots: 0, ..self }
    }

    /// The side that holds this many requests, though the ring has more slots.
    pub fn limited(self, requests: u32) -> ReceiveSide {
        ReceiveSide { slots: self.slots.min(u64::from(requests) * self.stride), ..self }
    }

    /// Goes on from the index that an earlier program has published.
    pub fn resumed(self) -> ReceiveSide {
        let (produced, consumed) =
            (self.ring.word(remora_nic::Word::Produced), self.ring.word(remora_nic::Word::Consumed));
        ReceiveSide { produced, consumed, ..self }
    }

    /// The queue's memory.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Fills the slots of one request, unpublished.
    #[inline]
    pub fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if request.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if self.produced + self.stride - self.consumed > self.slots {
            self.consumed = self.ring.word(remora_nic::Word::Consumed);
            if self.produced + self.stride - self.consumed > self.slots {
                return Err(PostError::QueueFull);
            }
        }
        let (ring, first) = (&self.ring, self.produced);
        write_receive(request.id, request.sges, |slot, bytes| ring.store(first + slot as u64, bytes));
        self.produced += self.stride;
        Ok(())
    }

    /// Goes on in another ring, after a resize.
    pub fn moved(&mut self, ring: Ring) {
        (self.slots, self.ring) = (ring.slots(), ring);
    }

    /// Requests that it holds, and list elements of each.
    pub fn shape(&self) -> (u64, u32) {
        (self.slots / self.stride, self.max_sge)
    }

    /// From now on the posted requests are taken round after round. False: they do not fill the ring.
    pub fn recycle(&mut self) -> bool {
        let full = self.produced == self.ring.slots();
        if full {
            self.ring.recycle();
        }
        full
    }

    /// Publishes the posted receives by the index.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.set_word(remora_nic::Word::Produced, self.produced);
    }

    /// Takes back the request that was published last, as [`SendSide::withdraw`] does.
    #[cold]
    pub fn withdraw(&mut self) {
        self.produced -= self.stride;
        self.publish();
    }

    /// In the error state the doorbell must ring, so that the NIC flushes.
    #[inline]
    pub fn must_ring(&self) -> bool {
        self.ring.word(remora_nic::Word::Error) != 0
    }
}
