//! Completion queues: creating, polling and arming (`ibv_create_cq`, `ibv_poll_cq`, `ibv_req_notify_cq`).

use remora_host::CqHook;
use remora_nic::cqe::Cqe;
use remora_nic::{
    Command, CompletionKind, CompletionPoller, CqFlags, MAX_RING_SLOTS, Notify, ObjectName, Ring, Status,
    WorkCompletion,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine_handle::EngineHandle;
use crate::nicd::message::Request;
use crate::{CompletionChannel, Context, CreateError, PollError};

/// An empty completion, to initialise the array that [`CompletionQueue::poll`] writes to.
pub const EMPTY: WorkCompletion = WorkCompletion {
    id: 0,
    status: Status::General,
    kind: CompletionKind::Nop,
    byte_len: 0,
    imm: None,
    invalidated: None,
    qp_num: 0,
    src_qp: 0,
    grh: None,
    outcome: remora_nic::prism::Verdict::Done,
};

/// Empty polls of a waiting caller between two readings of the clock.
const LOOK_EVERY: u32 = 64;
/// Empty polls after which a waiting caller yields its core now and then, in case the peer needs the core.
const YIELD_AFTER: u32 = 4096;

/// Attributes of a new completion queue.
#[derive(Copy, Clone, Debug, Default)]
pub struct CqOptions<'a> {
    /// The least capacity in completions: as many as signaled work requests may be outstanding. 0 stands for
    /// 256.
    pub depth: u32,
    /// The engine that serves the queue, counted from 0. With `None`, the engines take turns.
    pub engine: Option<usize>,
    /// The channel that reports the queue's completions, if any.
    pub channel: Option<&'a CompletionChannel>,
    /// True if the queue is only counted by WAITs. Such a queue need not be polled: new completions overwrite
    /// old ones.
    pub counted: bool,
    /// True if each completion holds the time at which the NIC wrote it
    /// ([`poll_stamped`](CompletionQueue::poll_stamped)).
    pub timestamps: bool,
}

/// A completion with the time at which the NIC wrote it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StampedCompletion {
    /// The completion of the work request.
    pub completion: WorkCompletion,
    /// The time in nanoseconds of the NIC's clock, modulo 2^[`TIMESTAMP_BITS`](crate::TIMESTAMP_BITS); 0 if
    /// the queue has no timestamps.
    pub timestamp: u64,
}

impl From<Cqe> for StampedCompletion {
    #[inline]
    fn from(entry: Cqe) -> StampedCompletion {
        StampedCompletion { completion: entry.completion, timestamp: entry.timestamp }
    }
}

/// The fact that a later program of a daemon's tenant needs to take over a completion queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CqNote {
    /// The tag that the queue's channel reports.
    pub tag: u64,
}

/// A completion queue. It holds the completions of each queue pair in the order of the work requests.
#[derive(Debug)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
    poller: CompletionPoller,
    depth: u32,
}

/// The part of a completion queue that its queue pairs keep alive.
#[derive(Debug)]
pub(crate) struct Shared {
    pub context: Context,
    pub engine: EngineHandle,
    pub number: u32,
    tag: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.context.fork().is_child() {
            return;
        }
        self.engine.end_cq(self.number);
    }
}

impl CompletionQueue {
    pub(crate) fn new(context: &Context, options: &CqOptions<'_>) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::tagged(context, options, context.tag())
    }

    /// Like [`create_cq_with`](Context::create_cq_with), with `tag` as the queue's tag in its channel.
    pub(crate) fn tagged(
        context: &Context,
        options: &CqOptions<'_>,
        tag: u64,
    ) -> Result<CompletionQueue, CreateError> {
        context.refuse_child()?;
        let depth = if options.depth == 0 { 256 } else { options.depth };
        if depth > MAX_RING_SLOTS {
            return Err(CreateError::TooMany("depth", depth.into(), MAX_RING_SLOTS.into()));
        }
        let engine = context.engine_for(options.engine)?;
        let (ring, part) = engine.queue(depth)?;
        let flags = CqFlags { ignores_overrun: options.counted, timestamps: options.timestamps };
        let number = engine.ask(Command::CreateCq { ring: part, flags })?;
        let shared = Shared { context: context.clone(), engine, number, tag };
        let queue = CompletionQueue::over(shared, CompletionPoller::new(ring));
        if let Some(channel) = options.channel {
            queue.set_channel(channel)?;
        }
        if let Some(daemon) = queue.shared.engine.daemon().filter(|daemon| daemon.keeps()) {
            daemon.note(ObjectName::Cq(number), &CqNote { tag }, None)?;
        }
        Ok(queue)
    }

    /// Takes over a queue that an earlier program of the tenant has left with the daemon.
    pub(crate) fn take_over(
        context: &Context,
        engine: EngineHandle,
        number: u32,
        note: &CqNote,
        ring: Ring,
    ) -> CompletionQueue {
        let shared = Shared { context: context.clone(), engine, number, tag: note.tag };
        CompletionQueue::over(shared, CompletionPoller::resume(ring))
    }

    fn over(shared: Shared, poller: CompletionPoller) -> CompletionQueue {
        let depth = poller.ring().slots() as u32;
        CompletionQueue { shared: Arc::new(shared), poller, depth }
    }

    /// The queue's memory.
    #[cfg(test)]
    pub(crate) fn ring(&self) -> &Ring {
        self.poller.ring()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The greatest number of completions that the queue holds.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The engine that serves the queue, counted from 0.
    pub fn engine(&self) -> usize {
        self.shared.engine.number()
    }

    /// The number by which a WAIT names the queue ([`work::wait`](crate::work::wait)).
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// The number of completions that were written to the queue since it was created: the count that a WAIT
    /// compares. Always 0 in a forked child.
    pub fn count(&self) -> u64 {
        if self.shared.context.fork().is_child() {
            return 0;
        }
        let command = Command::CountCompletions { cq: self.shared.number };
        self.shared.engine.ask(command).unwrap_or(0)
    }

    /// The tag by which a [`CompletionChannel`] reports the queue.
    pub fn tag(&self) -> u64 {
        self.shared.tag
    }

    /// Takes up to `out.len()` completions and returns their number. If the queue is empty, drives the NIC
    /// one step and polls a second time.
    ///
    /// # Errors
    /// Once the queue is empty: `Overrun` if completions were lost, `Failed` if the NIC has failed. `Forked`
    /// in a forked child; `Reentered` in a signal handler that interrupted a call on this NIC.
    #[inline]
    pub fn poll(&mut self, out: &mut [WorkCompletion]) -> Result<usize, PollError> {
        self.poll_as(out, |entry| entry.completion)
    }

    /// Like [`poll`](CompletionQueue::poll), with the time of each completion.
    ///
    /// # Errors
    /// The errors of [`poll`](CompletionQueue::poll).
    pub fn poll_stamped(&mut self, out: &mut [StampedCompletion]) -> Result<usize, PollError> {
        self.poll_as(out, StampedCompletion::from)
    }

    /// The time of the NIC's clock in nanoseconds, which timestamps count (`ibv_query_rt_values_ex`).
    ///
    /// # Errors
    /// `Forked` in a forked child, `NotByDaemon` for a queue of a daemon.
    pub fn clock(&self) -> Result<u64, CreateError> {
        self.shared.context.refuse_child()?;
        Ok(self.shared.engine.engine()?.now().0)
    }

    #[inline]
    fn poll_as<T>(&mut self, out: &mut [T], convert: impl Fn(Cqe) -> T) -> Result<usize, PollError> {
        if self.shared.context.fork().is_child() {
            return Err(PollError::Forked);
        }
        let taken = self.take(out, &convert);
        if taken > 0 {
            return Ok(taken);
        }
        self.shared.engine.poll()?;
        let taken = self.take(out, &convert);
        if taken == 0
            && let Err(failure) = self.look_for_failure()
        {
            // Completions flushed by the failure came before it and are returned first.
            let flushed = self.take(out, &convert);
            return if flushed > 0 { Ok(flushed) } else { Err(failure) };
        }
        Ok(taken)
    }

    /// Returns the next queue entry with all its fields. If the queue is empty, drives the NIC one step and
    /// polls a second time.
    pub(crate) fn poll_entry(&mut self) -> Result<Option<Cqe>, PollError> {
        if self.shared.context.fork().is_child() {
            return Err(PollError::Forked);
        }
        let mut entry = self.poller.poll();
        if entry.is_none() {
            self.shared.engine.poll()?;
            entry = self.poller.poll();
        }
        if entry.is_none()
            && let Err(failure) = self.look_for_failure()
        {
            entry = self.poller.poll();
            if entry.is_none() {
                return Err(failure);
            }
        }
        if entry.is_some() {
            self.poller.free();
        }
        Ok(entry)
    }

    /// Returns the next queue entry with all its fields, without driving the NIC.
    pub(crate) fn ready_entry(&mut self) -> Option<Cqe> {
        let entry = self.poller.poll()?;
        self.poller.free();
        Some(entry)
    }

    /// Returns an error if this empty queue was overrun or its NIC has failed, so that no completion will
    /// come.
    #[inline]
    fn look_for_failure(&self) -> Result<(), PollError> {
        if self.poller.is_overrun() {
            return Err(PollError::Overrun);
        }
        if self.shared.context.has_failed() { Err(PollError::Failed) } else { Ok(()) }
    }

    #[inline]
    fn take<T>(&mut self, out: &mut [T], convert: impl Fn(Cqe) -> T) -> usize {
        let mut taken = 0;
        for place in out.iter_mut() {
            let Some(cqe) = self.poller.poll() else { break };
            *place = convert(cqe);
            taken += 1;
        }
        if taken > 0 {
            self.poller.free();
        }
        taken
    }

    /// Polls without sleeping until at least one completion is there. After many empty polls it yields the
    /// core to other threads now and then.
    ///
    /// # Errors
    /// `Timeout` if none came in time, and the errors of [`poll`](CompletionQueue::poll).
    pub fn wait(&mut self, out: &mut [WorkCompletion], timeout: Duration) -> Result<usize, PollError> {
        let mut turn = 0u32;
        let mut deadline = None;
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

    /// Requests one report through the queue's channel. Poll once more after this call and before sleeping: a
    /// completion that came earlier is not reported.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Reentered` in a signal handler that interrupted a call on this NIC.
    pub fn arm(&self, notify: Notify) -> Result<(), PollError> {
        if self.shared.context.fork().is_child() {
            return Err(PollError::Forked);
        }
        if self.shared.engine.has_caller() {
            return Err(PollError::Reentered);
        }
        let command = Command::NotifyCq { cq: self.shared.number, notify };
        self.shared.engine.ask(command).map_err(|_| PollError::Failed)
    }

    /// Sets the channel that reports the queue's completions from now on.
    ///
    /// # Errors
    /// `Forked` in a forked child; `OtherContext` if the channel is not the daemon's; `Daemon` if the daemon
    /// refuses.
    pub fn set_channel(&self, channel: &CompletionChannel) -> Result<(), CreateError> {
        let Shared { context, engine, number, tag } = &*self.shared;
        context.refuse_child()?;
        match engine {
            EngineHandle::Own(engine) => {
                engine.hook(*number, Some(CqHook { channel: channel.channel().clone(), tag: *tag }));
                Ok(())
            }
            EngineHandle::Nicd(daemon) => {
                daemon.done(&Request::SetChannel { cq: *number, tag: *tag, channel: channel.number()? })
            }
        }
    }

    /// Gives the queue a capacity of at least `depth` completions. Waiting completions stay.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` if `depth` is out of bounds; `Nic(TooSmall)` if the waiting
    /// completions do not fit.
    pub fn resize(&mut self, depth: u32) -> Result<(), CreateError> {
        self.shared.context.refuse_child()?;
        if !(1..=MAX_RING_SLOTS).contains(&depth) {
            return Err(CreateError::TooMany("depth", depth.into(), MAX_RING_SLOTS.into()));
        }
        let engine = &self.shared.engine;
        // Completions of destroyed queue pairs need no space.
        self.poller.reclaim();
        let (ring, part) = engine.queue(depth)?;
        engine.ask::<()>(Command::ResizeCq { cq: self.shared.number, ring: part })?;
        self.depth = ring.slots() as u32;
        self.poller.moved(ring);
        Ok(())
    }
}
