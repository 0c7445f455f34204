//! Creation, modification and destruction of shared receive queues, and the taking of their work requests.

use remora_memory::Pd;
use remora_wire::Qpn;

use super::Shared;
use crate::config::NicError;
use crate::event::AsyncEvent;
use crate::receive_queue::{Receive, ReceiveQueue, stride};
use crate::ring::Ring;
use crate::shared_receive_queue::{SharedReceiveQueue, SrqFacts, SrqInit, XrcSrq};
use crate::wqe::MAX_SGE;

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
        let queue = self.objects.srqs.places.get_mut(place as usize)?.as_mut()?;
        let taken = queue.take(keep, slot)?;
        if queue.limit_reached() {
            let number = queue.number;
            self.event(AsyncEvent::SrqLimit(number));
        }
        Some(taken)
    }

    /// Creates a shared receive queue over `ring` and returns its number.
    pub(crate) fn create_srq(&mut self, init: &SrqInit, ring: Ring) -> Result<Qpn, NicError> {
        let stride = stride(init.max_sge.min(MAX_SGE as u32));
        let max_wr = ring.slots() / stride;
        if max_wr == 0 {
            return Err(NicError::TooSmall);
        }
        if let Some(xrc) = init.xrc {
            self.cqs.join(xrc.cq, init.pd)?;
            if let Err(error) = self.objects.xrc_domains.join(xrc.domain) {
                self.cqs.leave(xrc.cq, init.pd);
                return Err(error);
            }
        }
        let Some(place) = self.objects.srqs.free.pop_front() else {
            self.forget(init.xrc, init.pd);
            return Err(NicError::Full);
        };
        let generation = u32::from(self.objects.srqs.generations[place as usize]);
        let number = Qpn::new((generation << self.objects.srqs.index_bits | place) & 0x00ff_ffff);
        let SrqInit { pd, xrc, .. } = *init;
        let queue =
            SharedReceiveQueue { number, pd, xrc, ring, stride, produced: 0, taken: 0, limit: 0, users: 0 };
        self.objects.srqs.places[place as usize] = Some(queue);
        Ok(number)
    }

    pub(crate) fn destroy_srq(&mut self, number: Qpn) -> Result<(), NicError> {
        if self.objects.srqs.get_mut(number)?.users > 0 {
            return Err(NicError::Busy);
        }
        let place = self.objects.srqs.place(number).ok_or(NicError::Unknown)?;
        let queue = self.objects.srqs.places[place as usize].take().ok_or(NicError::Unknown)?;
        let generation = &mut self.objects.srqs.generations[place as usize];
        *generation = generation.wrapping_add(1);
        self.objects.srqs.free.push_back(place);
        self.forget(queue.xrc, queue.pd);
        Ok(())
    }

    fn forget(&mut self, xrc: Option<XrcSrq>, pd: Pd) {
        if let Some(xrc) = xrc {
            self.cqs.leave(xrc.cq, pd);
            self.objects.xrc_domains.leave(xrc.domain);
        }
    }

    pub(crate) fn arm_srq(&mut self, number: Qpn, limit: u32) -> Result<(), NicError> {
        let queue = self.objects.srqs.get_mut(number)?;
        if limit > queue.max_wr() {
            return Err(NicError::TooSmall);
        }
        queue.limit = limit;
        if queue.limit_reached() {
            self.event(AsyncEvent::SrqLimit(number));
        }
        Ok(())
    }

    /// Moves a shared receive queue to another ring, with the posted work requests.
    pub(crate) fn resize_srq(&mut self, number: Qpn, ring: Ring) -> Result<(), NicError> {
        let queue = self.objects.srqs.get_mut(number)?;
        let too_small = ring.slots() / queue.stride < u64::from(queue.limit.max(1));
        if too_small || !queue.resize(ring) { Err(NicError::TooSmall) } else { Ok(()) }
    }

    pub(crate) fn query_srq(&mut self, number: Qpn) -> Result<SrqFacts, NicError> {
        let queue = self.objects.srqs.get_mut(number)?;
        Ok(SrqFacts { max_wr: queue.max_wr(), limit: queue.limit, waiting: queue.waiting() })
    }
}
