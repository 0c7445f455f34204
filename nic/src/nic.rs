//! The NIC: the resources of one engine, and the five verbs of a pure machine.
//!
//! `doorbell` (work enters), `receive` (a frame enters), `transmit` (frames leave), `next_deadline`/`expire` (time),
//! and the completion queues and `events` (what the program gets).

use std::collections::VecDeque;

use memory::{Mem, Owner, Pd};
use transport::congestion;
use transport::rc::irn;
use transport::state::{Service, State};
use transport::{Counters, Instant};
use wire::frame::{Egress, Endpoint, Ingress};
use wire::icrc::IdSpans;
use wire::{Qpn, packet};

use crate::address_handle::AddressHandles;
use crate::attributes::{Modify, ModifyFault};
use crate::chain::{self, Control};
use crate::completion_queue::{CompletionQueue, Notify, Written};
use crate::cqe::Cqe;
use crate::crowd::Crowd;
use crate::egress::{Turn, Used, wants_turn};
use crate::event::AsyncEvent;
use crate::ingress::strip;
use crate::kernel::Kernels;
use crate::multicast::{Groups, MULTICAST_QPN};
use crate::prism::{Ahead, FreeLists, waits};
use crate::queue_pair::{QueuePair, Srq};
use crate::receive_queue::ReceiveQueue;
use crate::ring::Ring;
use crate::send_queue::Fetching;
use crate::shared_receive_queue::SharedReceiveQueues;
use crate::timers::Timers;
use crate::xrc_domain::XrcDomains;

/// Limits of one engine, and what its port is like.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its number among the engines that share a table of memory: windows of type 2B tell queue pairs apart by it.
    pub engine: u16,
    /// Queue pairs, up to 65 536.
    pub max_qps: u32,
    /// Completion queues.
    pub max_cqs: u32,
    /// Shared receive queues, up to 65 536.
    pub max_srqs: u32,
    /// XRC domains.
    pub max_xrc_domains: u32,
    /// Address handles, up to 2^20.
    pub max_address_handles: u32,
    /// Multicast groups.
    pub max_groups: u32,
    /// Queue pairs attached to one group.
    pub max_group_members: u32,
    /// What the port is called by peers: where datagrams come to.
    pub endpoint: Endpoint,
    /// Payload bytes that the port carries in a packet: the longest datagram.
    pub mtu: u32,
    /// Asynchronous events that wait to be taken; further ones are counted and lost.
    pub max_events: u32,
    /// Arriving frames carry an ICRC that must be checked.
    pub checks_icrc: bool,
    /// Packets in flight per queue pair.
    pub window: u32,
    /// Packets that one READ request asks for at most.
    pub read_piece: u32,
    /// How IRN works on queue pairs that agree on it.
    pub irn: irn::Settings,
    /// How queue pairs control their rate.
    pub congestion: congestion::Settings,
    /// Free lists of PRISM.
    pub max_free_lists: u32,
    /// Kernels of StRoM that are deployed.
    pub max_kernels: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            engine: 0,
            max_qps: 1 << 14,
            max_cqs: 1 << 10,
            max_srqs: 1 << 10,
            max_xrc_domains: 1 << 8,
            max_address_handles: 1 << 14,
            max_groups: 1 << 8,
            max_group_members: 1 << 6,
            endpoint: Endpoint::default(),
            mtu: 4096,
            max_events: 1 << 10,
            checks_icrc: true,
            window: 256,
            read_piece: 64,
            irn: irn::Settings::default(),
            congestion: congestion::Settings::default(),
            max_free_lists: 1 << 8,
            max_kernels: 1 << 5,
        }
    }
}

/// No queue pair.
const NONE: u32 = u32::MAX;

/// What a queue pair is made of.
pub struct QueuePairInit {
    /// Its transport service.
    pub service: Service,
    /// Its protection domain.
    pub pd: Pd,
    /// Memory of the send queue.
    pub send_ring: Ring,
    /// Where its receive work requests come from.
    pub receives: Receives,
    /// Completion queue of the send queue.
    pub send_cq: u32,
    /// Completion queue of the receive queue.
    pub receive_cq: u32,
    /// Every send work request is signaled.
    pub signal_all: bool,
    /// How far the send queue is fetched.
    pub fetching: Fetching,
}

/// Where a queue pair's receive work requests come from.
pub enum Receives {
    /// A receive queue of its own.
    Own {
        /// Its memory.
        ring: Ring,
        /// Elements per work request.
        max_sge: u32,
    },
    /// The shared receive queue of this number.
    Shared(Qpn),
    /// Nowhere: the initiator of an extended reliable connection receives nothing.
    None,
}

/// Why a resource cannot be made or used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NicError {
    /// As many as there may be (ENOMEM).
    Full,
    /// No such resource (EINVAL).
    Unknown,
    /// Something still uses it (EBUSY).
    Busy,
    /// What it holds does not fit (EINVAL).
    TooSmall,
    /// Its transport service has no such thing (EINVAL).
    NotThisService,
    /// The address is no multicast group's (EINVAL).
    NotAGroup,
}

impl std::fmt::Display for NicError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NicError::Full => "as many resources of this kind as the NIC was configured for",
            NicError::Unknown => "no such resource",
            NicError::Busy => "the resource is still in use",
            NicError::TooSmall => "what it holds does not fit",
            NicError::NotAGroup => "the address is no multicast group's",
            NicError::NotThisService => "queue pairs of this transport service have none",
        })
    }
}

impl std::error::Error for NicError {}

/// What the queue pairs share: completion queues, events, counters, the facts of the port.
pub(crate) struct Shared {
    pub srqs: SharedReceiveQueues,
    pub xrc_domains: XrcDomains,
    pub handles: AddressHandles,
    pub groups: Groups,
    pub endpoint: Endpoint,
    pub mtu: u32,
    cqs: Vec<Option<CompletionQueue>>,
    /// For each completion queue: the domains of those that complete into it, and how many of each.
    cq_users: Vec<Vec<(Pd, u32)>>,
    wakes: VecDeque<u32>,
    events: VecDeque<AsyncEvent>,
    lost_events: u64,
    pub counters: Counters,
    pub checks_icrc: bool,
    pub spans: IdSpans,
    pub window: u32,
    pub read_piece: u32,
    pub engine: u16,
    pub irn: irn::Settings,
    pub congestion: congestion::Settings,
    pub free_lists: FreeLists,
    pub control: Control,
    pub chain_turn: usize,
    index_bits: u32,
    pub kernels: Kernels,
}

impl Shared {
    fn new(config: &Config, places: u32) -> Self {
        Shared {
            srqs: SharedReceiveQueues::new(config.max_srqs),
            xrc_domains: XrcDomains::new(config.max_xrc_domains),
            handles: AddressHandles::new(config.max_address_handles),
            groups: Groups::new(config.max_groups, config.max_group_members),
            endpoint: config.endpoint,
            mtu: config.mtu,
            cqs: (0..config.max_cqs).map(|_| None).collect(),
            cq_users: vec![Vec::new(); config.max_cqs as usize],
            wakes: VecDeque::with_capacity(config.max_cqs as usize),
            events: VecDeque::with_capacity(config.max_events as usize),
            lost_events: 0,
            counters: Counters::default(),
            checks_icrc: config.checks_icrc,
            spans: IdSpans::new(),
            window: config.window,
            read_piece: config.read_piece.clamp(1, config.window.max(1)),
            engine: config.engine,
            irn: config.irn,
            congestion: config.congestion,
            free_lists: FreeLists::new(config.max_free_lists),
            control: Control::new(places as usize),
            chain_turn: chain::TURN,
            index_bits: places.trailing_zeros(),
            kernels: Kernels::new(config.max_kernels, config.max_qps),
        }
    }

    /// One more, of this domain, completes into this queue.
    pub fn use_cq(&mut self, cq: u32, pd: Pd) -> Result<(), NicError> {
        self.cqs.get(cq as usize).and_then(Option::as_ref).ok_or(NicError::Unknown)?;
        let users = &mut self.cq_users[cq as usize];
        match users.iter_mut().find(|(known, _)| *known == pd) {
            Some((_, count)) => *count += 1,
            None => users.push((pd, 1)),
        }
        Ok(())
    }

    /// One less.
    pub fn release_cq(&mut self, cq: u32, pd: Pd) {
        let Some(users) = self.cq_users.get_mut(cq as usize) else { return };
        if let Some((_, count)) = users.iter_mut().find(|(known, _)| *known == pd) {
            *count -= 1;
        }
        users.retain(|(_, count)| *count > 0);
    }

    /// May a queue pair of this domain wait for it? It sees then when whoever completes into it works, which is none of its
    /// business if all those are of other domains.
    pub fn may_wait_for(&self, cq: u32, pd: Pd) -> bool {
        let users = self.cq_users.get(cq as usize);
        users.is_some_and(|users| users.is_empty() || users.iter().any(|(known, _)| *known == pd))
    }

    pub fn event(&mut self, event: AsyncEvent) {
        if self.events.len() == self.events.capacity() {
            self.lost_events += 1;
        } else {
            self.events.push_back(event);
        }
    }

    #[inline]
    pub fn write(&mut self, cq: u32, cqe: &Cqe) -> Written {
        let Some(Some(queue)) = self.cqs.get_mut(cq as usize) else { return Written::Overrun };
        let before = queue.is_overrun();
        let written = queue.write(cqe);
        let awaited = queue.is_awaited();
        match written {
            Written::Quietly => {}
            // A queue whose wake-up waits to be taken needs no second one.
            Written::Wake if !queue.is_waking() => {
                queue.set_waking(true);
                self.wakes.push_back(cq);
            }
            Written::Wake => {}
            Written::Overrun => {
                self.counters.cq_overrun += 1;
                if !before {
                    self.event(AsyncEvent::CqOverrun(cq));
                }
            }
        }
        if awaited {
            self.release_waiting(cq);
        }
        written
    }

    /// A completion queue.
    pub fn completion_queue(&mut self, cq: u32) -> Option<&mut CompletionQueue> {
        self.cqs.get_mut(cq as usize)?.as_mut()
    }

    /// Where a queue pair of this number would stand.
    pub fn place(&self, number: Qpn) -> u32 {
        number.get() & ((1 << self.index_bits) - 1)
    }

    /// Whoever waits for a completion queue looks again.
    pub fn release_all_waiting(&mut self) {
        (0..self.cqs.len() as u32).for_each(|cq| self.release_waiting(cq));
    }
}

/// One engine of a NIC.
pub struct Nic {
    pub(crate) qps: Vec<Option<Box<QueuePair>>>,
    generations: Vec<u8>,
    free: VecDeque<u32>,
    index_bits: u32,
    line: VecDeque<u32>,
    /// The queue pair of the last packets, which has not been attended to since; or `NONE`.
    touched: u32,
    /// What the queue pair at the head of the line has used of its turn, if the port had no more room.
    interrupted: Used,
    /// The lines where one is not enough.
    crowd: Crowd,
    timers: Timers,
    pub(crate) ahead: Ahead,
    pub(crate) shared: Shared,
}

/// The XRC domain of a queue pair that is no target.
const NO_DOMAIN: u32 = u32::MAX;

/// Queue pair numbers 0 and 1 are the management queue pairs'.
const FIRST_INDEX: u32 = 2;

impl Nic {
    /// An engine without queues.
    pub fn new(config: Config) -> Nic {
        let max = config.max_qps.clamp(1, 1 << 16) + FIRST_INDEX;
        let places = max.next_power_of_two();
        Nic {
            qps: (0..places).map(|_| None).collect(),
            generations: vec![0; places as usize],
            free: (FIRST_INDEX..max).collect(),
            index_bits: places.trailing_zeros(),
            line: VecDeque::with_capacity(places as usize),
            touched: NONE,
            interrupted: Used::default(),
            crowd: Crowd::new(places as usize),
            timers: Timers::new(places as usize),
            ahead: Ahead::new(),
            shared: Shared::new(&config, places),
        }
    }

    /// Makes a completion queue over `ring`; its number.
    pub fn create_cq(&mut self, ring: Ring) -> Result<u32, NicError> {
        let place = self.shared.cqs.iter().position(Option::is_none).ok_or(NicError::Full)?;
        self.shared.cqs[place] = Some(CompletionQueue::new(ring));
        Ok(place as u32)
    }

    /// Removes a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), NicError> {
        if self.shared.cq_users.get(cq as usize).is_some_and(|users| !users.is_empty()) {
            return Err(NicError::Busy);
        }
        // Whoever waits for it looks again and finds it gone.
        self.shared.release_waiting(cq);
        let place = self.shared.cqs.get_mut(cq as usize).ok_or(NicError::Unknown)?;
        place.take().map(|_| ()).ok_or(NicError::Unknown)
    }

    /// Moves a completion queue to another ring, with what is not polled yet.
    pub fn resize_cq(&mut self, cq: u32, ring: Ring) -> Result<(), NicError> {
        let queue = self.shared.cqs.get_mut(cq as usize).and_then(Option::as_mut).ok_or(NicError::Unknown)?;
        if queue.resize(ring) { Ok(()) } else { Err(NicError::TooSmall) }
    }

    /// Asks for one wake-up of a completion queue, to come out of `wakes`.
    pub fn notify_cq(&mut self, cq: u32, notify: Notify) -> Result<(), NicError> {
        let queue = self.shared.cqs.get_mut(cq as usize).and_then(Option::as_mut).ok_or(NicError::Unknown)?;
        queue.notify(notify);
        Ok(())
    }

    /// Completions ever written to a completion queue.
    pub fn cq_count(&self, cq: u32) -> Option<u64> {
        self.shared.cqs.get(cq as usize)?.as_ref().map(CompletionQueue::written)
    }

    /// Makes a queue pair in RESET; its number.
    pub fn create_qp(&mut self, init: QueuePairInit) -> Result<Qpn, NicError> {
        if self.free.is_empty() {
            return Err(NicError::Full);
        }
        self.shared.use_cq(init.send_cq, init.pd)?;
        let made = self.shared.use_cq(init.receive_cq, init.pd).and_then(|()| {
            self.receive_queue(&init).inspect_err(|_| self.shared.release_cq(init.receive_cq, init.pd))
        });
        let (receive, srq) = made.inspect_err(|_| self.shared.release_cq(init.send_cq, init.pd))?;
        self.place_qp(init, receive, srq, NO_DOMAIN)
    }

    /// Gives a queue pair to be its place and number.
    pub(crate) fn place_qp(
        &mut self,
        init: QueuePairInit,
        receive: ReceiveQueue,
        srq: Option<Srq>,
        xrc_domain: u32,
    ) -> Result<Qpn, NicError> {
        let index = self.free.pop_front().ok_or(NicError::Full)?;
        let mut number = self.number(index);
        if number.get() == MULTICAST_QPN {
            self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
            number = self.number(index);
        }
        let owner = Owner::new(self.shared.engine, number.get());
        let enabled = (init.fetching != Fetching::Posted).then_some((number, init.pd));
        self.shared.control.set_enabled(index, enabled);
        self.qps[index as usize] =
            Some(Box::new(QueuePair::new(number, owner, init, receive, srq, xrc_domain)));
        Ok(number)
    }

    /// The number of the next queue pair at this place.
    fn number(&self, index: u32) -> Qpn {
        let generation = u32::from(self.generations[index as usize]);
        // The generation in the upper bits: a packet for a destroyed queue pair does not reach its successor.
        Qpn::new((generation << self.index_bits | index) & 0x00ff_ffff)
    }

    /// The receive queue of a queue pair to be, and the shared one that it takes from.
    fn receive_queue(&mut self, init: &QueuePairInit) -> Result<(ReceiveQueue, Option<Srq>), NicError> {
        match (&init.receives, init.service) {
            (Receives::Own { ring, max_sge }, Service::Rc | Service::Uc | Service::Ud) => {
                Ok((ReceiveQueue::new(ring.clone(), *max_sge), None))
            }
            (Receives::Shared(number), Service::Rc | Service::Uc | Service::Ud) => {
                let (place, stride) = self.shared.srqs.join(*number)?;
                let pd = self.shared.srqs.get(place).map_or(Pd::NONE, |queue| queue.pd);
                let room = ReceiveQueue::room(stride).inspect_err(|_| self.shared.srqs.leave(place))?;
                Ok((room, Some(Srq { place, pd })))
            }
            (Receives::None, Service::XrcInitiator) => Ok((ReceiveQueue::room(1)?, None)),
            _ => Err(NicError::NotThisService),
        }
    }

    /// Removes a queue pair; its work is forgotten, packets for it are dropped from now on. `Busy` while it is attached to a
    /// multicast group.
    pub fn destroy_qp(&mut self, number: Qpn) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        if self.shared.groups.has(number) {
            return Err(NicError::Busy);
        }
        let Some(mut qp) = self.qps[index as usize].take() else { return Err(NicError::Unknown) };
        qp.end_prism(&mut self.shared);
        self.forget_waiting(&qp, index);
        qp.end_strom(&mut self.shared);
        for cq in [qp.send_cq, qp.receive_cq] {
            self.shared.release_cq(cq, qp.pd);
        }
        match (qp.service, qp.srq) {
            (Service::XrcTarget, _) => self.shared.xrc_domains.leave(qp.xrc_domain),
            (_, Some(srq)) => self.shared.srqs.leave(srq.place),
            _ => {}
        }
        if qp.queued {
            self.line.retain(|queued| *queued != index);
        }
        self.crowd.leave(qp.party, index);
        self.timers.remove(index);
        self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
        self.free.push_back(index);
        Ok(())
    }

    /// Changes a queue pair's state and attributes; all or nothing.
    pub fn modify_qp(&mut self, number: Qpn, change: &Modify) -> Result<(), ModifyFault> {
        let index = self.index(number).ok_or(ModifyFault::NoQueuePair)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(ModifyFault::NoQueuePair) };
        qp.modify(change, &mut self.shared)?;
        self.attend(index);
        Ok(())
    }

    /// What a queue pair was told so far, and its state (`ibv_query_qp`).
    pub fn query_qp(&self, number: Qpn) -> Option<Modify> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.query())
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, number: Qpn) -> Option<State> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.state)
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

    /// Makes a completion queue that is counted and need not be polled: its newest entries stand over the oldest
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`); its number.
    pub fn create_cq_ignoring_overrun(&mut self, ring: Ring) -> Result<u32, NicError> {
        let cq = self.create_cq(ring.clone())?;
        self.shared.cqs[cq as usize] = Some(CompletionQueue::ignoring_overrun(ring));
        Ok(cq)
    }

    /// A frame has arrived.
    #[inline]
    pub fn receive(&mut self, now: Instant, mem: Mem<'_>, frame: &Ingress<'_>) {
        let shared = &mut self.shared;
        let Ok(arrived) = strip(frame) else {
            shared.counters.malformed_pkts += 1;
            return;
        };
        let Ok(packet) = packet::View::new(arrived.transport) else {
            shared.counters.malformed_pkts += 1;
            return;
        };
        let waits = waits(&packet, &arrived);
        if !self.ahead.is_empty() && (!waits || self.ahead.is_full()) {
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
        if waits && qp.speaks_prism() {
            qp.foresee(mem, &packet);
            self.ahead.put(arrived.transport);
            return;
        }
        qp.take(now, mem, &arrived, &packet, shared);
        self.touch(index);
    }

    /// Packets of one queue pair come one after the other: what they lead to is looked at once.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) {
        if self.touched != index {
            self.settle();
            self.touched = index;
        }
    }

    /// Attends to the queue pair that the last packets were for.
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
        if !self.ahead.is_empty() {
            self.catch_up(now, mem);
        }
        self.settle();
        let turns = if self.shared.kernels.have_work() { self.run_kernels(mem) } else { 0 };
        if self.crowd.is_on() {
            return self.transmit_in_crowd(now, mem, out, budget) + turns;
        }
        let mut packets = 0;
        while packets < budget {
            if self.shared.control.is_due() {
                self.pass_on();
            }
            let Some(index) = self.line.pop_front() else { break };
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            let mut used = std::mem::take(&mut self.interrupted);
            let before = used.packets;
            let turn = qp.transmit(now, mem, out, &mut self.shared, &mut used);
            packets += used.packets - before;
            self.timers.schedule(index, qp.deadline());
            match turn {
                Turn::Done => qp.queued = false,
                Turn::More => self.line.push_back(index),
                Turn::Blocked if out.has_rooms() && !self.line.is_empty() => {
                    self.crowd.blocked(&mut self.line, index, (qp.party, qp.peer()), &used);
                    packets += self.transmit_in_crowd(now, mem, out, budget.saturating_sub(packets));
                    break;
                }
                Turn::Blocked => {
                    // It goes on with the rest of its turn: on a slow port a fresh one each time would never end.
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

    /// As [`transmit`](Nic::transmit), where one line is not enough. It is compiled once for all ports: the busy path of one line must
    /// not pay for it.
    #[cold]
    #[inline(never)]
    fn transmit_in_crowd(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        mut out: &mut dyn Egress,
        budget: usize,
    ) -> usize {
        let mut packets = 0;
        self.crowd.begin();
        while packets < budget {
            if self.shared.control.is_due() {
                self.pass_on();
            }
            let qps = &self.qps;
            let who = |index: u32| qps[index as usize].as_ref().map(|qp| (qp.party, qp.peer()));
            let Some(index) = self.crowd.next(&mut self.line, who) else { break };
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            let mut used = std::mem::take(&mut self.interrupted);
            let before = used.packets;
            let turn = qp.transmit(now, mem, &mut out, &mut self.shared, &mut used);
            packets += used.packets - before;
            self.timers.schedule(index, qp.deadline());
            if turn != Turn::Blocked {
                qp.queued = turn == Turn::More;
                self.crowd.served(index, qp.party, qp.queued, &used);
            } else if out.has_rooms() {
                if !self.crowd.blocked(&mut self.line, index, (qp.party, qp.peer()), &used) {
                    break;
                }
            } else {
                self.crowd.stay(index, qp.party);
                self.interrupted = used;
                break;
            }
        }
        self.crowd.end(&mut self.line);
        if packets > 0 {
            out.flush();
        }
        packets
    }

    /// Queue pairs of one party share its turns: however many are busy, another party gets as much as they do together. 0 is
    /// everybody's who has no other.
    ///
    /// # Errors
    /// `Unknown`: there is no such queue pair.
    pub fn set_party(&mut self, number: Qpn, party: u32) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        self.crowd.leave(std::mem::replace(&mut qp.party, party), index);
        self.crowd.join(party);
        if std::mem::take(&mut qp.queued) {
            self.line.retain(|queued| *queued != index);
        }
        self.attend(index);
        Ok(())
    }

    /// The party of a queue pair.
    pub fn party(&self, number: Qpn) -> Option<u32> {
        Some(self.qps[self.index(number)? as usize].as_ref()?.party)
    }

    /// When `expire` wants to be called.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        let touched = self.qps.get(self.touched as usize).and_then(Option::as_ref);
        touched.map_or(self.timers.first(), |qp| self.timers.first().min(qp.deadline()))
    }

    /// Time has come to `now`: at most `budget` queue pairs' timers run. All that had arrived at `heard` has been
    /// [received](Nic::receive): a peer is called silent only until then, for what came later may be its answer.
    pub fn expire(&mut self, now: Instant, heard: Instant, budget: usize) {
        for _ in 0..budget {
            let Some(index) = self.timers.pop(now) else { break };
            let Some(qp) = &mut self.qps[index as usize] else { continue };
            if qp.deadline() <= now {
                qp.expire(now, heard, &mut self.shared);
            }
            // What is due still waits for what may have arrived: it is looked at again, but not before others have been.
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

    /// May any queue pair have something to send?
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.line.is_empty()
            || self.touched != NONE
            || !self.ahead.is_empty()
            || self.shared.control.is_due()
            || self.shared.kernels.have_work()
            || self.crowd.is_on() && self.crowd.waits()
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

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Bytes;

    /// The number of all ones stands for a multicast group's queue pairs.
    #[test]
    fn no_queue_pair_has_the_number_of_all_ones() {
        let mut nic = Nic::new(Config { max_qps: 1 << 16, ..Config::default() });
        let ring = || Ring::new(Bytes::heap(Ring::size(4)).unwrap()).unwrap();
        let last = (1 << nic.index_bits) - 1;
        nic.free = VecDeque::from([last]);
        nic.generations[last as usize] = u8::MAX;
        let cq = nic.create_cq(ring()).unwrap();
        let number = nic.create_qp(QueuePairInit {
            service: Service::Ud,
            pd: Pd::NONE,
            send_ring: ring(),
            receives: Receives::Own { ring: ring(), max_sge: 1 },
            send_cq: cq,
            receive_cq: cq,
            signal_all: false,
            fetching: Fetching::Posted,
        });
        assert_eq!(number, Ok(Qpn::new(last)), "of the next generation");
        assert_eq!(nic.qp_state(Qpn::new(last)), Some(State::Reset));
    }
}
