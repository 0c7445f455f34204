//! State that the queue pairs of an engine share.

use std::collections::VecDeque;

use remora_memory::Pd;
use remora_transport::rc::irn;
use remora_transport::{Counters, Instant, congestion};
use remora_wire::Qpn;
use remora_wire::frame::Endpoint;
use remora_wire::icrc::IdSpans;

use crate::address_handle::AddressHandles;
use crate::chain::{self, Control};
use crate::completion_queue::{CompletionQueue, Written};
use crate::config::{Config, NicError};
use crate::cqe::Cqe;
use crate::event::AsyncEvent;
use crate::kernel::Kernels;
use crate::multicast::Groups;
use crate::path::AnswerClasses;
use crate::prism::FreeLists;
use crate::shared_receive_queue::SharedReceiveQueues;
use crate::xrc_domain::XrcDomains;

/// Settings of the engine that a connection takes over when it is set up.
pub(crate) struct ConnectionDefaults {
    /// Any path MTU is allowed, not only powers of two.
    pub any_path_mtu: bool,
    /// Maximum number of packets in flight, unless the program sets another.
    pub window: u32,
    /// Number of packets after which an ACK is requested.
    pub ack_every: u32,
    /// Fixed retransmission timeout in nanoseconds, for experiments.
    pub rto_ns: Option<u64>,
    /// Retries are not limited, for experiments.
    pub retries_forever: bool,
    /// Maximum number of PSNs that one request of a READ covers.
    pub read_piece: u32,
    pub irn: irn::Settings,
    pub congestion: congestion::Settings,
    /// Traffic classes of packets without data.
    pub classes: AnswerClasses,
}

impl ConnectionDefaults {
    fn new(config: &Config) -> Self {
        let experiments = config.experiments();
        ConnectionDefaults {
            any_path_mtu: experiments.any_path_mtu,
            window: config.window,
            ack_every: config.ack_every,
            rto_ns: experiments.rto_ns,
            retries_forever: experiments.retries_forever,
            read_piece: config.read_piece,
            irn: config.irn,
            congestion: config.congestion,
            classes: AnswerClasses { ack: config.ack_class, cnp: config.cnp_class },
        }
    }
}

/// State that the queue pairs of an engine share: completion queues, events, counters and properties of the
/// port.
pub(crate) struct Shared {
    pub srqs: SharedReceiveQueues,
    pub xrc_domains: XrcDomains,
    pub handles: AddressHandles,
    pub groups: Groups,
    pub endpoint: Endpoint,
    pub mtu: u32,
    pub cqs: Vec<Option<CompletionQueue>>,
    /// For each completion queue, the protection domains of the queue pairs that complete into it, with the
    /// number of these queue pairs.
    pub cq_users: Vec<Vec<(Pd, u32)>>,
    pub wakes: VecDeque<u32>,
    pub events: VecDeque<AsyncEvent>,
    pub lost_events: u64,
    /// The time of the last call into the engine that passed the time.
    pub now: Instant,
    pub counters: Counters,
    pub checks_icrc: bool,
    pub spans: IdSpans,
    pub turn_packets: usize,
    pub engine: u16,
    pub defaults: ConnectionDefaults,
    pub free_lists: FreeLists,
    pub control: Control,
    pub chain_turn: usize,
    index_bits: u32,
    pub kernels: Kernels,
}

impl Shared {
    pub(crate) fn new(config: &Config, places: u32) -> Self {
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
            now: Instant(0),
            counters: Counters::default(),
            checks_icrc: config.checks_icrc,
            spans: IdSpans::new(),
            turn_packets: config.experiments().turn_packets,
            engine: config.engine,
            defaults: ConnectionDefaults::new(config),
            free_lists: FreeLists::new(config.max_free_lists),
            control: Control::new(places as usize),
            chain_turn: chain::TURN,
            index_bits: places.trailing_zeros(),
            kernels: Kernels::new(config.max_kernels, config.max_qps),
        }
    }

    /// Registers a user of a completion queue, by protection domain.
    pub(crate) fn use_cq(&mut self, cq: u32, pd: Pd) -> Result<(), NicError> {
        self.cqs.get(cq as usize).and_then(Option::as_ref).ok_or(NicError::Unknown)?;
        let users = &mut self.cq_users[cq as usize];
        match users.iter_mut().find(|(known, _)| *known == pd) {
            Some((_, count)) => *count += 1,
            None => users.push((pd, 1)),
        }
        Ok(())
    }

    /// Removes a user of a completion queue.
    pub(crate) fn release_cq(&mut self, cq: u32, pd: Pd) {
        let Some(users) = self.cq_users.get_mut(cq as usize) else { return };
        if let Some((_, count)) = users.iter_mut().find(|(known, _)| *known == pd) {
            *count -= 1;
        }
        users.retain(|(_, count)| *count > 0);
    }

    /// Returns true if queue pairs of this protection domain may WAIT for the completion queue. A WAIT
    /// reveals when the queue's users are active, so it is allowed only if one of them belongs to the same
    /// domain or there are none.
    pub(crate) fn may_wait_for(&self, cq: u32, pd: Pd) -> bool {
        let users = self.cq_users.get(cq as usize);
        users.is_some_and(|users| users.is_empty() || users.iter().any(|(known, _)| *known == pd))
    }

    pub(crate) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() == self.events.capacity() {
            self.lost_events += 1;
        } else {
            self.events.push_back(event);
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, cq: u32, cqe: &Cqe) -> Written {
        let Some(Some(queue)) = self.cqs.get_mut(cq as usize) else { return Written::Overrun };
        let before = queue.is_overrun();
        let written = queue.write(cqe, self.now);
        let awaited = queue.is_awaited();
        match written {
            Written::Quietly => {}
            // A queue with a pending wake-up needs no second one.
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

    /// Returns a completion queue by number.
    pub(crate) fn completion_queue(&mut self, cq: u32) -> Option<&mut CompletionQueue> {
        self.cqs.get_mut(cq as usize)?.as_mut()
    }

    /// Returns the table index of a queue pair number.
    pub(crate) fn place(&self, number: Qpn) -> u32 {
        number.get() & ((1 << self.index_bits) - 1)
    }

    /// Makes all queue pairs that WAIT for a completion queue test the condition again.
    pub(crate) fn release_all_waiting(&mut self) {
        (0..self.cqs.len() as u32).for_each(|cq| self.release_waiting(cq));
    }
}

impl Shared {
    /// Releases the queue pairs that wait for a completion queue.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_waiting(&mut self, cq: u32) {
        if let Some(queue) = self.completion_queue(cq) {
            let last = queue.release();
            self.control.release(last);
        }
    }

    /// Asserts the invariants of what belongs to no queue pair, a part of it at a time.
    pub(crate) fn check(&self) {
        let event = self.counters.rcvd_pkts;
        self.free_lists.check(event);
        self.kernels.check(event);
        assert!(self.wakes.len() <= self.cqs.len(), "a completion queue is woken once");
    }
}
