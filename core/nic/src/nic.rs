//! The NIC: the resources of one engine, and the functions that drive it.
//!
//! `doorbell` takes work, `receive` a frame, `transmit` sends frames, `next_deadline` and `expire` are its
//! timers. The program gets completions and events.
//!
//! Heads up: `config.rs` has its limits, `nic/objects.rs` makes and removes queues, `shared.rs` is what all
//! queue pairs share.

mod address_handles;
mod fatal;
mod multicast;
mod objects;
mod shared_receive_queues;
mod xrc;

use std::collections::VecDeque;

use remora_memory::Mem;
use remora_transport::rc::irn;
use remora_transport::state::State;
use remora_transport::{Counters, Instant};
use remora_wire::frame::{Egress, Ingress};
use remora_wire::{Qpn, packet};

use crate::arrived::strip;
use crate::config::{Config, NicError};
use crate::egress::wants_turn;
use crate::event::AsyncEvent;
use crate::fair_scheduler::{FairScheduler, RMA};
use crate::prism::{Prefetched, prefetch_pointer, waits};
use crate::qp_numbers::QpNumbers;
use crate::queue_pair::QueuePair;
use crate::rma::Rma;
use crate::shared::Shared;
use crate::stopped_queues::StoppedQueues;
use crate::timers::Timers;
use crate::turn::{TurnEnd, TurnUsage};

/// No queue pair.
const NONE: u32 = u32::MAX;

/// One engine of a NIC.
pub struct Nic {
    pub(crate) qps: Vec<Option<Box<QueuePair>>>,
    numbers: QpNumbers,
    index_bits: u32,
    line: VecDeque<u32>,
    /// The queue pair of the last packets, which has not been scheduled since; or `NONE`.
    touched: u32,
    /// How much of its turn the queue pair at the head of the line has used, if the port blocked it.
    interrupted: TurnUsage,
    /// The scheduler for several tenants, or for peers that are full.
    pub(crate) scheduler: FairScheduler,
    /// Queue pairs that wait for transmit queues of the port.
    stopped: StoppedQueues,
    timers: Timers,
    pub(crate) prefetched: Prefetched,
    pub(crate) shared: Shared,
    /// None: the engine does not speak 1RMA.
    pub(crate) rma: Option<Box<Rma>>,
}

impl Nic {
    /// An engine without queues.
    pub fn new(config: Config) -> Nic {
        let numbers = QpNumbers::new(&config);
        let places = numbers.places();
        Nic {
            qps: (0..places).map(|_| None).collect(),
            index_bits: numbers.index_bits(),
            numbers,
            line: VecDeque::with_capacity(places as usize),
            touched: NONE,
            interrupted: TurnUsage::default(),
            scheduler: FairScheduler::new(places as usize),
            stopped: StoppedQueues::default(),
            timers: Timers::new(places as usize),
            prefetched: Prefetched::new(),
            shared: Shared::new(&config, places),
            rma: None,
        }
    }

    /// The send queue's producer index has moved (or, in the error state, either queue's).
    #[inline]
    pub fn doorbell(&mut self, number: Qpn) {
        let Some(index) = self.index(number) else { return };
        let Some(qp) = &mut self.qps[index as usize] else { return };
        qp.send.doorbell();
        match qp.state {
            State::Err => qp.flush(&mut self.shared),
            State::Sqe => qp.flush_send_queue(&mut self.shared),
            _ => {}
        }
        self.attend(index);
    }

    /// Lets a managed send queue be fetched up to `count` slots.
    pub fn enable(&mut self, number: Qpn, count: u64) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        if !qp.send.enable(count) {
            return Err(NicError::Unknown);
        }
        self.attend(index);
        Ok(())
    }

    /// A frame has arrived.
    #[inline]
    pub fn receive(&mut self, now: Instant, mem: Mem<'_>, frame: &Ingress<'_>) {
        let shared = &mut self.shared;
        shared.now = now;
        let Ok(arrived) = strip(frame) else {
            shared.counters.malformed_pkts += 1;
            return;
        };
        let Ok(packet) = packet::View::new(arrived.transport) else {
            return self.receive_other(now, mem, frame, &arrived);
        };
        let waits = waits(&packet, &arrived);
        if !self.prefetched.is_empty() && (!waits || self.prefetched.is_full()) {
            self.catch_up(now, mem);
        }
        let shared = &mut self.shared;
        let index = packet.bth.dest_qp.get() & ((1 << self.index_bits) - 1);
        let Some(qp) = self.qps[index as usize].as_mut().filter(|qp| qp.number == packet.bth.dest_qp) else {
            return self.receive_for_many(mem, &arrived, &packet);
        };
        if !qp.admits(&arrived, &packet, shared) {
            return;
        }
        shared.counters.rcvd_pkts += 1;
        shared.counters.rcvd_bytes += arrived.transport.len() as u64;
        if waits && qp.has_prism() {
            prefetch_pointer(qp, mem, &packet);
            self.prefetched.put(arrived.transport);
            return;
        }
        qp.take(now, mem, &arrived, &packet, shared);
        qp.checked(shared);
        self.touch(index);
    }

    /// Packets of one queue pair come one after the other: it is scheduled once for all of them.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) {
        if self.touched != index {
            self.settle();
            self.touched = index;
        }
    }

    /// Schedules the queue pair that the last packets were for.
    #[inline]
    fn settle(&mut self) {
        let index = std::mem::replace(&mut self.touched, NONE);
        if index != NONE {
            self.attend(index);
        }
    }

    /// Frames leave, fairly among queue pairs, `budget` of them or a few more. Returns how many.
    #[inline]
    pub fn transmit(&mut self, now: Instant, mem: Mem<'_>, out: &mut impl Egress, budget: usize) -> usize {
        self.shared.now = now;
        if !self.prefetched.is_empty() {
            self.catch_up(now, mem);
        }
        self.settle();
        let mut turns = if self.shared.kernels.have_work() { self.run_kernels(mem) } else { 0 };
        if self.scheduler.is_on() {
            return self.transmit_scheduled(now, mem, out, budget) + turns;
        }
        if self.rma.is_some() {
            turns += self.transmit_rma(now, mem, out);
        }
        let mut packets = 0;
        while packets < budget {
            if self.shared.control.is_due() {
                self.pass_on();
            }
            let Some(index) = self.next_in_line(out) else { break };
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            let mut used = std::mem::take(&mut self.interrupted);
            let before = used.packets;
            let turn = qp.transmit(now, mem, out, &mut self.shared, &mut used);
            packets += used.packets - before;
            self.timers.schedule(index, qp.deadline());
            qp.checked(&self.shared);
            self.timers.checked(index, || qp.deadline());
            match turn {
                TurnEnd::Done | TurnEnd::Stopped => {
                    qp.queued = false;
                    if out.has_space_per_queue() && qp.awaited != 0 {
                        self.park(index);
                    }
                }
                TurnEnd::More => self.line.push_back(index),
                TurnEnd::Blocked if out.has_space_per_peer() && !self.line.is_empty() => {
                    self.scheduler.blocked(&mut self.line, index, qp.tenant, qp.peer(), &used);
                    packets += self.transmit_scheduled(now, mem, out, budget.saturating_sub(packets));
                    break;
                }
                TurnEnd::Blocked => {
                    // It goes on with the rest of its turn: on a slow port a fresh one each time would never
                    // end.
                    self.line.push_front(index);
                    self.interrupted = used;
                    break;
                }
            }
        }
        if packets > 0 {
            out.flush();
        }
        packets + turns
    }

    /// As [`transmit`](Nic::transmit), where one line is not enough. It is compiled once for all ports: the
    /// busy path of one line must not pay for it.
    #[cold]
    #[inline(never)]
    fn transmit_scheduled(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        mut out: &mut dyn Egress,
        budget: usize,
    ) -> usize {
        let mut packets = 0;
        self.scheduler.begin();
        if self.rma.as_ref().is_some_and(|rma| rma.has_work()) {
            self.scheduler.enter_rma();
        }
        while packets < budget {
            if self.shared.control.is_due() {
                self.pass_on();
            }
            // One at a time: the others stay behind those that the queue has no space for any more.
            if self.stopped.awaited() != 0
                && let Some(index) = self.unpark(out.stopped())
            {
                self.line.push_back(index);
            }
            let qps = &self.qps;
            let who = |index: u32| {
                let qp = qps.get(index as usize)?.as_ref();
                qp.map(|qp| (qp.tenant, qp.peer()))
            };
            let Some(index) = self.scheduler.next(&mut self.line, who) else { break };
            if index == RMA {
                if self.transmit_rma_scheduled(now, mem, out, &mut packets) {
                    continue;
                }
                break;
            }
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            let mut used = std::mem::take(&mut self.interrupted);
            let before = used.packets;
            let turn = qp.transmit(now, mem, &mut out, &mut self.shared, &mut used);
            packets += used.packets - before;
            self.timers.schedule(index, qp.deadline());
            qp.checked(&self.shared);
            self.timers.checked(index, || qp.deadline());
            if turn != TurnEnd::Blocked {
                qp.queued = turn == TurnEnd::More;
                self.scheduler.served(index, qp.tenant, qp.queued, &used);
                if !qp.queued && qp.awaited != 0 {
                    self.park(index);
                }
            } else if out.has_space_per_peer() {
                if !self.scheduler.blocked(&mut self.line, index, qp.tenant, qp.peer(), &used) {
                    break;
                }
            } else {
                self.scheduler.stay(index, qp.tenant);
                self.interrupted = used;
                break;
            }
        }
        self.scheduler.end(&mut self.line);
        if packets > 0 {
            out.flush();
        }
        packets
    }

    /// The queue pair whose turn it is: first those that have waited for a transmit queue that goes on.
    #[inline(always)]
    fn next_in_line(&mut self, out: &impl Egress) -> Option<u32> {
        if out.has_space_per_queue()
            && self.stopped.awaited() != 0
            && self.interrupted.packets == 0
            && let Some(index) = self.unpark(out.stopped())
        {
            return Some(index);
        }
        self.line.pop_front()
    }

    /// A queue pair waits for the transmit queues that it has found stopped.
    #[cold]
    #[inline(never)]
    fn park(&mut self, index: u32) {
        let Some(qp) = &mut self.qps[index as usize] else { return };
        let queues = std::mem::take(&mut qp.awaited) & !qp.parked;
        qp.parked |= queues;
        self.stopped.enter(index, queues);
    }

    /// A queue pair that waits no longer and stands in no other line; the caller gives it a turn.
    #[cold]
    #[inline(never)]
    fn unpark(&mut self, stopped: u64) -> Option<u32> {
        while let Some((index, queue)) = self.stopped.next(stopped) {
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            qp.parked &= !(1 << queue);
            if !std::mem::replace(&mut qp.queued, true) {
                return Some(index);
            }
        }
        None
    }

    /// The transmit queues that queue pairs wait for, bit n for queue n. When one of them goes on, `transmit`
    /// has work, which `has_work` does not say.
    #[inline]
    pub fn awaited_queues(&self) -> u64 {
        self.stopped.awaited()
    }

    /// Gives a queue pair to a tenant. The queue pairs of one tenant share its turns: another tenant gets as
    /// many bytes as all of them together. Tenant 0 is the default; others begin with `FIRST_TENANT`.
    ///
    /// # Errors
    /// `Unknown`: there is no such queue pair.
    pub fn set_tenant(&mut self, number: Qpn, tenant: u32) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        self.scheduler.leave(std::mem::replace(&mut qp.tenant, tenant), index);
        self.scheduler.join(tenant);
        if std::mem::take(&mut qp.queued) {
            self.line.retain(|queued| *queued != index);
        }
        self.attend(index);
        Ok(())
    }

    /// The tenant of a queue pair.
    pub fn tenant(&self, number: Qpn) -> Option<u32> {
        Some(self.qps[self.index(number)? as usize].as_ref()?.tenant)
    }

    /// When `expire` is due.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        let touched = self.qps.get(self.touched as usize).and_then(Option::as_ref);
        let rma = self.rma.as_ref().map_or(Instant::NEVER, |rma| rma.deadline());
        touched.map_or(self.timers.first(), |qp| self.timers.first().min(qp.deadline())).min(rma)
    }

    /// Runs the timers that are due at `now`, of at most `budget` queue pairs. Packets that arrived until
    /// `rx_drained_at` have been [received](Nic::receive). A peer counts as silent only until then: its
    /// answer may have arrived later.
    pub fn expire(&mut self, now: Instant, rx_drained_at: Instant, budget: usize) {
        self.shared.now = now;
        if self.rma.is_some() {
            self.expire_rma(now);
        }
        for _ in 0..budget {
            let Some(index) = self.timers.pop(now) else { break };
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            if qp.deadline() <= now {
                qp.expire(now, rx_drained_at, &mut self.shared);
                qp.checked(&self.shared);
            }
            // What is due still waits for what may have arrived: it is looked at again, but not before others
            // have been.
            self.timers.schedule(index, qp.deadline().max(now.after(1)));
            self.line_up(index);
        }
    }

    /// Puts a queue pair in line if it may have something to send, and its timer in place.
    #[inline]
    pub(crate) fn attend(&mut self, index: u32) {
        let Some(qp) = &mut self.qps[index as usize] else { return };
        if !qp.queued && wants_turn(qp) {
            qp.queued = true;
            self.line.push_back(index);
        }
        self.timers.schedule(index, qp.deadline());
        qp.checked(&self.shared);
        self.timers.checked(index, || qp.deadline());
    }

    /// Puts a queue pair in line if it may have something to send.
    fn line_up(&mut self, index: u32) {
        if let Some(qp) = &mut self.qps[index as usize]
            && !qp.queued
            && wants_turn(qp)
        {
            qp.queued = true;
            self.line.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn index(&self, number: Qpn) -> Option<u32> {
        let index = number.get() & ((1 << self.index_bits) - 1);
        let qp = self.qps[index as usize].as_ref()?;
        (qp.number == number).then_some(index)
    }

    /// May any queue pair have something to send, other than by a transmit queue that it has found stopped?
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.line.is_empty()
            || self.touched != NONE
            || !self.prefetched.is_empty()
            || self.shared.control.is_due()
            || self.shared.kernels.have_work()
            || self.scheduler.is_on() && self.scheduler.waits()
            || self.rma.as_ref().is_some_and(|rma| rma.has_work())
    }

    /// Next completion queue whose program asked to be woken, and is to be now.
    #[inline]
    pub fn wake(&mut self) -> Option<u32> {
        let cq = self.shared.wakes.pop_front()?;
        if let Some(Some(queue)) = self.shared.cqs.get_mut(cq as usize) {
            queue.set_waking(false);
        }
        Some(cq)
    }

    /// Next asynchronous event.
    pub fn event(&mut self) -> Option<AsyncEvent> {
        self.shared.events.pop_front()
    }

    /// Asynchronous events that found their queue full.
    pub fn lost_events(&self) -> u64 {
        self.shared.lost_events
    }

    /// How IRN works on this engine's queue pairs that agree on it.
    pub fn irn(&self) -> &irn::Settings {
        &self.shared.irn
    }

    /// What this engine has counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}
