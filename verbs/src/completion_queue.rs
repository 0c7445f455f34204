//! Completion queues.

use host::{CqHook, Engine};
use memory::Bytes;
use nic::{CompletionKind, MAX_RING_SLOTS, Notify, Poller, Ring, Status, WorkCompletion};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{CompletionChannel, Context, CreateError, PollError};

/// Fills an array that `poll` writes into.
pub const EMPTY: WorkCompletion = WorkCompletion {
    id: 0,
    status: Status::General,
    kind: CompletionKind::Nop,
    byte_len: 0,
    imm: None,
    invalidated: None,
    qp_num: 0,
    src_qp: 0,
    grh: false,
    vendor_err: 0,
};

/// Empty polls between two looks at the clock while waiting.
const LOOK_EVERY: u32 = 64;
/// Empty polls after which a wait gives its core away now and then: what it waits for may need it.
const YIELD_AFTER: u32 = 4096;

/// What a completion queue shall be like.
#[derive(Copy, Clone, Debug, Default)]
pub struct CqOptions<'a> {
    /// Completions that it holds at least: as many as signaled work may be outstanding. 0 is 256.
    pub depth: u32,
    /// The engine that it shall be on, counted from 0; `None`: whose turn it is.
    pub engine: Option<usize>,
    /// The channel that tells of its completions.
    pub channel: Option<&'a CompletionChannel>,
}

/// A completion queue: work that has ended, in order for each queue pair.
#[derive(Debug)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
    poller: Poller,
    depth: u32,
}

/// The part that queue pairs keep alive.
#[derive(Debug)]
pub(crate) struct Shared {
    pub context: Context,
    pub engine: Arc<Engine>,
    pub number: u32,
    hook: Arc<CqHook>,
    tag: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.context.fork().is_child() {
            let ended = self.engine.control(|control| {
                control.hook(self.number, None);
                control.nic.destroy_cq(self.number)
            });
            debug_assert!(ended.is_ok(), "queue pairs hold their completion queues");
        }
    }
}

impl CompletionQueue {
    pub(crate) fn new(context: &Context, options: &CqOptions<'_>) -> Result<CompletionQueue, CreateError> {
        context.refuse_child()?;
        let depth = if options.depth == 0 { 256 } else { options.depth };
        if depth > MAX_RING_SLOTS {
            return Err(CreateError::TooMany("depth", depth.into(), MAX_RING_SLOTS.into()));
        }
        let engines = context.adapter().engines();
        let engine = match options.engine {
            None => context.adapter().next_engine(),
            Some(number) => engines.get(number).ok_or(CreateError::TooMany(
                "engine number",
                number as u64 + 1,
                engines.len() as u64,
            ))?,
        };
        let ring =
            Ring::new(Bytes::heap(Ring::size(depth))?).ok_or(CreateError::Nic(nic::NicError::TooSmall))?;
        let tag = context.tag();
        let channel = options.channel.map(|channel| (Arc::clone(channel.signal()), tag));
        let hook = Arc::new(CqHook { overrun: AtomicBool::new(false), channel });
        let number = engine.control(|control| {
            let number = control.nic.create_cq(ring.clone())?;
            control.hook(number, Some(Arc::clone(&hook)));
            Ok::<u32, CreateError>(number)
        })?;
        let depth = ring.slots() as u32;
        let shared = Shared { context: context.clone(), engine: Arc::clone(engine), number, hook, tag };
        Ok(CompletionQueue { shared: Arc::new(shared), poller: Poller::new(ring), depth })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Completions that it holds.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The engine that it is on.
    pub fn engine(&self) -> usize {
        self.shared.engine.number()
    }

    /// By what a [`CompletionChannel`] names it.
    pub fn tag(&self) -> u64 {
        self.shared.tag
    }

    /// Takes completions that are there, up to `out.len()`, and says how many. If there are none, drives the NIC one
    /// step and looks again.
    ///
    /// # Errors
    /// `Overrun`, once nothing is left; `Forked`; `Failed`.
    #[inline]
    pub fn poll(&mut self, out: &mut [WorkCompletion]) -> Result<usize, PollError> {
        if self.shared.context.fork().is_child() {
            return Err(PollError::Forked);
        }
        let taken = self.take(out);
        if taken > 0 {
            return Ok(taken);
        }
        self.shared.engine.poll();
        let taken = self.take(out);
        if taken == 0 {
            self.look_for_failure()?;
        }
        Ok(taken)
    }

    /// Nothing is there: will anything ever be?
    #[inline]
    fn look_for_failure(&self) -> Result<(), PollError> {
        if self.shared.hook.overrun.load(Ordering::Relaxed) {
            return Err(PollError::Overrun);
        }
        if self.shared.context.adapter().has_failed() { Err(PollError::Failed) } else { Ok(()) }
    }

    #[inline]
    fn take(&mut self, out: &mut [WorkCompletion]) -> usize {
        let mut taken = 0;
        for place in out.iter_mut() {
            let Some(cqe) = self.poller.poll() else { break };
            *place = cqe.completion;
            taken += 1;
        }
        if taken > 0 {
            self.poller.free();
        }
        taken
    }

    /// Polls, without sleeping, until at least one completion is there. If that takes long, other threads get the core
    /// between two polls.
    ///
    /// # Errors
    /// `Timeout`, and those of [`poll`](CompletionQueue::poll).
    pub fn wait(&mut self, out: &mut [WorkCompletion], timeout: Duration) -> Result<usize, PollError> {
        let (mut turn, mut deadline) = (0u32, None);
        loop {
            let taken = self.poll(out)?;
            if taken > 0 || out.is_empty() {
                return Ok(taken);
            }
            turn = turn.saturating_add(1);
            if turn.is_multiple_of(LOOK_EVERY) || turn == u32::MAX {
                if turn > YIELD_AFTER {
                    std::thread::yield_now();
                }
                let now = Instant::now();
                if now > *deadline.get_or_insert(now + timeout) {
                    return Err(PollError::Timeout);
                }
            }
        }
    }

    /// Asks for one wake-up through its channel. Poll once more after this before sleeping: what came before it does not
    /// wake.
    ///
    /// # Errors
    /// `Forked`.
    pub fn arm(&self, notify: Notify) -> Result<(), PollError> {
        if self.shared.context.fork().is_child() {
            return Err(PollError::Forked);
        }
        let armed = self.shared.engine.control(|control| control.nic.notify_cq(self.shared.number, notify));
        debug_assert!(armed.is_ok(), "the queue lives as long as this");
        Ok(())
    }

    /// Makes it hold at least `depth` completions; those that wait stay.
    ///
    /// # Errors
    /// `Forked`, `TooMany`; `Nic(TooSmall)` if what waits does not fit.
    pub fn resize(&mut self, depth: u32) -> Result<(), CreateError> {
        self.shared.context.refuse_child()?;
        if !(1..=MAX_RING_SLOTS).contains(&depth) {
            return Err(CreateError::TooMany("depth", depth.into(), MAX_RING_SLOTS.into()));
        }
        let ring =
            Ring::new(Bytes::heap(Ring::size(depth))?).ok_or(CreateError::Nic(nic::NicError::TooSmall))?;
        self.shared.engine.control(|control| control.nic.resize_cq(self.shared.number, ring.clone()))?;
        self.depth = ring.slots() as u32;
        self.poller.moved(ring);
        Ok(())
    }
}
