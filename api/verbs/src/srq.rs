//! Shared receive queues: several queue pairs take their receive work requests from one queue.

use remora_nic::{Command, FromReply, ReceiveQueue, ReceiveRequest, SrqFacts, SrqInit, XrcSrq, wqe};
use remora_wire::Qpn;
use std::sync::Arc;

use crate::engine_handle::EngineHandle;
use crate::{CompletionQueue, CreateError, PostError, ProtectionDomain, XrcDomain};

/// Attributes of a new shared receive queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SrqOptions {
    /// The least number of receive work requests that the queue holds.
    pub max_wr: u32,
    /// List elements of a receive work request, 1 to 30.
    pub max_sge: u32,
    /// The engine that serves the queue. Its queue pairs must be on that engine. An XRC queue is on the
    /// engine of its XRC domain, and ignores this field.
    pub engine: usize,
}

impl Default for SrqOptions {
    fn default() -> Self {
        SrqOptions { max_wr: 128, max_sge: 1, engine: 0 }
    }
}

/// A shared receive queue. The queue pairs that use it keep it alive.
///
/// ```
/// use remora_verbs::{
///     Access, AsyncEvent, Device, EMPTY, QpOptions, QueuePair, ReceiveRequest, SrqOptions, work,
/// };
///
/// let context = Device::shm().open()?;
/// let domain = context.alloc_pd()?;
/// let mut cq = context.create_cq(64)?;
/// let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
/// let mut srq = domain.create_srq(&SrqOptions { max_wr: 16, ..SrqOptions::default() })?;
/// for id in 0..4 {
///     srq.post_recv(&ReceiveRequest { id, sges: &[memory.sge(id as usize * 64, 64)] })?;
/// }
/// srq.arm(4)?; // an event, when fewer than 4 are left
///
/// let one = domain.create_qp_on(&srq, &cq, &cq, &QpOptions::default())?;
/// let two = domain.create_qp(&cq, &cq, &QpOptions::default())?;
/// let (_one, mut two) = QueuePair::connect_pair(one, two)?;
/// two.post_send(&work::send_inline(9, b"for any of them"))?;
/// let (mut done, mut came) = ([EMPTY; 2], 0);
/// while came < 2 {
///     came += cq.wait(&mut done[came..], std::time::Duration::from_secs(1))?;
/// }
/// assert_eq!(memory.get::<[u8; 15]>(0)?, *b"for any of them");
/// let events: Vec<_> = std::iter::from_fn(|| context.poll_event()).map(|event| event.event).collect();
/// let mine = srq.number();
/// assert!(events.iter().any(|event| matches!(event, AsyncEvent::SrqLimit(qpn) if qpn.get() == mine)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Srq {
    shared: Arc<Shared>,
    receive: ReceiveQueue,
    max_sge: u32,
}

/// The part of a shared receive queue that its queue pairs keep alive.
#[derive(Debug)]
pub(crate) struct Shared {
    pub number: Qpn,
    pub engine: EngineHandle,
    pub domain: ProtectionDomain,
    /// For an XRC queue, its XRC domain and its completion queue, which are kept alive.
    _beside: Option<(XrcDomain, Arc<crate::completion_queue::Shared>)>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.domain.context().fork().is_child() {
            self.engine.end(Command::DestroySrq(self.number));
        }
    }
}

fn slots(max_wr: u32, max_sge: u32) -> Result<u32, CreateError> {
    let stride = remora_nic::stride(max_sge) as u32;
    let most = remora_nic::MAX_RING_SLOTS / stride;
    if !(1..=wqe::MAX_SGE as u32).contains(&max_sge) {
        return Err(CreateError::TooMany("max_sge", max_sge.into(), wqe::MAX_SGE as u64));
    }
    if !(1..=most).contains(&max_wr) {
        return Err(CreateError::TooMany("max_wr", max_wr.into(), most.into()));
    }
    Ok(max_wr * stride)
}

impl Srq {
    pub(crate) fn new(domain: &ProtectionDomain, options: &SrqOptions) -> Result<Srq, CreateError> {
        Srq::make(domain, &domain.context().engine_handle(options.engine)?, options, None)
    }

    pub(crate) fn of_xrc(
        domain: &ProtectionDomain,
        xrc: &XrcDomain,
        cq: &CompletionQueue,
        options: &SrqOptions,
    ) -> Result<Srq, CreateError> {
        let cq = cq.shared();
        if !cq.context.is(domain.context()) {
            return Err(CreateError::OtherContext);
        }
        if !cq.engine.is(xrc.engine()) {
            return Err(CreateError::DifferentEngines);
        }
        Srq::make(domain, xrc.engine(), options, Some((xrc.clone(), Arc::clone(cq))))
    }

    fn make(
        domain: &ProtectionDomain,
        engine: &EngineHandle,
        options: &SrqOptions,
        beside: Option<(XrcDomain, Arc<crate::completion_queue::Shared>)>,
    ) -> Result<Srq, CreateError> {
        domain.context().refuse_child()?;
        let max_sge = options.max_sge;
        let (ring, part) = engine.queue(slots(options.max_wr, max_sge)?)?;
        let xrc = beside.as_ref().map(|(xrc, cq)| XrcSrq { domain: xrc.number(), cq: cq.number });
        let init = SrqInit { pd: domain.pd(), ring: part, max_sge, xrc };
        let number = engine.ask(Command::CreateSrq(init))?;
        let shared = Shared { number, engine: engine.clone(), domain: domain.clone(), _beside: beside };
        let receive = ReceiveQueue::new(ring, max_sge);
        Ok(Srq { shared: Arc::new(shared), receive, max_sge })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The number by which XRC initiators name the queue.
    pub fn number(&self) -> u32 {
        self.shared.number.get()
    }

    /// The engine that serves the queue, counted from 0.
    pub fn engine(&self) -> usize {
        self.shared.engine.number()
    }

    /// Posts a receive work request. The next message to any of the queue pairs uses it.
    ///
    /// # Errors
    /// `Queue(QueueFull)` (ENOMEM), `Queue(TooManySges)`; `Forked` in a forked child.
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if self.shared.domain.context().fork().is_child() {
            return Err(PostError::Forked);
        }
        Ok(self.receive.post(request)?)
    }

    /// Requests one event ([`AsyncEvent::SrqLimit`](crate::AsyncEvent)) for the time when fewer than `limit`
    /// work requests are left, which may be now; 0 requests none.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Nic(TooSmall)` (EINVAL) if the queue holds fewer than `limit`.
    pub fn arm(&self, limit: u32) -> Result<(), CreateError> {
        self.ask(Command::ArmSrq { srq: self.shared.number, limit })
    }

    /// The queue's attributes and limit.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn facts(&self) -> Result<SrqFacts, CreateError> {
        self.ask(Command::QuerySrq(self.shared.number))
    }

    /// Gives the queue a capacity of at least `max_wr` work requests. Waiting requests stay.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany`; `Nic(TooSmall)` if the waiting requests, or the limit, do not
    /// fit.
    pub fn resize(&mut self, max_wr: u32) -> Result<(), CreateError> {
        self.shared.domain.context().refuse_child()?;
        let (ring, part) = self.shared.engine.queue(slots(max_wr, self.max_sge)?)?;
        self.ask::<()>(Command::ResizeSrq { srq: self.shared.number, ring: part })?;
        self.receive.moved(ring);
        Ok(())
    }

    fn ask<T: FromReply>(&self, command: Command) -> Result<T, CreateError> {
        self.shared.domain.context().refuse_child()?;
        self.shared.engine.ask(command)
    }
}
