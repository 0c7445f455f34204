//! Creation, modification and destruction of shared receive queues, and the taking of their work requests.

use remora_memory::Pd;
use remora_wire::Qpn;

use super::Nic;
use crate::config::NicError;
use crate::event::AsyncEvent;
use crate::receive_queue::{Receive, ReceiveQueue, stride};
use crate::ring::Ring;
use crate::shared::Shared;
use crate::shared_receive_queue::{SharedReceiveQueue, SrqFacts, SrqInit, XrcSrq};
use crate::wqe::MAX_SGE;

impl Nic {
    /// Creates a shared receive queue and returns its number.
    ///
    /// # Errors
    /// `Full`: the configured maximum number exists. `TooSmall`: the ring holds no work request. `Unknown`:
    /// there is no such XRC domain or completion queue.
    pub fn create_srq(&mut self, init: SrqInit) -> Result<Qpn, NicError> {
        self.shared.create_srq(init)
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// `Busy`: a queue pair uses the queue.
    pub fn destroy_srq(&mut self, srq: Qpn) -> Result<(), NicError> {
        self.shared.destroy_srq(srq)
    }

    /// Arms the limit: one event is raised when fewer than `limit` work requests are left, immediately if
    /// this is already so. 0 disarms the limit.
    ///
    /// # Errors
    /// `TooSmall`: the limit exceeds the capacity of the queue.
    pub fn arm_srq(&mut self, srq: Qpn, limit: u32) -> Result<(), NicError> {
        self.shared.arm_srq(srq, limit)
    }

    /// Moves a shared receive queue to another ring, with the posted work requests.
    ///
    /// # Errors
    /// `TooSmall`: the ring is too small for the posted work requests or for the armed limit.
    pub fn resize_srq(&mut self, srq: Qpn, ring: Ring) -> Result<(), NicError> {
        self.shared.resize_srq(srq, ring)
    }

    /// Returns the capacity, the limit and the number of posted work requests of a shared receive queue.
    ///
    /// # Errors
    /// `Unknown`: there is no such shared receive queue.
    pub fn query_srq(&mut self, srq: Qpn) -> Result<SrqFacts, NicError> {
        self.shared.query_srq(srq)
    }
}

impl Shared {
    /// Takes a work request of a shared receive queue for a message. `keep` is the queue pair's buffer for
    /// the request.
    #[inline]
    pub(crate) fn take_shared(&mut self, place: u32, keep: &ReceiveQueue) -> Option<Receive> {
        self.take_shared_to(place, keep, None)
    }

    /// Takes a work request of a shared receive queue into `slot` of the buffer `keep`, for queue pairs that
    /// receive several messages at a time.
    pub(crate) fn take_shared_to(
        &mut self,
        place: u32,
        keep: &ReceiveQueue,
        slot: Option<u64>,
    ) -> Option<Receive> {
        let queue = self.srqs.places.get_mut(place as usize)?.as_mut()?;
        let taken = queue.take(keep, slot)?;
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
