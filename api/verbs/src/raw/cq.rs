//! Completion queues that any thread polls.

use remora_host::CqHook;
use remora_nic::cqe::Cqe;
use remora_nic::{Command, CompletionPoller, CqFlags, MAX_RING_SLOTS, Notify, ObjectName};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ChannelAdapter;
use super::inside::{Guarded, Inside};
use crate::{CreateError, PollError};

/// A completion queue (`ibv_cq`).
#[derive(Debug)]
pub struct Cq {
    adapter: Arc<ChannelAdapter>,
    number: u32,
    poller: Guarded<CompletionPoller>,
    depth: AtomicU32,
    /// The number of polls that found nothing.
    empty_polls: AtomicU32,
}

/// Number of polls without a completion after which a caller gives its core to others. A daemon's engine may
/// wait for the core.
const SPINS: u32 = 16;

impl Cq {
    /// Creates a queue for at least `depth` completions. While it is armed, `hook` reports its completions.
    /// With `timestamps`, each completion holds the time at which the NIC wrote it.
    ///
    /// # Errors
    /// `TooMany`, `Nic(Full)`, `Memory`; `Forked` in a forked child.
    pub fn create(
        adapter: &Arc<ChannelAdapter>,
        depth: u32,
        hook: Option<CqHook>,
        timestamps: bool,
    ) -> Result<Arc<Cq>, CreateError> {
        adapter.refuse_child()?;
        check(depth)?;
        let engine = adapter.handle();
        let (ring, part) = engine.queue(depth)?;
        let flags = CqFlags { timestamps, ..CqFlags::default() };
        let number = engine.ask(Command::CreateCq { ring: part, flags })?;
        if let Some(hook) = hook {
            adapter.hook(number, Some(hook))?;
        }
        adapter.keep(ObjectName::Cq(number))?;
        let depth = AtomicU32::new(ring.slots() as u32);
        let poller = Guarded::new(adapter.engine(), CompletionPoller::new(ring));
        Ok(Arc::new(Cq {
            adapter: Arc::clone(adapter),
            number,
            poller,
            depth,
            empty_polls: AtomicU32::new(0),
        }))
    }

    /// The queue's number in the NIC, which asynchronous events contain.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The greatest number of completions that the queue holds.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Passes up to `count` completions to `take` and returns their number. If the queue is empty, drives the
    /// NIC one step and polls a second time.
    ///
    /// # Errors
    /// `Overrun` once an overrun queue is empty; `Failed`; `Forked` in a forked child; `Reentered`.
    #[inline]
    pub fn poll(&self, count: usize, mut take: impl FnMut(&Cqe)) -> Result<usize, PollError> {
        if self.adapter.is_child() {
            return Err(PollError::Forked);
        }
        let polled = self.poller.engine().inside(|inside| {
            let mut taken = self.drain(inside, count, &mut take);
            if taken == 0 && count > 0 {
                inside.pass();
                taken = self.drain(inside, count, &mut take);
            }
            if taken > 0 { Ok(taken) } else { self.look_for_failure(inside) }
        })?;
        if polled == Ok(0) && self.adapter.is_lent() {
            self.rest();
        }
        polled
    }

    /// Gives the core to other threads after every few polls that found nothing.
    fn rest(&self) {
        if self.empty_polls.fetch_add(1, Ordering::Relaxed) % SPINS == SPINS - 1 {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn drain(&self, inside: &mut Inside<'_, '_>, count: usize, take: &mut impl FnMut(&Cqe)) -> usize {
        let poller = self.poller.get(inside);
        let mut taken = 0;
        while taken < count {
            let Some(cqe) = poller.poll() else { break };
            take(&cqe);
            taken += 1;
        }
        if taken > 0 {
            poller.free();
        }
        taken
    }

    fn look_for_failure(&self, inside: &mut Inside<'_, '_>) -> Result<usize, PollError> {
        if self.poller.get(inside).is_overrun() {
            return Err(PollError::Overrun);
        }
        if self.adapter.has_failed() { Err(PollError::Failed) } else { Ok(0) }
    }

    /// Makes `hook` report the queue's completions from now on.
    ///
    /// # Errors
    /// `Daemon` if the NIC's daemon refuses.
    pub fn report(&self, hook: CqHook) -> Result<(), CreateError> {
        self.adapter.hook(self.number, Some(hook))
    }

    /// Requests one report by the queue's hook. Poll once more after this call and before sleeping.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Reentered`.
    pub fn arm(&self, notify: Notify) -> Result<(), PollError> {
        if self.adapter.is_child() {
            return Err(PollError::Forked);
        }
        let armed = self
            .poller
            .engine()
            .inside(|inside| inside.ask::<()>(Command::NotifyCq { cq: self.number, notify }))?;
        debug_assert!(armed.is_ok(), "only `destroy` removes the queue from the NIC");
        Ok(())
    }

    /// Gives the queue a capacity of at least `depth` completions. Waiting completions stay.
    ///
    /// # Errors
    /// `TooMany`; `Nic(TooSmall)` if the waiting completions do not fit; `Forked` in a forked child.
    pub fn resize(&self, depth: u32) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        check(depth)?;
        let (ring, part) = self.adapter.handle().queue(depth)?;
        let resized = self.poller.engine().inside(|inside| {
            inside.ask::<()>(Command::ResizeCq { cq: self.number, ring: part })?;
            self.depth.store(ring.slots() as u32, Ordering::Relaxed);
            self.poller.get(inside).moved(ring);
            Ok(())
        });
        resized.map_err(|_| CreateError::Reentered)?
    }

    /// Destroys the queue.
    ///
    /// # Errors
    /// `Nic(Busy)` while a queue pair or shared receive queue completes to it; `Nic(Unknown)` if it was
    /// destroyed before.
    pub fn destroy(&self) -> Result<(), CreateError> {
        if self.adapter.is_child() {
            return Ok(());
        }
        self.adapter.handle().ask::<()>(Command::DestroyCq { cq: self.number })?;
        self.adapter.hook(self.number, None)
    }
}

fn check(depth: u32) -> Result<(), CreateError> {
    if (1..=MAX_RING_SLOTS).contains(&depth) {
        return Ok(());
    }
    Err(CreateError::TooMany("depth", depth.into(), MAX_RING_SLOTS.into()))
}
