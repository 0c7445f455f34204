//! Shared receive queues that any thread posts to.

use remora_memory::Pd;
use remora_nic::{ReceiveCaps, ReceiveRequest, SrqFacts, SrqInit, XrcSrq};
use remora_wire::Qpn;
use std::sync::Arc;

use super::guarded::Guarded;
use super::{ChannelAdapter, Cq};
use crate::queue_pair::ReceiveSide;
use crate::{CreateError, PostError};

/// A shared receive queue (`ibv_srq`).
#[derive(Debug)]
pub struct Srq {
    adapter: Arc<ChannelAdapter>,
    number: Qpn,
    pd: Pd,
    max_sge: u32,
    receive: Guarded<ReceiveSide>,
}

impl Srq {
    /// A shared receive queue of this domain. `xrc` are the XRC domain that it serves, and where it
    /// completes.
    ///
    /// # Errors
    /// `TooMany`, `Nic(Full)`, `Memory`; `Forked`.
    pub fn create(
        adapter: &Arc<ChannelAdapter>,
        pd: Pd,
        caps: ReceiveCaps,
        xrc: Option<(u32, &Cq)>,
    ) -> Result<Arc<Srq>, CreateError> {
        adapter.refuse_child()?;
        let ring = adapter.ring(slots(caps)?)?;
        let max_sge = caps.max_sge;
        let xrc = xrc.map(|(domain, cq)| XrcSrq { domain, cq: cq.number() });
        let init = SrqInit { pd, ring: ring.clone(), max_sge, xrc };
        adapter.table().retain_pd(pd)?;
        let made = adapter.engine().control(|control| control.nic.create_srq(init));
        let number = made.inspect_err(|_| {
            let _ = adapter.table().release_pd(pd);
        })?;
        let receive = ReceiveSide::new(ring, remora_nic::stride(max_sge), max_sge);
        let receive = Guarded::new(adapter.engine(), receive);
        Ok(Arc::new(Srq { adapter: Arc::clone(adapter), number, pd, max_sge, receive }))
    }

    /// Its number: initiators of XRC and asynchronous events name it.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// Posts receive work requests: `fill` gives them to its argument one by one.
    ///
    /// # Errors
    /// `Forked`.
    pub fn post_recv<R>(&self, fill: impl FnOnce(&mut Receives<'_>) -> R) -> Result<R, PostError> {
        if self.adapter.is_child() {
            return Err(PostError::Forked);
        }
        Ok(self.receive.engine().inside(|inside| {
            let side = self.receive.get(inside);
            let filled = fill(&mut Receives(side));
            side.publish();
            filled
        })?)
    }

    /// Asks for one event when fewer than `limit` work requests are left; 0 asks for none.
    ///
    /// # Errors
    /// `Nic(TooSmall)`: it never holds so many; `Forked`.
    pub fn arm(&self, limit: u32) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        Ok(self.receive.engine().control(|control| control.nic.arm_srq(self.number, limit))?)
    }

    /// Its size and its limit.
    ///
    /// # Errors
    /// `Forked`.
    pub fn query(&self) -> Result<SrqFacts, CreateError> {
        self.adapter.refuse_child()?;
        Ok(self.receive.engine().control(|control| control.nic.query_srq(self.number))?)
    }

    /// Elements of a work request's list at most.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Makes it hold at least `max_wr` work requests; waiting ones stay.
    ///
    /// # Errors
    /// `TooMany`; `Nic(TooSmall)` if the waiting ones, or the limit, do not fit; `Forked`.
    pub fn resize(&self, max_wr: u32) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        let ring = self.adapter.ring(slots(ReceiveCaps { max_wr, max_sge: self.max_sge })?)?;
        let resized = self.receive.engine().inside(|inside| {
            inside.nic().resize_srq(self.number, ring.clone())?;
            self.receive.get(inside).moved(ring);
            Ok(())
        });
        resized.map_err(|_| CreateError::Reentered)?
    }

    /// Ends it.
    ///
    /// # Errors
    /// `Nic(Busy)` while a queue pair was made with it; `Nic(Unknown)` if it is ended.
    pub fn destroy(&self) -> Result<(), CreateError> {
        if self.adapter.is_child() {
            return Ok(());
        }
        self.receive.engine().control(|control| control.nic.destroy_srq(self.number))?;
        Ok(self.adapter.table().release_pd(self.pd)?)
    }
}

/// A receive queue that is being filled.
pub struct Receives<'a>(pub(super) &'a mut ReceiveSide);

impl Receives<'_> {
    /// Adds one work request.
    ///
    /// # Errors
    /// The queue's reason to refuse it; those before it stay.
    #[inline]
    pub fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<(), remora_nic::PostError> {
        self.0.push(request)
    }
}

/// Slots of a receive queue. It holds one work request at least.
pub(super) fn slots(caps: ReceiveCaps) -> Result<u32, CreateError> {
    let most = ReceiveCaps::MOST;
    let slots = caps.slots().filter(|_| caps.max_wr > 0);
    slots.ok_or_else(|| {
        if caps.max_sge > most.max_sge {
            return CreateError::TooMany("max_sge", caps.max_sge.into(), most.max_sge.into());
        }
        CreateError::TooMany("max_wr", caps.max_wr.into(), most.max_wr.into())
    })
}
