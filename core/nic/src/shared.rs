//! State that the queue pairs of an engine share.

mod receive_queues;

use std::collections::VecDeque;

use remora_transport::rc::irn;
use remora_transport::{Counters, Instant, congestion};
use remora_wire::Qpn;
use remora_wire::frame::Endpoint;
use remora_wire::icrc::IdSpans;

use crate::address_handle::AddressHandles;
use crate::chain::Control;
use crate::completion_queue::Written;
use crate::completion_queues::{CompletionQueues, WriteResult};
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

/// The objects of an engine that queue pairs refer to by number.
pub(crate) struct Objects {
    pub srqs: SharedReceiveQueues,
    pub xrc_domains: XrcDomains,
    pub handles: AddressHandles,
    pub groups: Groups,
    pub free_lists: FreeLists,
}

/// The properties of an engine and its port, which never change.
pub(crate) struct Properties {
    pub endpoint: Endpoint,
    pub mtu: u32,
    pub checks_icrc: bool,
    pub engine: u16,
    /// Maximum number of packets of a queue pair's turn.
    pub turn_packets: usize,
    pub defaults: ConnectionDefaults,
}

/// State that the queue pairs of an engine share: completion queues, events, counters and properties of the
/// port.
pub(crate) struct Shared {
    properties: Properties,
    objects: Objects,
    cqs: CompletionQueues,
    events: VecDeque<AsyncEvent>,
    lost_events: u64,
    /// The time of the last call into the engine that passed the time.
    now: Instant,
    counters: Counters,
    spans: IdSpans,
    control: Control,
    kernels: Kernels,
    index_bits: u32,
}

/// The parts of the shared state that a packet, a turn or a command uses together.
pub(crate) struct SharedView<'a> {
    pub properties: &'a Properties,
    pub objects: &'a mut Objects,
    pub counters: &'a mut Counters,
    pub spans: &'a mut IdSpans,
    pub kernels: &'a mut Kernels,
    pub now: Instant,
}

impl Shared {
    pub(crate) fn new(config: &Config, places: u32) -> Self {
        Shared {
            properties: Properties {
                endpoint: config.endpoint,
                mtu: config.mtu,
                checks_icrc: config.checks_icrc,
                engine: config.engine,
                turn_packets: config.experiments().turn_packets,
                defaults: ConnectionDefaults::new(config),
            },
            objects: Objects {
                srqs: SharedReceiveQueues::new(config.max_srqs),
                xrc_domains: XrcDomains::new(config.max_xrc_domains),
                handles: AddressHandles::new(config.max_address_handles),
                groups: Groups::new(config.max_groups, config.max_group_members),
                free_lists: FreeLists::new(config.max_free_lists),
            },
            cqs: CompletionQueues::new(config.max_cqs),
            events: VecDeque::with_capacity(config.max_events as usize),
            lost_events: 0,
            now: Instant(0),
            counters: Counters::default(),
            spans: IdSpans::new(),
            control: Control::new(places as usize),
            kernels: Kernels::new(config.max_kernels, config.max_qps),
            index_bits: places.trailing_zeros(),
        }
    }

    /// Returns the parts that are used together.
    #[inline(always)]
    pub(crate) fn view(&mut self) -> SharedView<'_> {
        SharedView {
            properties: &self.properties,
            objects: &mut self.objects,
            counters: &mut self.counters,
            spans: &mut self.spans,
            kernels: &mut self.kernels,
            now: self.now,
        }
    }

    #[inline(always)]
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    #[inline(always)]
    pub(crate) fn defaults(&self) -> &ConnectionDefaults {
        &self.properties.defaults
    }

    #[inline(always)]
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    #[inline(always)]
    pub(crate) fn objects_mut(&mut self) -> &mut Objects {
        &mut self.objects
    }

    #[inline(always)]
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    #[inline(always)]
    pub(crate) fn kernels_mut(&mut self) -> &mut Kernels {
        &mut self.kernels
    }

    #[inline(always)]
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    #[inline(always)]
    pub(crate) fn control_mut(&mut self) -> &mut Control {
        &mut self.control
    }

    #[inline(always)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline(always)]
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Counts a received packet of `len` bytes.
    #[inline(always)]
    pub(crate) fn received(&mut self, len: usize) {
        self.counters.rcvd_pkts += 1;
        self.counters.rcvd_bytes += len as u64;
    }

    /// Sets the time of a call into the engine.
    #[inline(always)]
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Returns the completion queues.
    pub(crate) fn cqs(&self) -> &CompletionQueues {
        &self.cqs
    }

    /// Returns the completion queues for modification.
    #[inline(always)]
    pub(crate) fn cqs_mut(&mut self) -> &mut CompletionQueues {
        &mut self.cqs
    }

    /// Destroys a completion queue that nothing uses. Queue pairs that WAIT for the queue test the condition
    /// again and find the queue gone.
    pub(crate) fn destroy_cq(&mut self, cq: u32) -> Result<(), NicError> {
        if self.cqs.is_used(cq) {
            return Err(NicError::Busy);
        }
        self.release_waiting(cq);
        self.cqs.remove(cq)
    }

    /// Adds an asynchronous event, or counts it as lost if the event queue is full.
    pub(crate) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() == self.events.capacity() {
            self.lost_events += 1;
        } else {
            self.events.push_back(event);
        }
    }

    /// Takes the oldest asynchronous event; `None` if there is none.
    pub(crate) fn next_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// Returns the number of asynchronous events that were lost because the event queue was full.
    pub(crate) fn lost_events(&self) -> u64 {
        self.lost_events
    }

    /// Writes a completion to a completion queue.
    #[inline]
    pub(crate) fn write(&mut self, cq: u32, cqe: &Cqe) -> Written {
        let WriteResult { written, overruns_now, is_awaited } = self.cqs.write(cq, cqe, self.now);
        if written == Written::Overrun {
            self.overrun(cq, overruns_now);
        }
        if is_awaited {
            self.release_waiting(cq);
        }
        written
    }

    #[cold]
    #[inline(never)]
    fn overrun(&mut self, cq: u32, overruns_now: bool) {
        self.counters.cq_overrun += 1;
        if overruns_now {
            self.event(AsyncEvent::CqOverrun(cq));
        }
    }

    /// Returns the table index of a queue pair number.
    pub(crate) fn place(&self, number: Qpn) -> u32 {
        number.get() & ((1 << self.index_bits) - 1)
    }

    /// Makes all queue pairs that WAIT for a completion queue test the condition again.
    pub(crate) fn release_all_waiting(&mut self) {
        self.cqs.numbers().for_each(|cq| self.release_waiting(cq));
    }

    /// Releases the queue pairs that wait for a completion queue.
    #[cold]
    #[inline(never)]
    fn release_waiting(&mut self, cq: u32) {
        if let Ok(queue) = self.cqs.get_mut(cq) {
            let last = queue.release();
            self.control.release(last);
        }
    }

    /// Asserts the invariants of what belongs to no queue pair, a part of it at a time.
    pub(crate) fn check(&self) {
        let event = self.counters.rcvd_pkts;
        self.objects.free_lists.check(event);
        self.kernels.check(event);
        self.cqs.check();
    }
}
