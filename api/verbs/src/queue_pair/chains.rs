//! The parts of queue pairs for chains: loopback, slots that can be registered, and ENABLE.

use remora_memory::Range;
use remora_nic::chain::LoopbackInit;
use remora_nic::wqe::SLOT;
use remora_nic::{Command, Fetching, Receives, Service};
use std::marker::PhantomData;

use super::{Incoming, Inner, QueuePair, Ready, parts};
use crate::qp_handle::QpHandle;
use crate::{CompletionQueue, CreateError, PostError, ProtectionDomain, QpOptions};

impl QueuePair<Ready> {
    pub(crate) fn loopback(
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Ready>, CreateError> {
        let (init, send_ring, receive) = parts(domain, send_cq, receive_cq, Service::Rc, None, options)?;
        let Receives::Own { ring, max_sge } = init.receives else {
            return Err(CreateError::Nic(remora_nic::NicError::NotThisService));
        };
        let init = LoopbackInit {
            pd: init.pd,
            send_ring: init.send_ring,
            receive_ring: ring,
            receive_max_sge: max_sge,
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            fetching: init.fetching,
        };
        let engine = &send_cq.shared().engine;
        let create = Command::CreateLoopback(init);
        let handle = QpHandle::made(domain.context(), engine, Service::Rc, options, create)?;
        let inner = Inner::new(handle, domain, send_cq, receive_cq, send_ring, receive);
        let pair = QueuePair { inner, state: PhantomData };
        pair.leave_note().map_err(|error| CreateError::Daemon(error.to_string()))?;
        Ok(pair)
    }
}

impl QueuePair<Ready> {
    /// The number of the completion queue for send work requests.
    pub(crate) fn send_cq_number(&self) -> u32 {
        self.inner.send_cq.number
    }

    /// The number of the completion queue for receive work requests.
    pub(crate) fn receive_cq_number(&self) -> u32 {
        self.inner.receive_cq.number
    }

    /// The slots of the send queue, the capacity of the receive queue in requests, and the list elements of a
    /// receive.
    pub(crate) fn shape(&self) -> (u64, u64, u32) {
        let (receives, pieces) = match &self.inner.receive {
            Incoming::Own(own) => (own.capacity(), own.max_sge()),
            _ => (0, 0),
        };
        (self.inner.send.ring().slots(), receives, pieces)
    }

    /// The rule by which the NIC fetches the send queue.
    pub(crate) fn fetching(&self) -> Fetching {
        self.inner.handle.options.fetching
    }

    /// Fills slots with the bytes of work requests, without publishing them to the NIC. Returns false if the
    /// queue has too few free slots.
    pub(crate) fn put_slots(&mut self, slots: &[[u8; SLOT]]) -> bool {
        self.inner.send.push_slots(slots).is_ok()
    }

    /// Publishes the filled slots, and enables the first `enabled` slots of a managed or recycled queue.
    pub(crate) fn start(&mut self, enabled: u64) -> Result<(), CreateError> {
        self.inner.refuse_child().map_err(|_| CreateError::Forked)?;
        self.inner.publish_and_ring().map_err(|_| CreateError::Reentered)?;
        if enabled > 0 { self.enable(enabled) } else { Ok(()) }
    }
}

impl<S> QueuePair<S> {
    /// Returns the slots of the send queue as a range to be registered, 64 bytes each
    /// (`docs/reference/wire/offloads.md`). With
    /// the key of that *code region*, a chain or a peer may rewrite work requests that the NIC has not
    /// fetched, and cannot post any.
    ///
    /// ```
    /// use remora_verbs::{Access, CqOptions, Device, EMPTY, Fetching, QpOptions, work};
    ///
    /// let context = Device::shm().open()?;
    /// let domain = context.alloc_pd()?;
    /// let mut cq = context.create_cq(16)?;
    /// let managed = QpOptions { fetching: Fetching::Enabled, ..QpOptions::default() };
    /// let mut later = domain.create_loopback(&cq, &cq, &managed)?;
    /// let code = domain.register_ranges(&[later.code()], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    ///
    /// // A NOP whose id the chain overwrites. The NIC fetches the NOP only after the write has completed.
    /// later.post_send(&work::nop(1))?;
    /// let counted = context.create_cq_with(&CqOptions { counted: true, ..CqOptions::default() })?;
    /// let mut first = domain.create_loopback(&counted, &counted, &QpOptions::default())?;
    /// first.post_send(&work::write_inline(0, &[77], code.remote(2)))?;
    /// first.post_send(&work::wait(0, &counted, 1))?;
    /// first.post_send(&work::enable(0, later.number(), 1))?;
    /// let mut done = [EMPTY; 1];
    /// cq.wait(&mut done, std::time::Duration::from_secs(1))?;
    /// assert_eq!(done[0].id, 77);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn code(&self) -> Range {
        let ring = self.inner.send.ring();
        let bytes = ring.bytes();
        Range {
            bytes: bytes.clone(),
            // The ring's indices precede the slots. They are left out: a write to them would post work.
            offset: SLOT,
            len: ring.slots() as usize * SLOT,
            iova: bytes.address() + SLOT as u64,
        }
    }

    /// Lets the NIC fetch a managed or recycled send queue up to slot `count`, counted since the queue was
    /// created. The limit never decreases.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Nic(Unknown)` if the NIC fetches this queue as posted, which needs no
    /// ENABLE; `Daemon` if the daemon refuses.
    pub fn enable(&self, count: u64) -> Result<(), CreateError> {
        self.inner.handle.enable(count)
    }

    /// Makes the NIC use the posted receive work requests round after round, without their being posted
    /// again. They must fill the queue to its last slot, and each must take a power of two of slots:
    /// [`max_recv_sge`](QpOptions::max_recv_sge) is 1, 3, 7, 15 or 30.
    ///
    /// # Errors
    /// `NoReceiveQueue`; `Queue(BadState)` if the requests do not fill the queue; `Forked` in a forked child.
    pub fn recycle_receives(&mut self) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        let Incoming::Own(own) = &mut self.inner.receive else { return Err(PostError::NoReceiveQueue) };
        Ok(own.recycle()?)
    }
}
