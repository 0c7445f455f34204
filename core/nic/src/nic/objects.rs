//! Completion queues and queue pairs: made, changed, asked about and removed.

use remora_memory::{Owner, Pd};
use remora_transport::state::{Service, State};
use remora_wire::Qpn;

use super::Nic;
use crate::attributes::{Modify, ModifyFault};
use crate::completion_queue::{CompletionQueue, CqFlags, Notify};
use crate::config::{NicError, QueuePairInit, Receives};
use crate::queue_pair::{GSI, QueuePair, Srq};
use crate::receive_queue::ReceiveQueue;
use crate::ring::Ring;
use crate::send_queue::Fetching;

/// The XRC domain of a queue pair that is no target.
const NO_DOMAIN: u32 = u32::MAX;

impl Nic {
    /// Makes a completion queue over `ring`; its number.
    pub fn create_cq(&mut self, ring: Ring) -> Result<u32, NicError> {
        self.create_cq_with(ring, CqFlags::default())
    }

    /// Makes a completion queue with these flags; its number.
    ///
    /// # Errors
    /// `Full`.
    pub fn create_cq_with(&mut self, ring: Ring, flags: CqFlags) -> Result<u32, NicError> {
        let place = self.shared.cqs.iter().position(Option::is_none).ok_or(NicError::Full)?;
        self.shared.cqs[place] = Some(CompletionQueue::with_flags(ring, flags));
        Ok(place as u32)
    }

    /// Makes a completion queue that is counted and need not be polled: its newest entries stand over the
    /// oldest (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`); its number.
    pub fn create_cq_ignoring_overrun(&mut self, ring: Ring) -> Result<u32, NicError> {
        self.create_cq_with(ring, CqFlags { ignores_overrun: true, ..CqFlags::default() })
    }

    /// Removes a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), NicError> {
        if self.shared.cq_users.get(cq as usize).is_some_and(|users| !users.is_empty()) {
            return Err(NicError::Busy);
        }
        // Queue pairs that WAIT for it test again and find it gone.
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
        if self.numbers.is_full() {
            return Err(NicError::Full);
        }
        let (receive, srq) = self.queues_of(&init)?;
        self.place_qp(init, receive, srq, NO_DOMAIN)
    }

    /// Takes the completion queues of a queue pair to be into use, and makes its receive queue.
    fn queues_of(&mut self, init: &QueuePairInit) -> Result<(ReceiveQueue, Option<Srq>), NicError> {
        self.shared.use_cq(init.send_cq, init.pd)?;
        let made = self.shared.use_cq(init.receive_cq, init.pd).and_then(|()| {
            self.receive_queue(init).inspect_err(|_| self.shared.release_cq(init.receive_cq, init.pd))
        });
        made.inspect_err(|_| self.shared.release_cq(init.send_cq, init.pd))
    }

    /// Makes queue pair 1 in RESET, that of the general services interface (IBTA vol. 1 §3.9.4): a datagram
    /// queue pair whose Q_Key is always [`GSI_QKEY`](crate::GSI_QKEY). Packets for number 1 come to it
    /// whatever the NIC's QPN range.
    ///
    /// # Errors
    /// `Busy`: there is one. `NotThisService`: it is none of datagrams. Else those of
    /// [`create_qp`](Nic::create_qp).
    pub fn create_gsi_qp(&mut self, init: QueuePairInit) -> Result<Qpn, NicError> {
        if init.service != Service::Ud {
            return Err(NicError::NotThisService);
        }
        if self.qps[GSI as usize].is_some() {
            return Err(NicError::Busy);
        }
        let (receive, srq) = self.queues_of(&init)?;
        let number = Qpn::new(GSI);
        self.put_qp(GSI, number, init, receive, srq, NO_DOMAIN);
        Ok(number)
    }

    /// Gives a queue pair to be its place and number.
    pub(crate) fn place_qp(
        &mut self,
        init: QueuePairInit,
        receive: ReceiveQueue,
        srq: Option<Srq>,
        xrc_domain: u32,
    ) -> Result<Qpn, NicError> {
        let (index, number) = self.numbers.take().ok_or(NicError::Full)?;
        self.put_qp(index, number, init, receive, srq, xrc_domain);
        Ok(number)
    }

    fn put_qp(
        &mut self,
        index: u32,
        number: Qpn,
        init: QueuePairInit,
        receive: ReceiveQueue,
        srq: Option<Srq>,
        xrc_domain: u32,
    ) {
        let owner = Owner::new(self.shared.engine, number.get());
        let enabled = (init.fetching != Fetching::Posted).then_some((number, init.pd));
        self.shared.control.set_enabled(index, enabled);
        self.qps[index as usize] =
            Some(Box::new(QueuePair::new(number, owner, init, receive, srq, xrc_domain)));
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
                let buffer = ReceiveQueue::buffer(stride).inspect_err(|_| self.shared.srqs.leave(place))?;
                Ok((buffer, Some(Srq { place, pd })))
            }
            (Receives::None, Service::XrcInitiator) => Ok((ReceiveQueue::buffer(1)?, None)),
            _ => Err(NicError::NotThisService),
        }
    }

    /// Removes a queue pair; its work is forgotten, with the completions that are not polled yet, and packets
    /// for it are dropped from now on. `Busy` while it is attached to a multicast group.
    pub fn destroy_qp(&mut self, number: Qpn) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        if self.shared.groups.has(number) {
            return Err(NicError::Busy);
        }
        let Some(mut qp) = self.qps[index as usize].take() else { return Err(NicError::Unknown) };
        qp.end_prism(&mut self.shared);
        self.forget_waiting(&qp, index);
        qp.end_strom(&mut self.shared);
        qp.remove_completions(&mut self.shared);
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
        if qp.parked != 0 {
            self.stopped.remove(index);
        }
        self.scheduler.leave(qp.tenant, index);
        self.timers.remove(index);
        self.numbers.give_back(index);
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

    /// The attributes of a queue pair, and its state (`ibv_query_qp`).
    pub fn query_qp(&self, number: Qpn) -> Option<Modify> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.query())
    }

    /// How often a queue pair waited for a receive of its peer (RNR NAK), since it was connected.
    pub fn rnr_waits(&self, number: Qpn) -> Option<u32> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.machine.rnr_waits())
    }

    /// Packets of a connection's submitted requests that were not sent even once.
    pub fn backlog(&self, number: Qpn) -> Option<u64> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.machine.backlog())
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, number: Qpn) -> Option<State> {
        self.qps[self.index(number)? as usize].as_ref().map(|qp| qp.state)
    }
}
