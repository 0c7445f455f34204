//! Shared receive queues that any thread posts to.

use remora_memory::Pd;
use remora_nic::{Command, ReceiveCaps, ReceiveQueue, SrqFacts, SrqInit, XrcSrq};
use remora_wire::Qpn;
use std::sync::Arc;

use super::inside::Guarded;
use super::{ChannelAdapter, Cq};
use crate::{CreateError, PostError};

/// A shared receive queue (`ibv_srq`).
#[derive(Debug)]
pub struct Srq {
    adapter: Arc<ChannelAdapter>,
    number: Qpn,
    pd: Pd,
    max_sge: u32,
    receive: Guarded<ReceiveQueue>,
}

impl Srq {
    /// Creates a shared receive queue of this domain. For an XRC queue, `xrc` holds the number of its XRC
    /// domain and the completion queue of its messages.
    ///
    /// # Errors
    /// `TooMany`, `Nic(Full)`, `Memory`; `Forked` in a forked child.
    pub fn create(
        adapter: &Arc<ChannelAdapter>,
        pd: Pd,
        caps: ReceiveCaps,
        xrc: Option<(u32, &Cq)>,
    ) -> Result<Arc<Srq>, CreateError> {
        adapter.refuse_child()?;
        let (ring, part) = adapter.handle().queue(slots(caps)?)?;
        let max_sge = caps.max_sge;
        let xrc = xrc.map(|(domain, cq)| XrcSrq { domain, cq: cq.number() });
        adapter.retain_domain(pd)?;
        let made = adapter.handle().ask(Command::CreateSrq(SrqInit { pd, ring: part, max_sge, xrc }));
        let number = made.inspect_err(|_| adapter.release_domain(pd))?;
        let receive = ReceiveQueue::new(ring, max_sge);
        let receive = Guarded::new(adapter.engine(), receive);
        Ok(Arc::new(Srq { adapter: Arc::clone(adapter), number, pd, max_sge, receive }))
    }

    /// The queue's number, by which XRC initiators and asynchronous events name it.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// Posts receive work requests: `fill` pushes them one by one to the queue.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Reentered`.
    pub fn post_recv<R>(&self, fill: impl FnOnce(&mut ReceiveQueue) -> R) -> Result<R, PostError> {
        if self.adapter.is_child() {
            return Err(PostError::Forked);
        }
        Ok(self.receive.engine().inside(|inside| {
            let queue = self.receive.get(inside);
            let filled = fill(queue);
            queue.publish();
            filled
        })?)
    }

    /// Requests one event for the time when fewer than `limit` work requests are left; 0 requests none.
    ///
    /// # Errors
    /// `Nic(TooSmall)` if the queue holds fewer than `limit`; `Forked` in a forked child.
    pub fn arm(&self, limit: u32) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        self.adapter.handle().ask::<()>(Command::ArmSrq { srq: self.number, limit })
    }

    /// The queue's size and limit.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn query(&self) -> Result<SrqFacts, CreateError> {
        self.adapter.refuse_child()?;
        self.adapter.handle().ask::<SrqFacts>(Command::QuerySrq(self.number))
    }

    /// The greatest number of list elements of a work request.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Gives the queue a capacity of at least `max_wr` work requests. Waiting requests stay.
    ///
    /// # Errors
    /// `TooMany`; `Nic(TooSmall)` if the waiting requests, or the limit, do not fit; `Forked` in a forked
    /// child.
    pub fn resize(&self, max_wr: u32) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        let slots = slots(ReceiveCaps { max_wr, max_sge: self.max_sge })?;
        let (ring, part) = self.adapter.handle().queue(slots)?;
        let resized = self.receive.engine().inside(|inside| {
            inside.ask::<()>(Command::ResizeSrq { srq: self.number, ring: part })?;
            self.receive.get(inside).moved(ring);
            Ok(())
        });
        resized.map_err(|_| CreateError::Reentered)?
    }

    /// Destroys the queue.
    ///
    /// # Errors
    /// `Nic(Busy)` while a queue pair uses it; `Nic(Unknown)` if it was destroyed before.
    pub fn destroy(&self) -> Result<(), CreateError> {
        if self.adapter.is_child() {
            return Ok(());
        }
        self.adapter.handle().ask::<()>(Command::DestroySrq(self.number))?;
        self.adapter.release_domain(self.pd);
        Ok(())
    }
}

/// The number of slots of a receive queue with these sizes, which holds at least one work request.
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
