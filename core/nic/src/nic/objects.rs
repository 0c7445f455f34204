//! Creation, modification, query and destruction of completion queues and queue pairs.

use remora_memory::{Owner, Pd};
use remora_transport::state::{Service, State};
use remora_wire::Qpn;

use super::Nic;
use crate::attributes::{Modify, ModifyFault, QueuePairFacts};
use crate::completion_queue::{CompletionQueue, CqFlags, Notify};
use crate::config::{NicError, QueuePairInit, Receives};
use crate::part_number::PartNumber;
use crate::queue_pair::{GSI, QueuePair, Queues, Srq};
use crate::receive_queue::ReceiveQueue;
use crate::ring::Ring;
use crate::send_queue::Fetching;
use crate::shared_receive_queue::SrqInit;

/// The XRC domain of a queue pair that is not an XRC target.
const NO_DOMAIN: u32 = u32::MAX;

/// The memory of a new queue pair's queues.
struct Rings {
    send: Ring,
    receive: Option<Ring>,
}

impl Nic {
    /// Creates a completion queue with optional features and returns its number.
    pub(crate) fn create_cq(&mut self, ring: PartNumber, flags: CqFlags) -> Result<u32, NicError> {
        let ring = self.parts.ring(ring)?;
        self.shared.cqs_mut().create(ring, flags)
    }

    /// Moves a completion queue to another ring, with the completions that are not polled yet.
    pub(crate) fn resize_cq(&mut self, cq: u32, ring: PartNumber) -> Result<(), NicError> {
        let ring = self.parts.ring(ring)?;
        let queue = self.shared.cqs_mut().get_mut(cq)?;
        if queue.resize(ring) { Ok(()) } else { Err(NicError::TooSmall) }
    }

    /// Requests one wake-up of a completion queue, which [`wake`](Nic::wake) reports.
    pub(crate) fn notify_cq(&mut self, cq: u32, notify: Notify) -> Result<(), NicError> {
        let queue = self.shared.cqs_mut().get_mut(cq)?;
        queue.notify(notify);
        Ok(())
    }

    /// Returns the number of completions written since the completion queue was created.
    pub(crate) fn count_completions(&self, cq: u32) -> Result<u64, NicError> {
        self.shared.cqs().get(cq).map(CompletionQueue::written)
    }

    /// Creates a queue pair in RESET and returns its number.
    pub(crate) fn create_qp(&mut self, init: &QueuePairInit) -> Result<Qpn, NicError> {
        let rings = self.rings_of(init)?;
        if self.numbers.is_full() {
            return Err(NicError::Full);
        }
        let queues = self.queues_of(init, rings)?;
        self.place_qp(init, queues, NO_DOMAIN)
    }

    /// Takes the memory of a new queue pair's queues: the send queue and, if it has one of its own, the
    /// receive queue.
    fn rings_of(&mut self, init: &QueuePairInit) -> Result<Rings, NicError> {
        let send = self.parts.ring(init.send_ring);
        let receive = match init.receives {
            Receives::Own { ring, .. } => Some(self.parts.ring(ring)).transpose(),
            Receives::Shared(_) | Receives::None => Ok(None),
        };
        Ok(Rings { send: send?, receive: receive? })
    }

    /// Registers a new queue pair as a user of its completion queues, and creates its receive queue.
    fn queues_of(&mut self, init: &QueuePairInit, rings: Rings) -> Result<Queues, NicError> {
        let Rings { send, receive } = rings;
        self.shared.cqs_mut().join(init.send_cq, init.pd)?;
        let made = self.shared.cqs_mut().join(init.receive_cq, init.pd).and_then(|()| {
            self.receive_queue(init, receive)
                .inspect_err(|_| self.shared.cqs_mut().leave(init.receive_cq, init.pd))
        });
        let (receive, srq) = made.inspect_err(|_| self.shared.cqs_mut().leave(init.send_cq, init.pd))?;
        Ok(Queues { send, receive, srq })
    }

    /// Creates queue pair 1 of the general services interface in RESET (IBTA vol. 1 §3.9.4): a UD queue pair
    /// whose Q_Key is always [`GSI_QKEY`](crate::GSI_QKEY).
    pub(crate) fn create_gsi_qp(&mut self, init: &QueuePairInit) -> Result<Qpn, NicError> {
        let rings = self.rings_of(init)?;
        if init.service != Service::Ud {
            return Err(NicError::NotThisService);
        }
        if self.qps[GSI as usize].is_some() {
            return Err(NicError::Busy);
        }
        let queues = self.queues_of(init, rings)?;
        let number = Qpn::new(GSI);
        self.put_qp(GSI, number, init, queues, NO_DOMAIN);
        Ok(number)
    }

    /// Assigns a table index and a number to a new queue pair.
    pub(crate) fn place_qp(
        &mut self,
        init: &QueuePairInit,
        queues: Queues,
        xrc_domain: u32,
    ) -> Result<Qpn, NicError> {
        let (index, number) = self.numbers.take().ok_or(NicError::Full)?;
        self.put_qp(index, number, init, queues, xrc_domain);
        Ok(number)
    }

    fn put_qp(&mut self, index: u32, number: Qpn, init: &QueuePairInit, queues: Queues, xrc_domain: u32) {
        let owner = Owner::new(self.shared.properties().engine, number.get());
        let enabled = (init.fetching != Fetching::Posted).then_some((number, init.pd));
        self.shared.control_mut().set_enabled(index, enabled);
        self.qps[index as usize] = Some(Box::new(QueuePair::new(number, owner, init, queues, xrc_domain)));
    }

    /// Returns the receive queue of a new queue pair, and the shared receive queue if it uses one.
    fn receive_queue(
        &mut self,
        init: &QueuePairInit,
        ring: Option<Ring>,
    ) -> Result<(ReceiveQueue, Option<Srq>), NicError> {
        match (&init.receives, init.service) {
            (Receives::Own { max_sge, .. }, Service::Rc | Service::Uc | Service::Ud) => {
                Ok((ReceiveQueue::new(ring.ok_or(NicError::NoPart)?, *max_sge), None))
            }
            (Receives::Shared(number), Service::Rc | Service::Uc | Service::Ud) => {
                let (place, stride) = self.shared.objects_mut().srqs.join(*number)?;
                let pd = self.shared.objects().srqs.get(place).map_or(Pd::NONE, |queue| queue.pd);
                let buffer = ReceiveQueue::buffer(stride)
                    .inspect_err(|_| self.shared.objects_mut().srqs.leave(place))?;
                Ok((buffer, Some(Srq { place, pd })))
            }
            (Receives::None, Service::XrcInitiator) => Ok((ReceiveQueue::buffer(1)?, None)),
            _ => Err(NicError::NotThisService),
        }
    }

    /// Destroys a queue pair that is not attached to a multicast group. Its work requests and unpolled
    /// completions are discarded.
    pub(crate) fn destroy_qp(&mut self, number: Qpn) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        if self.shared.objects().groups.has(number) {
            return Err(NicError::Busy);
        }
        let Some(mut qp) = self.qps[index as usize].take() else { return Err(NicError::Unknown) };
        qp.offloads_mut().end(number, &mut self.shared);
        self.forget_waiting(&qp, index);
        qp.release(&mut self.shared);
        if qp.is_queued() {
            self.line.retain(|queued| *queued != index);
        }
        if qp.is_parked() {
            self.stopped.remove(index);
        }
        self.scheduler.leave(qp.id().tenant, index);
        self.timers.remove(index);
        self.numbers.give_back(index);
        Ok(())
    }

    /// Changes the state and attributes of a queue pair. On an error nothing is changed.
    pub(crate) fn modify_qp(&mut self, number: Qpn, change: &Modify) -> Result<(), ModifyFault> {
        let index = self.index(number).ok_or(ModifyFault::NoQueuePair)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(ModifyFault::NoQueuePair) };
        qp.modify(change, &mut self.shared)?;
        self.attend(index);
        Ok(())
    }

    /// Returns the attributes and measures of a queue pair.
    pub(crate) fn query_qp(&self, number: Qpn) -> Result<QueuePairFacts, NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let qp = self.qps[index as usize].as_ref().ok_or(NicError::Unknown)?;
        Ok(QueuePairFacts {
            attributes: qp.query(),
            rnr_waits: qp.machine().rnr_waits(),
            backlog: qp.machine().backlog(),
            tenant: qp.id().tenant,
        })
    }

    /// Returns the number of packets of a queue pair's submitted requests that have not been sent for the
    /// first time; `None` if there is no such queue pair.
    pub fn backlog(&self, number: Qpn) -> Option<u64> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.machine().backlog())
    }

    /// Returns the state of a queue pair; `None` if there is no such queue pair.
    pub fn qp_state(&self, number: Qpn) -> Option<State> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.state())
    }

    /// Creates a shared receive queue and returns its number.
    pub(crate) fn create_srq(&mut self, init: &SrqInit) -> Result<Qpn, NicError> {
        let ring = self.parts.ring(init.ring)?;
        self.shared.create_srq(init, ring)
    }

    /// Moves a shared receive queue to another ring, with the posted work requests.
    pub(crate) fn resize_srq(&mut self, srq: Qpn, ring: PartNumber) -> Result<(), NicError> {
        let ring = self.parts.ring(ring)?;
        self.shared.resize_srq(srq, ring)
    }
}
