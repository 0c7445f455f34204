//! One engine of a NIC: its queue pairs and other resources, and the functions with which a driver runs it.
//!
//! `execute` creates, changes and destroys objects (`command.rs`). `doorbell` announces new work requests,
//! `receive` takes one frame, `transmit` sends frames, and `next_deadline` and `expire` run the timers. The
//! program receives completions and asynchronous events.
//!
//! See `config.rs` for the limits of an engine, `nic/objects.rs` for creating and destroying queues, and
//! `shared.rs` for the state that all queue pairs share.

mod fatal;
mod multicast;
mod objects;
mod xrc;

use std::collections::VecDeque;

use remora_memory::Mem;
use remora_transport::rc::irn;
use remora_transport::{Counters, Instant};
use remora_wire::frame::{Egress, Ingress};
use remora_wire::{Qpn, packet};

use crate::arrived::{Arrived, strip};
use crate::config::{Config, NicError};
use crate::doorbell::BellOwner;
use crate::event::AsyncEvent;
use crate::fair_scheduler::{FairScheduler, RMA};
use crate::parts::HandedParts;
use crate::prism::{Prefetched, prefetch_pointer, waits};
use crate::qp_numbers::QpNumbers;
use crate::queue_pair::QueuePair;
use crate::rma::Rma;
use crate::shared::Shared;
use crate::stopped_queues::StoppedQueues;
use crate::timers::Timers;
use crate::turn::{TurnEnd, TurnUsage};

/// The value of `touched` while no queue pair is remembered.
const NONE: u32 = u32::MAX;

/// An engine of a NIC. An engine is driven by one thread at a time.
pub struct Nic {
    pub(crate) qps: Vec<Option<Box<QueuePair>>>,
    numbers: QpNumbers,
    index_bits: u32,
    line: VecDeque<u32>,
    /// Index of the queue pair that received the last packets and has not been scheduled since; `NONE` if
    /// there is none.
    touched: u32,
    /// Part of its turn that the queue pair at the head of the line had used when the port blocked it.
    interrupted: TurnUsage,
    /// The scheduler that replaces `line` while there are several tenants or full peers.
    pub(crate) scheduler: FairScheduler,
    /// Queue pairs that wait for a stopped transmit queue of the port.
    stopped: StoppedQueues,
    timers: Timers,
    pub(crate) prefetched: Prefetched,
    pub(crate) shared: Shared,
    /// Parts that the next commands take.
    pub(crate) parts: HandedParts,
    /// State of 1RMA; `None` on an engine without 1RMA.
    pub(crate) rma: Option<Box<Rma>>,
}

impl Nic {
    /// Creates an engine without queues.
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
            parts: HandedParts::default(),
            rma: None,
        }
    }

    /// Handles a doorbell: the producer index of the queue pair's send queue has moved, or, in the error
    /// state, that of either of its queues. Unknown queue pairs are ignored.
    #[inline]
    pub fn doorbell(&mut self, number: Qpn) {
        let Some(index) = self.index(number) else { return };
        let Some(qp) = &mut self.qps[index as usize] else { return };
        qp.doorbell(&mut self.shared);
        self.attend(index);
    }

    /// Handles the doorbell of a queue pair or portal.
    #[inline]
    pub fn rung(&mut self, owner: BellOwner) {
        match owner {
            BellOwner::QueuePair(qp) => self.doorbell(qp),
            BellOwner::Portal(portal) => self.ring_portal(portal),
        }
    }

    /// Allows the NIC to fetch a managed send queue up to slot `count`, counted since the queue was created.
    pub(crate) fn enable(&mut self, number: Qpn, count: u64) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        if !qp.queues_mut().send.enable(count) {
            return Err(NicError::Unknown);
        }
        self.attend(index);
        Ok(())
    }

    /// Processes one received frame. A malformed frame is counted and dropped.
    #[inline]
    pub fn receive(&mut self, now: Instant, mem: Mem<'_>, frame: &Ingress<'_>) {
        let shared = &mut self.shared;
        shared.set_now(now);
        let Ok(arrived) = strip(frame) else {
            shared.counters_mut().malformed_pkts += 1;
            return;
        };
        let Ok(packet) = packet::View::new(arrived.transport) else {
            return self.receive_other(now, mem, frame, &arrived);
        };
        let index = packet.bth.dest_qp().get() & ((1 << self.index_bits) - 1);
        let qp = self.qps[index as usize].as_mut().filter(|qp| qp.id().number == packet.bth.dest_qp());
        match qp {
            Some(qp) if qp.is_plain() => {
                if qp.receive_plain(now, mem, &arrived, &packet, shared) {
                    qp.checked(shared);
                    self.touch(index);
                }
            }
            Some(_) => self.receive_extended(now, mem, index, &arrived, &packet),
            None => self.receive_for_many(mem, &arrived, &packet),
        }
    }

    /// Processes a packet for a queue pair that is not plain.
    #[inline]
    fn receive_extended(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        index: u32,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
    ) {
        if !self.prefetched.is_empty() && (self.prefetched.is_full() || !waits(packet, arrived)) {
            self.catch_up(now, mem);
        }
        let (Some(qp), shared) = (&mut self.qps[index as usize], &mut self.shared) else { return };
        if !qp.admits(arrived, packet, shared) {
            return;
        }
        shared.received(arrived.transport.len());
        if qp.has_prism() && waits(packet, arrived) {
            prefetch_pointer(qp, mem, packet);
            self.prefetched.put(arrived.transport);
            return;
        }
        qp.take(now, mem, arrived, packet, shared);
        qp.checked(shared);
        self.touch(index);
    }

    /// Remembers the queue pair of a received packet. Successive packets of one queue pair then schedule it
    /// only once.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) {
        if self.touched != index {
            self.settle();
            self.touched = index;
        }
    }

    /// Schedules the remembered queue pair, if any.
    #[inline]
    fn settle(&mut self) {
        let index = std::mem::replace(&mut self.touched, NONE);
        if index != NONE {
            self.attend(index);
        }
    }

    /// Sends about `budget` frames, a few more at most, and shares them fairly among queue pairs. Returns the
    /// number of frames sent plus the number of turns that StRoM kernels and 1RMA took.
    #[inline]
    pub fn transmit(&mut self, now: Instant, mem: Mem<'_>, out: &mut impl Egress, budget: usize) -> usize {
        self.shared.set_now(now);
        if !self.prefetched.is_empty() {
            self.catch_up(now, mem);
        }
        self.settle();
        let mut turns = if self.shared.kernels().have_work() { self.run_kernels(mem) } else { 0 };
        if self.scheduler.is_on() {
            return self.transmit_scheduled(now, mem, out, budget) + turns;
        }
        if self.rma.is_some() {
            turns += self.transmit_rma(now, mem, out);
        }
        let mut packets = 0;
        while packets < budget {
            if self.shared.control().is_due() {
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
                    qp.set_queued(false);
                    if out.has_space_per_queue() && qp.awaits_queue() {
                        self.park(index);
                    }
                }
                TurnEnd::More => self.line.push_back(index),
                TurnEnd::Blocked if out.has_space_per_peer() && !self.line.is_empty() => {
                    self.scheduler.blocked(&mut self.line, index, qp.id().tenant, qp.peer(), &used);
                    packets += self.transmit_scheduled(now, mem, out, budget.saturating_sub(packets));
                    break;
                }
                TurnEnd::Blocked => {
                    // The queue pair keeps the rest of its turn. With a fresh turn each time, it would never
                    // yield on a slow port.
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

    /// Does the work of [`transmit`](Nic::transmit) while there are several tenants or full peers. This
    /// function is compiled once for all ports, apart from `transmit`, so that the usual path stays small.
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
            if self.shared.control().is_due() {
                self.pass_on();
            }
            // Takes one queue pair at a time: the others remain parked in case the transmit queue fills up.
            if self.stopped.awaited() != 0
                && let Some(index) = self.unpark(out.stopped())
            {
                self.line.push_back(index);
            }
            let qps = &self.qps;
            let tenant_and_peer = |index: u32| {
                let qp = qps.get(index as usize)?.as_ref();
                qp.map(|qp| (qp.id().tenant, qp.peer()))
            };
            let Some(index) = self.scheduler.next(&mut self.line, tenant_and_peer) else { break };
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
                let queued = turn == TurnEnd::More;
                qp.set_queued(queued);
                self.scheduler.served(index, qp.id().tenant, queued, &used);
                if !queued && qp.awaits_queue() {
                    self.park(index);
                }
            } else if out.has_space_per_peer() {
                if !self.scheduler.blocked(&mut self.line, index, qp.id().tenant, qp.peer(), &used) {
                    break;
                }
            } else {
                self.scheduler.stay(index, qp.id().tenant);
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

    /// Returns the index of the queue pair whose turn it is. Queue pairs whose stopped transmit queue is
    /// ready come first.
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

    /// Makes a queue pair wait for the transmit queues that were stopped when it tried to send.
    #[cold]
    #[inline(never)]
    fn park(&mut self, index: u32) {
        let Some(qp) = &mut self.qps[index as usize] else { return };
        self.stopped.enter(index, qp.park());
    }

    /// Returns a queue pair that waited for a transmit queue which is no longer stopped, and which is in no
    /// other line; the caller gives it a turn.
    #[cold]
    #[inline(never)]
    fn unpark(&mut self, stopped: u64) -> Option<u32> {
        while let Some((index, queue)) = self.stopped.next(stopped) {
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            if qp.unpark(queue) {
                return Some(index);
            }
        }
        None
    }

    /// Returns the transmit queues that queue pairs wait for, as a mask with bit n for queue n. When one of
    /// these queues becomes ready, `transmit` has work, although `has_work` may return false.
    #[inline]
    pub fn awaited_queues(&self) -> u64 {
        self.stopped.awaited()
    }

    /// Assigns a queue pair to a tenant, whose share of the bandwidth it uses.
    pub(crate) fn set_tenant(&mut self, number: Qpn, tenant: u32) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        self.scheduler.leave(qp.set_tenant(tenant), index);
        self.scheduler.join(tenant);
        if qp.set_queued(false) {
            self.line.retain(|queued| *queued != index);
        }
        self.attend(index);
        Ok(())
    }

    /// Returns the time at which [`expire`](Nic::expire) is due next; `Instant::NEVER` while no timer runs.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        let touched = self.qps.get(self.touched as usize).and_then(Option::as_ref);
        let rma = self.rma.as_ref().map_or(Instant::NEVER, |rma| rma.deadline());
        touched.map_or(self.timers.first(), |qp| self.timers.first().min(qp.deadline())).min(rma)
    }

    /// Runs the timers that are due at `now`, of at most `budget` queue pairs. All packets that arrived
    /// before `rx_drained_at` must have been [received](Nic::receive). Retransmission timeouts are judged at
    /// that time, because a later response may still wait in the port.
    pub fn expire(&mut self, now: Instant, rx_drained_at: Instant, budget: usize) {
        self.shared.set_now(now);
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
            // A timer that is still due waits for packets that may have arrived. Its next check is 1 ns
            // later, so that other queue pairs' timers run first.
            self.timers.schedule(index, qp.deadline().max(now.after(1)));
            self.line_up(index);
        }
    }

    /// Puts a queue pair in line if it may have packets to send, and schedules its timer.
    #[inline]
    pub(crate) fn attend(&mut self, index: u32) {
        let Some(qp) = &mut self.qps[index as usize] else { return };
        if qp.enters_line() {
            self.line.push_back(index);
        }
        self.timers.schedule(index, qp.deadline());
        qp.checked(&self.shared);
        self.timers.checked(index, || qp.deadline());
    }

    /// Puts a queue pair in line if it may have packets to send.
    fn line_up(&mut self, index: u32) {
        if let Some(qp) = &mut self.qps[index as usize]
            && qp.enters_line()
        {
            self.line.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn index(&self, number: Qpn) -> Option<u32> {
        let index = number.get() & ((1 << self.index_bits) - 1);
        let qp = self.qps[index as usize].as_ref()?;
        (qp.id().number == number).then_some(index)
    }

    /// Returns true if `transmit` may have packets to send, except for queue pairs that wait for a stopped
    /// transmit queue (see [`awaited_queues`](Nic::awaited_queues)).
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.line.is_empty()
            || self.touched != NONE
            || !self.prefetched.is_empty()
            || self.shared.control().is_due()
            || self.shared.kernels().have_work()
            || self.scheduler.is_on() && self.scheduler.waits()
            || self.rma.as_ref().is_some_and(|rma| rma.has_work())
    }

    /// Takes the number of the next completion queue whose program is to be woken; `None` if there is none.
    #[inline]
    pub fn wake(&mut self) -> Option<u32> {
        self.shared.cqs_mut().next_wake()
    }

    /// Takes the oldest asynchronous event; `None` if there is none.
    pub fn event(&mut self) -> Option<AsyncEvent> {
        self.shared.next_event()
    }

    /// Returns the number of asynchronous events that were lost because the event queue was full.
    pub fn lost_events(&self) -> u64 {
        self.shared.lost_events()
    }

    /// Returns the settings of IRN for queue pairs that use it.
    pub fn irn(&self) -> &irn::Settings {
        &self.shared.defaults().irn
    }

    /// Returns the counters of this engine.
    pub fn counters(&self) -> &Counters {
        self.shared.counters()
    }
}
