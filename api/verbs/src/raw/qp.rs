//! Queue pairs that are created in RESET, and that any thread posts to.

use remora_memory::{Owner, Pd};
use remora_nic::wqe::{Bounds, MAX_SLOTS};
use remora_nic::{
    BellOwner, Command, Device, Fetching, Modify, ObjectName, QueuePairFacts, QueuePairInit, ReceiveCaps,
    ReceiveQueue, Ring, SendCaps, SendQueue, Service,
};
use remora_transport::state::State;
use remora_wire::Qpn;
use remora_wire::frame::{Endpoint, Peer};
use std::sync::Arc;

use super::inside::Guarded;
use super::srq::slots;
use super::{ChannelAdapter, Cq, Srq};
use crate::engine_handle::EngineHandle;
use crate::{CreateError, PostError, QueueError};

/// The sizes of a queue pair's queues (`ibv_qp_cap`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// Outstanding send work requests of any length. One more is refused. With 0 the queue pair only
    /// receives.
    pub max_send_wr: u32,
    /// Outstanding receive work requests. With 0 the queue pair only sends.
    pub max_recv_wr: u32,
    /// List elements of a send work request, 0 to 30.
    pub max_send_sge: u32,
    /// List elements of a receive work request, 0 to 30.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request, 0 to 960.
    pub max_inline: u32,
    /// True if every send work request is signaled.
    pub signal_all: bool,
}

impl Default for QpAttributes {
    fn default() -> QpAttributes {
        QpAttributes {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            signal_all: false,
        }
    }
}

impl QpAttributes {
    /// The number of slots of the send queue.
    fn send_slots(&self) -> Result<u32, CreateError> {
        let most = SendCaps::MOST;
        let bounds = [
            ("max_send_sge", self.max_send_sge, most.max_sge),
            ("max_inline", self.max_inline, most.max_inline),
            ("max_send_wr", self.max_send_wr, most.max_wr),
        ];
        if let Some((name, asked, most)) = bounds.into_iter().find(|(_, asked, most)| asked > most) {
            return Err(CreateError::TooMany(name, asked.into(), most.into()));
        }
        let QpAttributes { max_send_wr: max_wr, max_send_sge: max_sge, max_inline, .. } = *self;
        let slots = SendCaps { max_wr, max_sge, max_inline }.slots();
        Ok(slots.unwrap_or_default().max(MAX_SLOTS as u32))
    }
}

/// Engine passes that process all frames that have arrived. The socket of an unprivileged program holds
/// fewer frames than five passes process.
const PASSES: usize = 5;

/// A queue pair (`ibv_qp`).
#[derive(Debug)]
pub struct Qp {
    adapter: Arc<ChannelAdapter>,
    number: Qpn,
    service: Service,
    /// The protection domain; `None` for an XRC target.
    pd: Option<Pd>,
    /// The index of the doorbell at a daemon.
    bell: u32,
    queues: Guarded<Queues>,
}

#[derive(Debug)]
struct Queues {
    /// The state that the program has set. The NIC may have left it for an error state, in which work is
    /// posted, too.
    state: State,
    send: SendQueue,
    /// The receive queue; `None` if the queue pair uses a shared receive queue or receives nothing.
    receive: Option<ReceiveQueue>,
    groups: Vec<Endpoint>,
    /// The peer of the port, or the link, that the queue pair is connected to.
    peer: Option<Peer>,
}

impl Qp {
    /// Creates a queue pair in RESET. With `srq` it has no receive queue of its own.
    ///
    /// # Errors
    /// `TooMany`; `Nic(Full)`; `Nic(Unknown)` if a queue was destroyed; `Memory`; `Forked` in a forked child.
    pub fn create(
        adapter: &Arc<ChannelAdapter>,
        service: Service,
        pd: Pd,
        send_cq: &Cq,
        receive_cq: &Cq,
        srq: Option<&Srq>,
        attributes: &QpAttributes,
    ) -> Result<Arc<Qp>, CreateError> {
        adapter.refuse_child()?;
        let engine = adapter.handle();
        let (send_ring, send_part) = engine.queue(attributes.send_slots()?)?;
        let max_sge = attributes.max_recv_sge;
        let (receives, receive) = match (srq, service) {
            (Some(srq), _) => (remora_nic::Receives::Shared(srq.number()), None),
            (None, Service::XrcInitiator) => (remora_nic::Receives::None, None),
            (None, _) => {
                let caps = ReceiveCaps { max_wr: attributes.max_recv_wr.max(1), max_sge };
                let (ring, part) = engine.queue(slots(caps)?)?;
                let side = ReceiveQueue::new(ring, max_sge).limited(attributes.max_recv_wr);
                (remora_nic::Receives::Own { ring: part, max_sge }, Some(side))
            }
        };
        let init = QueuePairInit {
            service,
            pd,
            send_ring: send_part,
            receives,
            send_cq: send_cq.number(),
            receive_cq: receive_cq.number(),
            signal_all: attributes.signal_all,
            fetching: Fetching::Posted,
        };
        adapter.retain_domain(pd)?;
        if service == Service::Ud {
            // The IP header that precedes each received datagram is built from these fields.
            engine.show_ip_fields();
        }
        let number = engine.ask(Command::CreateQp(init)).inspect_err(|_| adapter.release_domain(pd))?;
        let bounds = Bounds { max_sge: attributes.max_send_sge, max_inline: attributes.max_inline };
        let send = SendQueue::new(send_ring, bounds);
        let send = match attributes.max_send_wr {
            0 => send.closed(),
            most => send.limited(most),
        };
        let queues = Queues { state: State::Reset, send, receive, groups: Vec::new(), peer: None };
        Qp::over(adapter, number, service, Some(pd), queues)
    }

    /// Creates a target of extended reliable connections, in RESET. It has no queues.
    ///
    /// # Errors
    /// `Nic(Full)`; `Nic(Unknown)` if there is no such XRC domain; `Forked` in a forked child.
    pub fn create_xrc_target(adapter: &Arc<ChannelAdapter>, domain: u32) -> Result<Arc<Qp>, CreateError> {
        adapter.refuse_child()?;
        let number = adapter.handle().ask::<Qpn>(Command::CreateXrcTarget { domain })?;
        let send = SendQueue::new(Ring::heap(1)?, Bounds { max_sge: 0, max_inline: 0 }).closed();
        let queues = Queues { state: State::Reset, send, receive: None, groups: Vec::new(), peer: None };
        Qp::over(adapter, number, Service::XrcTarget, None, queues)
    }

    fn over(
        adapter: &Arc<ChannelAdapter>,
        number: Qpn,
        service: Service,
        pd: Option<Pd>,
        queues: Queues,
    ) -> Result<Arc<Qp>, CreateError> {
        let queues = Guarded::new(adapter.engine(), queues);
        let mut made = Qp { adapter: Arc::clone(adapter), number, service, pd, bell: 0, queues };
        // An engine of this process is entered instead of rung.
        if let EngineHandle::Nicd(daemon) = adapter.handle() {
            let bell = daemon.assign_bell(BellOwner::QueuePair(number));
            made.bell = bell.inspect_err(|_| drop(made.destroy()))?.index;
        }
        Ok(Arc::new(made))
    }

    /// The queue pair's number, 24 bits.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// The queue pair's transport service.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Changes the state and attributes, all of them or none. A connection to a neighbour gets its link here.
    ///
    /// # Errors
    /// `Modify` if the transition or a value is not allowed; `Unreachable` if a link is missing that is
    /// demanded or that the neighbour may use, or if the port takes no more peers; `Forked` in a forked
    /// child.
    pub fn modify(&self, change: &Modify) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        let mut change = *change;
        let link = match change.address {
            Some(_) => {
                let known = || self.query().and_then(|attributes| attributes.dest_qp);
                let dest_qp = change.dest_qp.or_else(known);
                self.adapter.choose_link(self.service, dest_qp, &mut change)?
            }
            None => None,
        };
        if change.state == Some(State::Err) {
            self.take_arrived();
        }
        let state = change.state;
        let has_address = change.address.is_some();
        let peer = self.adapter.handle().modify_with_peer(self.number, change, link)?;
        if let Some(state) = state {
            self.entered(state)?;
        }
        if has_address || state == Some(State::Reset) {
            self.keep_peer(peer);
        }
        Ok(())
    }

    /// Records that the queue pair has entered a state. Once it can send, a daemon keeps it.
    fn entered(&self, state: State) -> Result<(), CreateError> {
        let known = self.queues.engine().inside(|inside| self.queues.get(inside).state = state);
        known.map_err(|_| CreateError::Reentered)?;
        if state == State::Rts { self.adapter.keep(ObjectName::Qp(self.number)) } else { Ok(()) }
    }

    /// Processes the frames that have arrived, as hardware would have done by now. An acknowledgement among
    /// them may complete a request that would otherwise be flushed.
    fn take_arrived(&self) {
        if let EngineHandle::Own(engine) = self.adapter.handle() {
            (0..PASSES).for_each(|_| engine.step());
        }
    }

    /// Sets the peer that the queue pair uses, and releases the previous one.
    fn keep_peer(&self, peer: Option<Peer>) {
        let engine = self.queues.engine();
        let replaced = engine.inside(|inside| std::mem::replace(&mut self.queues.get(inside).peer, peer));
        if let Ok(Some(old)) = replaced {
            engine.handle().uplink().release_peer(old);
        }
    }

    /// The state and the attributes that were set so far. `None` in a forked child and for a destroyed queue
    /// pair.
    pub fn query(&self) -> Option<Modify> {
        if self.adapter.is_child() {
            return None;
        }
        let facts: QueuePairFacts = self.adapter.handle().ask(Command::QueryQp(self.number)).ok()?;
        Some(facts.attributes)
    }

    /// Posts send work requests: `fill` pushes them one by one to the queue. The NIC sees them together,
    /// with one doorbell.
    ///
    /// # Errors
    /// `Queue(BadState)` before RTS; `Failed` once the NIC has failed; `Forked` in a forked child;
    /// `Reentered`.
    #[inline]
    pub fn post_send<R>(&self, fill: impl FnOnce(&mut SendQueue) -> R) -> Result<R, PostError> {
        if self.adapter.is_child() {
            return Err(PostError::Forked);
        }
        let posted = self.queues.engine().inside(|inside| {
            let Queues { state, send: queue, .. } = self.queues.get(inside);
            if !matches!(state, State::Rts | State::Sqd | State::Sqe | State::Err) {
                return Err(PostError::Queue(QueueError::BadState));
            }
            self.refuse_failed()?;
            let before = queue.published();
            let filled = fill(queue);
            queue.publish();
            if queue.published() != before {
                inside.ring(self.number, self.bell);
            }
            Ok(filled)
        });
        posted?
    }

    /// Returns `Failed` if the NIC has failed. All of its queue pairs are then in the error state.
    #[inline]
    fn refuse_failed(&self) -> Result<(), PostError> {
        if self.adapter.has_failed() { Err(PostError::Failed) } else { Ok(()) }
    }

    /// Posts receive work requests: `fill` pushes them one by one to the queue.
    ///
    /// # Errors
    /// `Queue(BadState)` in RESET; `NoReceiveQueue`; `Failed` once the NIC has failed; `Forked` in a forked
    /// child; `Reentered`.
    #[inline]
    pub fn post_recv<R>(&self, fill: impl FnOnce(&mut ReceiveQueue) -> R) -> Result<R, PostError> {
        if self.adapter.is_child() {
            return Err(PostError::Forked);
        }
        let posted = self.queues.engine().inside(|inside| {
            let Queues { state, receive, .. } = self.queues.get(inside);
            if *state == State::Reset {
                return Err(PostError::Queue(QueueError::BadState));
            }
            self.refuse_failed()?;
            let queue = receive.as_mut().ok_or(PostError::NoReceiveQueue)?;
            let filled = fill(queue);
            queue.publish();
            if queue.must_ring() {
                inside.ring(self.number, self.bell);
            }
            Ok(filled)
        });
        posted?
    }

    /// Attaches the queue pair to a multicast group.
    ///
    /// # Errors
    /// The errors of [`DatagramQueuePair::attach`](crate::DatagramQueuePair::attach).
    pub fn attach(&self, group: Endpoint) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        let engine = self.queues.engine();
        engine.handle().attach_multicast(self.number, group)?;
        let kept = engine.inside(|inside| self.queues.get(inside).groups.push(group));
        kept.map_err(|_| CreateError::Reentered)
    }

    /// Detaches the queue pair from a multicast group.
    ///
    /// # Errors
    /// `Nic(Unknown)` if the queue pair is not attached to the group; `Forked` in a forked child.
    pub fn detach(&self, group: Endpoint) -> Result<(), CreateError> {
        self.adapter.refuse_child()?;
        let engine = self.queues.engine();
        let known = engine.inside(|inside| {
            let groups = &mut self.queues.get(inside).groups;
            let place = groups.iter().position(|known| *known == group);
            let place = place.ok_or(CreateError::Nic(remora_nic::NicError::Unknown))?;
            groups.swap_remove(place);
            Ok::<(), CreateError>(())
        });
        known.map_err(|_| CreateError::Reentered)??;
        engine.handle().detach_multicast(self.number, group);
        Ok(())
    }

    /// Destroys the queue pair. Posted work is dropped without completions.
    ///
    /// # Errors
    /// `Nic(Busy)` while it is attached to a multicast group; `Nic(Unknown)` if it was destroyed before.
    pub fn destroy(&self) -> Result<(), CreateError> {
        if self.adapter.is_child() {
            return Ok(());
        }
        let engine = self.adapter.handle();
        engine.ask::<()>(Command::DestroyQp(self.number))?;
        self.keep_peer(None);
        if let Some(table) = self.adapter.table() {
            // Windows of type 2 that the queue pair has bound lose their owner.
            table.unbind_owner(Owner::new(engine.number() as u16, self.number.get()));
        }
        if let Some(pd) = self.pd {
            self.adapter.release_domain(pd);
        }
        Ok(())
    }
}
