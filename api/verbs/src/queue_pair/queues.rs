//! The program's sides of the send queue and the receive queue.

use remora_nic::wqe::{self, Bounds};
use remora_nic::{PostError, ReceiveRequest, Ring, Target, WorkRequest, prism, write_receive};

/// The program's side of a send queue. Slots are filled, then published together by the producer index.
#[derive(Debug)]
pub(crate) struct SendSide {
    ring: Ring,
    /// Usable slots: all of the ring, or none if the queue is closed.
    slots: u64,
    bounds: Bounds,
    produced: u64,
    published: u64,
    /// The consumer index as last read. It is read again only when the queue looks full.
    consumed: u64,
    /// The limit of requests; `None` if only the slots limit the queue.
    requests: Option<RequestBound>,
}

/// The limit of requests in a send queue whose ring could hold more.
#[derive(Debug)]
struct RequestBound {
    most: u32,
    /// The number of the next request, counted from 0 and wrapping.
    next: u32,
    /// The number of the request that starts in each slot of the ring.
    numbers: Box<[u32]>,
}

impl RequestBound {
    /// The number of requests between slot `consumed`, where one starts, and slot `produced`, where the next
    /// one will start.
    #[inline]
    fn outstanding(&self, consumed: u64, produced: u64) -> u32 {
        if consumed == produced { 0 } else { self.next.wrapping_sub(self.number(consumed)) }
    }

    #[inline]
    fn number(&self, slot: u64) -> u32 {
        self.numbers[slot as usize & (self.numbers.len() - 1)]
    }

    #[inline]
    fn push(&mut self, slot: u64) {
        let place = slot as usize & (self.numbers.len() - 1);
        self.numbers[place] = self.next;
        self.next = self.next.wrapping_add(1);
    }
}

impl SendSide {
    pub(crate) fn new(ring: Ring, bounds: Bounds) -> SendSide {
        SendSide { slots: ring.slots(), ring, bounds, produced: 0, published: 0, consumed: 0, requests: None }
    }

    /// Limits the queue to `most` requests, though the ring has more slots.
    pub(crate) fn limited(self, most: u32) -> SendSide {
        let numbers = vec![0; self.ring.slots() as usize].into();
        SendSide { requests: Some(RequestBound { most, next: 0, numbers }), ..self }
    }

    /// Closes the queue, for a queue pair that only receives: it is always full.
    pub(crate) fn closed(self) -> SendSide {
        SendSide { slots: 0, ..self }
    }

    /// Continues from the index that an earlier program has published.
    pub(crate) fn resumed(self) -> SendSide {
        let (produced, consumed) =
            (self.ring.word(remora_nic::Word::Produced), self.ring.word(remora_nic::Word::Consumed));
        SendSide { produced, published: produced, consumed, ..self }
    }

    /// The queue's memory.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Fills the slots of one request without publishing them.
    #[inline]
    pub(crate) fn push(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.push_to(request, &Target::Peer)
    }

    /// Like [`push`](SendSide::push), for a request with a target of its own (a datagram or XRC).
    #[inline]
    pub(crate) fn push_to(&mut self, request: &WorkRequest<'_>, target: &Target) -> Result<(), PostError> {
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
        let mut free = self.slots.saturating_sub(self.produced - self.consumed);
        if let Some(requests) = &self.requests
            && requests.outstanding(self.consumed, self.produced) >= requests.most
        {
            free = 0;
        }
        let ring = &self.ring;
        let first = self.produced;
        let slots = wqe::write_to(request, target, &self.bounds, free as usize, |slot, bytes| {
            ring.store(first + slot as u64, bytes)
        })?;
        self.produced += slots as u64;
        if let Some(requests) = &mut self.requests {
            requests.push(first);
        }
        Ok(())
    }

    /// Fills the slots of a PRISM operation without publishing them.
    pub(crate) fn push_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.consumed = self.ring.word(remora_nic::Word::Consumed);
        let free = self.slots.saturating_sub(self.produced - self.consumed);
        let ring = &self.ring;
        let first = self.produced;
        let store = |slot: usize, bytes: &[u8; wqe::SLOT]| ring.store(first + slot as u64, bytes);
        self.produced += prism::write(request, &self.bounds, free as usize, store)? as u64;
        Ok(())
    }

    /// The index up to which slots are published.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// Takes back the slots that were published from index `published` on. The NIC has not seen them: its
    /// doorbell was not rung, and the calling thread is inside its engine.
    #[cold]
    pub(crate) fn withdraw(&mut self, published: u64) {
        self.forget_from(published);
        self.published = published;
        self.ring.set_word(remora_nic::Word::Produced, published);
    }

    /// Drops the slots that were filled since the last publication.
    pub(crate) fn take_back(&mut self) {
        self.forget_from(self.published);
    }

    /// Drops the filled slots from index `slot` on, where a request starts.
    fn forget_from(&mut self, slot: u64) {
        if let Some(requests) = self.requests.as_mut().filter(|_| slot != self.produced) {
            requests.next = requests.number(slot);
        }
        self.produced = slot;
    }

    /// Fills slots with the bytes of work requests without publishing them. Returns false if the queue has
    /// too few free slots.
    pub(crate) fn push_slots(&mut self, slots: &[[u8; wqe::SLOT]]) -> bool {
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

    /// Publishes the filled slots by the producer index. Returns false if there were none.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.produced == self.published {
            return false;
        }
        self.published = self.produced;
        self.ring.set_word(remora_nic::Word::Produced, self.produced);
        true
    }
}

/// The program's side of a receive queue. Each request takes the same number of slots.
#[derive(Debug)]
pub(crate) struct ReceiveSide {
    ring: Ring,
    /// Usable slots: all of the ring, or none if the queue is closed.
    slots: u64,
    stride: u64,
    max_sge: u32,
    produced: u64,
    consumed: u64,
}

impl ReceiveSide {
    pub(crate) fn new(ring: Ring, stride: u64, max_sge: u32) -> ReceiveSide {
        ReceiveSide { slots: ring.slots(), ring, stride, max_sge, produced: 0, consumed: 0 }
    }

    /// Closes the queue, for a queue pair that only sends: it is always full.
    pub(crate) fn closed(self) -> ReceiveSide {
        ReceiveSide { slots: 0, ..self }
    }

    /// Limits the queue to `requests` requests, though the ring may have more slots.
    pub(crate) fn limited(self, requests: u32) -> ReceiveSide {
        ReceiveSide { slots: self.slots.min(u64::from(requests) * self.stride), ..self }
    }

    /// Continues from the index that an earlier program has published.
    pub(crate) fn resumed(self) -> ReceiveSide {
        let (produced, consumed) =
            (self.ring.word(remora_nic::Word::Produced), self.ring.word(remora_nic::Word::Consumed));
        ReceiveSide { produced, consumed, ..self }
    }

    /// The queue's memory.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Fills the slots of one request without publishing them.
    #[inline]
    pub(crate) fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if request.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if self.produced + self.stride - self.consumed > self.slots {
            self.consumed = self.ring.word(remora_nic::Word::Consumed);
            if self.produced + self.stride - self.consumed > self.slots {
                return Err(PostError::QueueFull);
            }
        }
        let ring = &self.ring;
        let first = self.produced;
        write_receive(request.id, request.sges, |slot, bytes| ring.store(first + slot as u64, bytes));
        self.produced += self.stride;
        Ok(())
    }

    /// Continues in another ring, after a resize.
    pub(crate) fn moved(&mut self, ring: Ring) {
        (self.slots, self.ring) = (ring.slots(), ring);
    }

    /// The capacity in requests, and the list elements of each.
    pub(crate) fn shape(&self) -> (u64, u32) {
        (self.slots / self.stride, self.max_sge)
    }

    /// Makes the NIC use the posted requests round after round. Returns false if they do not fill the ring.
    pub(crate) fn recycle(&mut self) -> bool {
        let full = self.produced == self.ring.slots();
        if full {
            self.ring.recycle();
        }
        full
    }

    /// Publishes the posted requests by the producer index.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.set_word(remora_nic::Word::Produced, self.produced);
    }

    /// Takes back the request that was published last, as [`SendSide::withdraw`] does.
    #[cold]
    pub(crate) fn withdraw(&mut self) {
        self.produced -= self.stride;
        self.publish();
    }

    /// Returns whether the queue pair is in the error state. The doorbell must ring then, so that the NIC
    /// flushes.
    #[inline]
    pub(crate) fn must_ring(&self) -> bool {
        self.ring.word(remora_nic::Word::Error) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_memory::{Bytes, Key};
    use remora_nic::{Flags, Operation, Payload, Sge, Word};

    /// Regression: a send queue of 10 requests took 32.
    #[test]
    fn a_limited_send_queue_holds_so_many_requests_of_any_length() {
        let ring = Ring::new(Bytes::heap(Ring::size(32)).unwrap()).unwrap();
        let bounds = Bounds { max_sge: 3, max_inline: 0 };
        let mut side = SendSide::new(ring.clone(), bounds).limited(3);
        let list = [Sge { addr: 0, len: 1, lkey: Key::new(1) }; 3];
        let push = |side: &mut SendSide, elements: usize| {
            let flags = Flags { fence: false, signaled: true, solicited: false };
            let operation = Operation::Send;
            let payload = Payload::Sges(&list[..elements]);
            let pushed = side.push(&WorkRequest { id: 1, operation, payload, flags });
            pushed.map(|()| side.produced)
        };
        let mut starts = std::collections::VecDeque::new();
        let mut random = 1u32;
        for _ in 0..1000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let before = side.produced;
            match push(&mut side, 1 + 2 * (random >> 31) as usize) {
                Ok(_) => starts.push_back(before),
                Err(error) => assert_eq!((error, starts.len()), (PostError::QueueFull, 3)),
            }
            assert!(starts.len() <= 3);
            if random >> 28 & 3 == 0 {
                // Nothing was published since: what was pushed is taken back.
                side.take_back();
                starts.retain(|start| *start < side.published);
            } else {
                side.publish();
            }
            if random >> 27 & 1 == 0 && starts.front().is_some_and(|start| *start < side.published) {
                starts.pop_front();
                ring.set_word(Word::Consumed, starts.front().copied().unwrap_or(side.produced));
            }
        }
        assert!(side.produced > 320, "fewer than ten rounds of the ring");
    }
}
